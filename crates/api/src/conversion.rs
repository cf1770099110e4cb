//! Between the served versions of a kind.
//!
//! Most versions differ by name only. The exceptions: `autoscaling/v1` keeps in annotations what it has no fields for,
//! and `Event` of the core group and of `events.k8s.io` name the same facts differently. Objects are canonical before
//! and after.

mod autoscaler;
mod event;

pub(crate) use autoscaler::drop_annotations as drop_autoscaler_annotations;
use object_model::codec::canonical::canonicalise;
use serde_json::Value;

use crate::schemas::schema_of;

const CORE_EVENT: &str = "v1";
const EVENT: &str = "events.k8s.io/v1";
const AUTOSCALER_V1: &str = "autoscaling/v1";
const AUTOSCALER_V2: &str = "autoscaling/v2";

/// Makes an object one of another version of its kind, such as `autoscaling/v2`.
pub fn convert(object: &mut Value, to_api_version: &str) {
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    if text("apiVersion") == to_api_version || !object.is_object() {
        return;
    }
    let step: Option<fn(&mut Value)> = match (text("kind"), text("apiVersion"), to_api_version) {
        ("Event", CORE_EVENT, EVENT) => Some(event::from_core),
        ("Event", EVENT, CORE_EVENT) => Some(event::to_core),
        ("HorizontalPodAutoscaler", AUTOSCALER_V1, AUTOSCALER_V2) => Some(autoscaler::to_v2),
        ("HorizontalPodAutoscaler", AUTOSCALER_V2, AUTOSCALER_V1) => Some(autoscaler::to_v1),
        _ => None,
    };
    object["apiVersion"] = to_api_version.into();
    let Some(step) = step else { return };
    step(object);
    let (group, version) = to_api_version.split_once('/').unwrap_or(("", to_api_version));
    if let Some(schema) = schema_of(group, version, object["kind"].as_str().unwrap_or_default()) {
        // It was canonical before and only moved: every value still is of its type.
        let _ = canonicalise(&schema, object);
    }
}

/// Moves a value from one path of nested objects to another. What is not there stays absent.
fn shift(from: &Value, source: &[&str], to: &mut Value, target: &[&str]) {
    let found = source.iter().try_fold(from, |at, name| at.get(name));
    if let Some(found) = found.filter(|found| !found.is_null()) {
        crate::kinds::prepare::put(to, target, Some(found));
    }
}
