//! The options of a request, read from its query.

use object_model::{
    field::{Errors, Path},
    identity::GroupKind,
    meta::validate,
    status::Status,
};

use crate::request_info::pairs;

/// `dryRun`, `fieldManager`, `fieldValidation` and `force` of a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    pub dry_run: bool,
    pub field_manager: String,
    pub field_validation: FieldValidation,
    pub force: bool,
}

/// What happens to unknown and duplicate fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// Which write the options belong to: each has its own kind, and only some know `force`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    Create,
    Update,
    Patch,
    Apply,
}

impl WriteOptions {
    pub fn read(query: &str, write: Write) -> Result<Self, Status> {
        let mut options = Self::default();
        let mut errors = Errors::new();
        let root = Path::root();
        let mut force = None;
        for (key, value) in pairs(query) {
            match key.as_str() {
                "dryRun" => match value.as_str() {
                    "All" => options.dry_run = true,
                    other => errors.not_supported(&root.child("dryRun"), vec![other.to_owned()], &["All"]),
                },
                "fieldManager" => options.field_manager = value,
                "fieldValidation" => match value.as_str() {
                    "" | "Warn" => options.field_validation = FieldValidation::Warn,
                    "Ignore" => options.field_validation = FieldValidation::Ignore,
                    "Strict" => options.field_validation = FieldValidation::Strict,
                    other => {
                        errors.not_supported(&root.child("fieldValidation"), other, &["", "Ignore", "Strict", "Warn"])
                    }
                },
                "force" => force = Some(boolean(&value)),
                _ => {}
            }
        }
        if write == Write::Apply {
            if options.field_manager.is_empty() {
                errors.required(&root.child("fieldManager"), "is required for apply patch");
            }
        } else if write == Write::Patch && force.is_some() {
            errors.forbidden(&root.child("force"), "may not be specified for non-apply patch");
        }
        validate::field_manager(&options.field_manager, &root.child("fieldManager"), &mut errors);
        options.force = force.unwrap_or_default();
        if errors.is_empty() {
            return Ok(options);
        }
        let kind = match write {
            Write::Create => "CreateOptions",
            Write::Update => "UpdateOptions",
            Write::Patch | Write::Apply => "PatchOptions",
        };
        Err(Status::invalid(&GroupKind::new("meta.k8s.io", kind), "", &errors))
    }
}

/// What a list or watch selects, and from when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    pub label_selector: String,
    pub field_selector: String,
    pub limit: i64,
    pub r#continue: String,
    pub resource_version: String,
    pub resource_version_match: String,
    pub timeout_seconds: Option<u64>,
    pub allow_watch_bookmarks: bool,
    pub send_initial_events: Option<bool>,
    /// How much of each object a table has.
    pub include_object: Option<String>,
}

impl ListOptions {
    pub fn read(query: &str) -> Result<Self, Status> {
        let mut options = Self::default();
        for (key, value) in pairs(query) {
            match key.as_str() {
                "labelSelector" => options.label_selector = value,
                "fieldSelector" => options.field_selector = value,
                "limit" => options.limit = integer(&value)?,
                "continue" => options.r#continue = value,
                "resourceVersion" => options.resource_version = value,
                "resourceVersionMatch" => options.resource_version_match = value,
                "timeoutSeconds" => options.timeout_seconds = Some(integer(&value)?.max(0) as u64),
                "allowWatchBookmarks" => options.allow_watch_bookmarks = boolean(&value),
                "sendInitialEvents" => options.send_initial_events = Some(boolean(&value)),
                "includeObject" => options.include_object = Some(value),
                _ => {}
            }
        }
        Ok(options)
    }
}

impl ListOptions {
    /// Which options make sense together for a watch.
    pub fn validate_watch(&self) -> Result<(), Status> {
        let mut errors = Errors::new();
        let root = Path::root();
        let rule = root.child("resourceVersionMatch");
        let given = self.resource_version_match.as_str();
        if self.send_initial_events.is_some() && given != "NotOlderThan" {
            errors.forbidden(&rule, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
        }
        if !given.is_empty() {
            if self.send_initial_events.is_none() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                errors.forbidden(&rule, why);
            }
            if given != "NotOlderThan" {
                errors.not_supported(&rule, given, &["NotOlderThan"]);
            }
            if !self.r#continue.is_empty() {
                errors.forbidden(&rule, "resourceVersionMatch is forbidden when continue is provided");
            }
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(Status::invalid(&GroupKind::new("meta.k8s.io", "ListOptions"), "", &errors))
    }
}

/// An integer as Kubernetes reads it in a query: empty is zero.
pub fn integer(text: &str) -> Result<i64, Status> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))
}

/// A boolean as Kubernetes reads it in a query: present without a value is true.
pub fn boolean(text: &str) -> bool {
    !matches!(&*text.to_ascii_lowercase(), "false" | "0")
}
