//! ExtendedResourceToleration: a pod that asks for a device tolerates the taint that keeps others off its nodes. By flag.

use std::collections::BTreeSet;

use async_trait::async_trait;
use object_model::{status::Status, value::Fields};
use serde_json::{Value, json};

use super::{Attributes, Plugin, Request, pod_resources::is_extended};

pub struct ExtendedResourceToleration;

#[async_trait]
impl Plugin for ExtendedResourceToleration {
    fn name(&self) -> &'static str {
        "ExtendedResourceToleration"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.writes("", "pods", "")
    }

    async fn mutate(&self, _: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
        let containers = ["containers", "initContainers"].iter().flat_map(|list| spec.items(list));
        let requests = containers.filter_map(|c| c.at(&["resources", "requests"])).filter_map(Value::as_object);
        let names: BTreeSet<String> =
            requests.flat_map(|r| r.keys()).filter(|name| is_extended(name)).cloned().collect();
        for name in names {
            let wanted = json!({"key": name, "operator": "Exists", "effect": "NoSchedule"});
            let Some(list) = spec.entry("tolerations").or_insert_with(|| json!([])).as_array_mut() else { break };
            // One for the same taint is replaced, whatever else it says.
            let same = |t: &Value| ["key", "operator", "value", "effect"].iter().all(|f| t.text(f) == wanted.text(f));
            match list.iter_mut().find(|t| same(t)) {
                Some(known) => *known = wanted,
                None => list.push(wanted),
            }
        }
        Ok(())
    }
}
