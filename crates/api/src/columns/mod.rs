//! What `kubectl get` shows of each kind: the columns of its `Table`.
//!
//! A kind without columns of its own shows its name and when it was made. A new kind's columns are one entry in [`all`].
//! Names, words and cells are those of Kubernetes v1.36, since people read them and scripts cut them apart; a cell is
//! made from the object as it is stored.

pub mod all;
mod cells;
mod core;
mod docs;
mod network;
mod pod;
mod policy;
mod storage;
mod workloads;

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
pub static DEFAULT: Columns =
    Columns::new(&[NAME, Column::new("Created At", "date", "", docs::CREATED)], |object, _| {
        vec![Meta::of(object).name().into(), Meta::of(object).get("creationTimestamp").cloned().unwrap_or_default()]
    });

// Columns that many kinds have.
const NAME: Column = Column::new("Name", "string", "name", docs::NAME);
const AGE: Column = Column::text("Age", docs::CREATED);
const CONTAINERS: Column = Column::text("Containers", "Names of each container in the template.");
const IMAGES: Column = Column::text("Images", "Images referenced by each container in the template.");

impl Columns {
    const fn new(columns: &'static [Column], cells: fn(&Value, Time) -> Vec<Value>) -> Columns {
        Columns { columns, cells, conditions: |_| None }
    }
}

impl Column {
    const fn new(name: &'static str, r#type: &'static str, format: &'static str, description: &'static str) -> Column {
        Column { name, r#type, format, description, priority: 0 }
    }

    const fn text(name: &'static str, description: &'static str) -> Column {
        Column::new(name, "string", "", description)
    }

    const fn integer(name: &'static str, description: &'static str) -> Column {
        Column::new(name, "integer", "", description)
    }

    const fn boolean(name: &'static str, description: &'static str) -> Column {
        Column::new(name, "boolean", "", description)
    }

    /// Only shown with `-o wide`.
    const fn wide(self) -> Column {
        Column { priority: 1, ..self }
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
