//! From a pod to the agent that runs it.

use object_model::{identity::GroupResource, status::Status, value::Fields};
use serde_json::Value;

use super::agents::Agent;
use crate::{catalogue::Target, handlers::Call};

/// An object of the core group that the request is not about itself.
pub async fn object(call: &Call<'_>, plural: &str, namespace: &str, name: &str) -> Result<Value, Status> {
    let served = call.server.catalogue.served();
    let Some(resource) = served.find("", "v1", plural) else {
        return Err(Status::not_found(&GroupResource::new("", plural), name));
    };
    let target = Target { resource, subresource: "", namespace, name };
    Ok(call.server.registry.get(&target, "").await?.object(&resource.kind))
}

/// The pod that the request names.
pub async fn pod(call: &Call<'_>) -> Result<Value, Status> {
    object(call, "pods", &call.info.namespace, &call.info.name).await
}

/// The agent that runs a pod; `None` before the pod has a node.
pub async fn agent(call: &Call<'_>, pod: &Value) -> Result<Option<Agent>, Status> {
    match pod.text_at(&["spec", "nodeName"]) {
        "" => Ok(None),
        node => Agent::of(&object(call, "nodes", "", node).await?).map(Some),
    }
}

/// The container that is meant: the one that is named, else the only one.
pub fn container(pod: &Value, named: &str) -> Result<String, Status> {
    let name = pod.text_at(&["metadata", "name"]);
    let containers = |kind: &str| pod.at(&["spec", kind]).and_then(Value::as_array).cloned().unwrap_or_default();
    let all: Vec<Value> =
        ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(containers).collect();
    let names: Vec<&str> = all.iter().map(|c| c.text("name")).collect();
    if !named.is_empty() {
        if names.contains(&named) {
            return Ok(named.to_owned());
        }
        return Err(Status::bad_request(format!("container {named} is not valid for pod {name}")));
    }
    match containers("containers").as_slice() {
        [only] => Ok(only.text("name").to_owned()),
        [] => Err(Status::bad_request(format!("a container name must be specified for pod {name}"))),
        _ => {
            let choice = names.join(" ");
            let message = format!("a container name must be specified for pod {name}, choose one of: [{choice}]");
            Err(Status::bad_request(message))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn which_container() {
        let two = json!({"metadata": {"name": "p"}, "spec": {
            "initContainers": [{"name": "i"}], "containers": [{"name": "a"}, {"name": "b"}]}});
        let one = json!({"metadata": {"name": "p"}, "spec": {"initContainers": [{"name": "i"}], "containers": [{"name": "a"}]}});
        let refused = |pod, named| container(pod, named).unwrap_err().message;
        assert_eq!(container(&one, "").unwrap(), "a");
        assert_eq!(container(&two, "i").unwrap(), "i");
        assert_eq!(refused(&two, ""), "a container name must be specified for pod p, choose one of: [i a b]");
        assert_eq!(refused(&two, "x"), "container x is not valid for pod p");
    }
}
