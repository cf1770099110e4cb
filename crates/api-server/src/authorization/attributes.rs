//! What judges are asked: who wants to do what to which objects.

use std::borrow::Cow;

use object_model::{
    names,
    selector::{FieldSelector, FieldTerm, LabelSelector, Operator, Requirement},
    value::Fields,
};
use serde_json::Value;

use crate::{
    context::User,
    request_info::{RequestInfo, pairs},
};

/// One question. The namespace is empty for the whole cluster, the name for all objects.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    pub user: &'a User,
    pub verb: &'a str,
    /// Is it about objects? Otherwise only `path` is meaningful.
    pub is_resource: bool,
    pub path: &'a str,
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: Cow<'a, str>,
    pub selectors: Selectors,
}

/// To which objects a request limits itself. A judge may ignore this, as the request is then judged as a larger one.
#[derive(Clone, Debug, Default)]
pub struct Selectors {
    pub fields: Vec<FieldTerm>,
    /// Part of the selector could not be read, and is left out of `fields`.
    pub bad_fields: bool,
    pub labels: Vec<Requirement>,
    pub bad_labels: bool,
}

impl<'a> Attributes<'a> {
    /// What a request asks for.
    pub fn of_request(user: &'a User, info: &'a RequestInfo, query: &str) -> Self {
        let mut attributes = Self {
            user,
            verb: info.verb,
            is_resource: info.is_resource,
            path: &info.path,
            group: &info.group,
            version: &info.version,
            resource: &info.resource,
            subresource: &info.subresource,
            namespace: &info.namespace,
            name: Cow::Borrowed(&info.name),
            selectors: Selectors::default(),
        };
        // The old way to watch one object ignores selectors, so they limit nothing there.
        let selects = matches!(info.verb, "list" | "watch" | "deletecollection") && !info.watch_prefix;
        if selects && info.is_resource && !query.is_empty() {
            attributes.select(query);
        }
        attributes
    }

    /// A question about objects, of somebody who is not asking it by a request.
    pub fn of_resource(user: &'a User, verb: &'a str, group: &'a str, resource: &'a str) -> Self {
        Self {
            user,
            verb,
            is_resource: true,
            path: "",
            group,
            version: "*",
            resource,
            subresource: "",
            namespace: "",
            name: Cow::Borrowed(""),
            selectors: Selectors::default(),
        }
    }

    /// The `spec` of an access review, about `user`.
    pub fn of_review(user: &'a User, spec: &'a Value) -> Self {
        if let Some(asked) = spec.object("resourceAttributes") {
            let version = match asked.text("version") {
                "" => "*",
                version => version,
            };
            return Self {
                version,
                subresource: asked.text("subresource"),
                namespace: asked.text("namespace"),
                name: Cow::Borrowed(asked.text("name")),
                selectors: Selectors::of_review(asked),
                ..Self::of_resource(user, asked.text("verb"), asked.text("group"), asked.text("resource"))
            };
        }
        let asked = spec.object("nonResourceAttributes").unwrap_or(&Value::Null);
        Self {
            is_resource: false,
            path: asked.text("path"),
            version: "",
            ..Self::of_resource(user, asked.text("verb"), "", "")
        }
    }

    /// The resource with its subresource, as rules name it.
    pub fn combined_resource(&self) -> Cow<'a, str> {
        match self.subresource {
            "" => Cow::Borrowed(self.resource),
            subresource => Cow::Owned(format!("{}/{subresource}", self.resource)),
        }
    }

    /// Is the request limited to objects whose field has this value?
    pub fn selects_field(&self, field: &str, value: &str) -> bool {
        self.selectors.fields.iter().any(|t| t.equal && &*t.field == field && &*t.value == value)
    }

    fn select(&mut self, query: &str) {
        for (key, value) in pairs(query) {
            match key.as_str() {
                "fieldSelector" => match FieldSelector::parse(&value) {
                    Ok(selector) => self.selectors.fields = selector.terms().to_vec(),
                    Err(_) => self.selectors.bad_fields = true,
                },
                "labelSelector" => match LabelSelector::parse(&value) {
                    Ok(selector) => self.selectors.labels = selector.requirements().to_vec(),
                    Err(_) => self.selectors.bad_labels = true,
                },
                _ => {}
            }
        }
        // Whoever may read one object may list or watch it by its name.
        let by_name = self.selectors.fields.iter().find(|t| t.equal && &*t.field == "metadata.name");
        if let (true, Some(term)) = (self.name.is_empty() && self.verb != "deletecollection", by_name)
            && names::name_is_path_segment(&term.value, false).is_empty()
        {
            self.name = Cow::Owned(term.value.to_string());
        }
    }
}

impl Selectors {
    /// The selectors of an access review: written out, or taken apart.
    fn of_review(asked: &Value) -> Self {
        let mut selectors = Self::default();
        if let Some(fields) = asked.object("fieldSelector") {
            match FieldSelector::parse(fields.text("rawSelector")) {
                Ok(selector) => selectors.fields = selector.terms().to_vec(),
                Err(_) => selectors.bad_fields = true,
            }
            let parts = fields.items("requirements");
            selectors.fields.extend(parts.iter().filter_map(field_term));
            selectors.bad_fields |= selectors.fields.len() < parts.len();
        }
        if let Some(labels) = asked.object("labelSelector") {
            match LabelSelector::parse(labels.text("rawSelector")) {
                Ok(selector) => selectors.labels = selector.requirements().to_vec(),
                Err(_) => selectors.bad_labels = true,
            }
            let parts = labels.items("requirements");
            selectors.labels.extend(parts.iter().filter_map(label_requirement));
            selectors.bad_labels |= selectors.labels.len() < parts.len();
        }
        selectors
    }

    /// What could not be read, as access reviews tell it.
    pub fn problems(&self) -> Vec<String> {
        let told = |bad: bool, some_left: bool, which: &str| {
            let how_much = if some_left { "partially ignored" } else { "ignored" };
            bad.then(|| format!("spec.resourceAttributes.{which} {how_much} due to parse error"))
        };
        let fields = told(self.bad_fields, !self.fields.is_empty(), "fieldSelector");
        let labels = told(self.bad_labels, !self.labels.is_empty(), "labelSelector");
        fields.into_iter().chain(labels).collect()
    }
}

/// Field selectors know equality only.
fn field_term(requirement: &Value) -> Option<FieldTerm> {
    let equal = match requirement.text("operator") {
        "In" => true,
        "NotIn" => false,
        _ => return None,
    };
    let [value] = requirement.items("values") else { return None };
    Some(FieldTerm { field: requirement.text("key").into(), value: value.as_str()?.into(), equal })
}

fn label_requirement(requirement: &Value) -> Option<Requirement> {
    let operator = match requirement.text("operator") {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        _ => return None,
    };
    let values = requirement.items("values").iter().filter_map(Value::as_str).map(Box::from).collect();
    Requirement::new(requirement.text("key"), operator, values).ok()
}
