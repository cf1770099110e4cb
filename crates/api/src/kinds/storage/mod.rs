//! storage.k8s.io: classes of volumes, and what CSI drivers say about themselves.

use object_model::names;
use serde_json::Value;

use crate::validation::Field;

pub mod csi_driver;
pub mod csi_node;
pub mod csi_storage_capacity;
pub mod storage_class;
pub mod volume_attachment;
pub mod volume_attributes_class;

const GROUP: &str = "storage.k8s.io";

const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETERS_SIZE: usize = 256 * 1024;

/// The name of a provisioner or driver: a qualified name, in any case.
fn provisioner(name: &Field) {
    if name.required() {
        let lower = Value::from(name.text().to_lowercase());
        for message in names::qualified_name(lower.as_str().unwrap_or_default()) {
            name.invalid_value(lower.clone(), message);
        }
    }
}

/// What a provisioner is told.
fn parameters(parameters: &Field) {
    if parameters.len() > MAX_PARAMETERS {
        parameters.too_long(MAX_PARAMETERS);
    }
    if parameters.key("").is_set() {
        parameters.invalid_value("", "field can not be empty.");
    }
    if texts_size(parameters) > MAX_PARAMETERS_SIZE {
        parameters.too_long(MAX_PARAMETERS_SIZE);
    }
}

/// How long all keys and values of a map are together.
fn texts_size(map: &Field) -> usize {
    map.entries().map(|(key, value)| key.len() + value.text().len()).sum()
}
