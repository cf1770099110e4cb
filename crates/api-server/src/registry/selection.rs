//! Which objects of a resource a list or watch is about.

use std::sync::Arc;

use object_model::{
    selector::{FieldSelector, LabelSelector},
    status::Status,
};

use crate::{
    catalogue::Target,
    options::ListOptions,
    watch_cache::{Entry, Scope},
};

/// Namespace, labels and fields.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    namespace: Box<str>,
    /// The resource has no namespaces, or the selection has just one.
    one_namespace: bool,
    labels: Arc<LabelSelector>,
    conditions: Arc<[Condition]>,
}

/// What one field must be, or must not be.
#[derive(Debug)]
struct Condition {
    field: Field,
    value: Box<str>,
    equal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    /// By its position among the resource's selectable fields.
    Selectable(usize),
}

impl Selection {
    /// What the options select in the target's namespace, and its object if it names one.
    pub fn new(target: &Target<'_>, options: &ListOptions) -> Result<Self, Status> {
        let labels = LabelSelector::parse(&options.label_selector).map_err(|e| Status::bad_request(e.to_string()))?;
        let fields = FieldSelector::parse(&options.field_selector).map_err(|e| Status::bad_request(e.to_string()))?;
        let mut conditions = Vec::new();
        if !target.name.is_empty() {
            conditions.push(Condition { field: Field::Name, value: target.name.into(), equal: true });
        }
        for term in fields.terms() {
            let field = match &*term.field {
                "metadata.name" => Field::Name,
                "metadata.namespace" if target.resource.namespaced => Field::Namespace,
                name => {
                    match target.resource.strategy.stored_field(name).and_then(|n| target.resource.cache.selectable(n))
                    {
                        Some(position) => Field::Selectable(position),
                        None => return Err(unknown_field(target, name)),
                    }
                }
            };
            conditions.push(Condition { field, value: term.value.clone(), equal: term.equal });
        }
        let namespace: Box<str> = if target.resource.namespaced { target.namespace.into() } else { Box::default() };
        let one_namespace = !target.resource.namespaced || !namespace.is_empty();
        Ok(Self { namespace, one_namespace, labels: Arc::new(labels), conditions: conditions.into() })
    }

    pub fn selects(&self, entry: &Entry) -> bool {
        (self.namespace.is_empty() || self.namespace == entry.namespace)
            && self.conditions.iter().all(|c| c.holds(entry))
            && (self.labels.is_everything() || self.labels.matches(|key| entry.label(key)))
    }

    /// Nothing but the namespace matters.
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.conditions.is_empty()
    }

    /// What the names of selected objects begin with.
    pub fn prefix(&self) -> Box<str> {
        if self.namespace.is_empty() { Box::default() } else { format!("{}/", self.namespace).into() }
    }

    /// The narrowest scope that has all selected objects.
    pub fn scope(&self) -> Scope {
        let exact = |field| self.conditions.iter().find(|c| c.equal && c.field == field).map(|c| c.value.clone());
        // A name without a namespace can be in any of them.
        if let Some(name) = exact(Field::Name).filter(|_| self.one_namespace) {
            return Scope::Object { namespace: self.namespace.clone(), name };
        }
        let by_field = self.conditions.iter().find_map(|c| match c.field {
            Field::Selectable(position) if c.equal && !c.value.is_empty() => {
                Some(Scope::Field { position, value: c.value.clone() })
            }
            _ => None,
        });
        match (by_field, self.namespace.is_empty()) {
            (Some(scope), _) => scope,
            (None, true) => Scope::All,
            (None, false) => Scope::Namespace(self.namespace.clone()),
        }
    }
}

impl Condition {
    fn holds(&self, entry: &Entry) -> bool {
        let value = match self.field {
            Field::Name => &entry.name,
            Field::Namespace => &entry.namespace,
            Field::Selectable(position) => match entry.fields.get(position) {
                Some(value) => value,
                None => return !self.equal,
            },
        };
        (*value == self.value) == self.equal
    }
}

fn unknown_field(target: &Target<'_>, name: &str) -> Status {
    let has_fields = !target.resource.strategy.fields.is_empty();
    Status::bad_request(if has_fields {
        format!("field label not supported: {name}")
    } else {
        format!("{name:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    })
}
