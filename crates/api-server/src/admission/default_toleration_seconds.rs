//! DefaultTolerationSeconds: a pod stays five minutes on a node that is not ready or unreachable, unless it says
//! otherwise.

use async_trait::async_trait;
use object_model::{status::Status, value::Fields};
use serde_json::{Value, json};

use super::{Attributes, Plugin, Request};

const KEYS: &[&str] = &["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
const SECONDS: i64 = 300;

pub struct DefaultTolerationSeconds;

#[async_trait]
impl Plugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.writes("", "pods", "")
    }

    async fn mutate(&self, _: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
        let tolerated = |key: &&&str| {
            !spec.items("tolerations").iter().any(|t| {
                (t.text("key").is_empty() || t.text("key") == **key) && matches!(t.text("effect"), "" | "NoExecute")
            })
        };
        let missing: Vec<Value> = KEYS
            .iter()
            .filter(tolerated)
            .map(|key| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS}))
            .collect();
        if !missing.is_empty()
            && let Some(list) = spec.entry("tolerations").or_insert_with(|| json!([])).as_array_mut()
        {
            list.extend(missing);
        }
        Ok(())
    }
}
