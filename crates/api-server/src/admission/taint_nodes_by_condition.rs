//! TaintNodesByCondition: a new node is not ready until its agent says so.

use async_trait::async_trait;
use object_model::{status::Status, value::Fields};
use serde_json::{Value, json};

use super::{Attributes, Plugin, Request};

const NOT_READY: &str = "node.kubernetes.io/not-ready";

pub struct TaintNodesByCondition;

#[async_trait]
impl Plugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.creates("", "nodes")
    }

    async fn mutate(&self, _: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        let Some(fields) = object.as_object_mut() else { return Ok(()) };
        let Some(spec) = fields.entry("spec").or_insert_with(|| json!({})).as_object_mut() else { return Ok(()) };
        let has = |t: &Value| t.text("key") == NOT_READY && t.text("effect") == "NoSchedule";
        if !spec.items("taints").iter().any(has)
            && let Some(taints) = spec.entry("taints").or_insert_with(|| json!([])).as_array_mut()
        {
            taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
        }
        Ok(())
    }
}
