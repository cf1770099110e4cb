//! What `kubectl get` shows of each kind: the columns of its `Table`.
//!
//! A kind without columns of its own shows its name and when it was made. A new kind's columns are one entry in [`all`].

pub mod all;

use object_model::meta::Meta;
use object_model::time::Time;
use serde_json::{Value, json};

/// The columns of one kind.
pub struct Columns {
    pub columns: &'static [Column],
    /// One cell per column.
    pub cells: fn(&Value, Time) -> Vec<Value>,
    /// Conditions of a row, such as that a pod has completed.
    pub conditions: fn(&Value) -> Option<Value>,
}

pub struct Column {
    pub name: &'static str,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub r#type: &'static str,
    pub format: &'static str,
    pub description: &'static str,
    /// 0 is always shown, 1 with `-o wide`.
    pub priority: i32,
}

/// Of a kind that nothing else is known of.
pub static DEFAULT: Columns = Columns {
    columns: &[Column::new("Name", "string", "name", NAME), Column::new("Created At", "date", "", CREATED)],
    cells: |object, _| {
        let meta = Meta::of(object);
        vec![meta.name().into(), meta.get("creationTimestamp").cloned().unwrap_or_default()]
    },
    conditions: |_| None,
};

pub const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources \
    may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for \
    creation idempotence and configuration definition. Cannot be updated. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
pub const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not \
    guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is \
    represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

impl Column {
    pub const fn new(
        name: &'static str,
        r#type: &'static str,
        format: &'static str,
        description: &'static str,
    ) -> Column {
        Column { name, r#type, format, description, priority: 0 }
    }

    pub const fn wide(name: &'static str, r#type: &'static str, description: &'static str) -> Column {
        Column { name, r#type, format: "", description, priority: 1 }
    }
}

/// The columns of a kind.
pub fn of(group: &str, kind: &str) -> &'static Columns {
    all::find(group, kind).unwrap_or(&DEFAULT)
}

impl Columns {
    /// As a `Table` has them.
    pub fn definitions(&self) -> Value {
        let definition = |c: &Column| {
            json!({
                "name": c.name,
                "type": c.r#type,
                "format": c.format,
                "description": c.description,
                "priority": c.priority,
            })
        };
        self.columns.iter().map(definition).collect()
    }
}
