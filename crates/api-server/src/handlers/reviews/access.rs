//! May somebody do something? What may I do?

use object_model::{status::Status, value::Fields};
use serde_json::{Map, Value, json};

use crate::{
    authorization::{Attributes, Verdict},
    context::User,
    handlers::Call,
};

/// SelfSubjectAccessReview: may the asker?
pub async fn of_asker(call: &Call<'_>, review: Value) -> Value {
    decide(call, &call.context.user, review).await
}

/// SubjectAccessReview and LocalSubjectAccessReview: may whom they name?
pub async fn of_subject(call: &Call<'_>, review: Value) -> Value {
    let spec = &review["spec"];
    let texts = |list: &[Value]| list.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>();
    let extra = |value: &Value| texts(value.as_array().map(Vec::as_slice).unwrap_or_default());
    let user = User {
        name: spec.text("user").to_owned(),
        uid: spec.text("uid").to_owned(),
        groups: texts(spec.items("groups")),
        extra: spec.entries("extra").map(|(key, values)| (key.clone(), extra(values))).collect(),
    };
    decide(call, &user, review).await
}

async fn decide(call: &Call<'_>, user: &User, mut review: Value) -> Value {
    let attributes = Attributes::of_review(user, &review["spec"]);
    let decision = call.server.authorization.decide(&attributes).await;
    let mut errors: Vec<String> = decision.error.iter().cloned().collect();
    errors.extend(attributes.selectors.problems());
    let mut status = Map::from_iter([("allowed".to_owned(), json!(decision.is_allowed()))]);
    if decision.verdict == Verdict::Deny {
        status.insert("denied".into(), true.into());
    }
    for (field, text) in [("reason", decision.reason()), ("evaluationError", &errors.join("; "))] {
        if !text.is_empty() {
            status.insert(field.into(), text.into());
        }
    }
    review["status"] = status.into();
    review
}

/// SelfSubjectRulesReview: everything that the asker may do in a namespace, as far as it can be listed.
pub fn rules_of_asker(call: &Call<'_>, review: &Value) -> Result<Value, Status> {
    let namespace = review.text_at(&["spec", "namespace"]);
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let found = call.server.authorization.rules(&call.context.user, namespace);
    let (resources, urls): (Vec<_>, Vec<_>) = found.rules.iter().partition(|rule| !rule.resources.is_empty());
    let mut status = json!({"resourceRules": resources, "nonResourceRules": urls, "incomplete": found.incomplete});
    if let Some(error) = found.error() {
        status["evaluationError"] = error.into();
    }
    Ok(json!({
        "kind": "SelfSubjectRulesReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": {},
        "status": status,
    }))
}
