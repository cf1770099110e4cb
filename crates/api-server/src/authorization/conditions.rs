//! Conditions under which an authorization webhook is asked: expressions about the review it would be sent.

use std::sync::LazyLock;

use expressions::{Activation, Environment, ObjectType, Type, Value};
use object_model::value::Fields;
use serde_json::{Value as Json, json};

use crate::expression::Expression;

const MOST: usize = 64;

static REQUEST: LazyLock<Type> = LazyLock::new(|| {
    let texts = || Type::list(Type::String);
    let requirement = [("key", Type::String), ("operator", Type::String), ("values", texts())];
    let requirement = Type::Object(ObjectType::new("kubernetes.SelectorRequirement", requirement));
    let selector = |name: &str| {
        let fields = [("rawSelector", Type::String), ("requirements", Type::list(requirement.clone()))];
        Type::Object(ObjectType::new(name, fields))
    };
    let resource = RESOURCE.into_iter().map(|name| (name, Type::String)).chain([
        ("fieldSelector", selector("kubernetes.FieldSelectorAttributes")),
        ("labelSelector", selector("kubernetes.LabelSelectorAttributes")),
    ]);
    let path = [("path", Type::String), ("verb", Type::String)];
    Type::Object(ObjectType::new(
        "kubernetes.SubjectAccessReviewSpec",
        [
            ("resourceAttributes", Type::Object(ObjectType::new("kubernetes.ResourceAttributes", resource))),
            ("nonResourceAttributes", Type::Object(ObjectType::new("kubernetes.NonResourceAttributes", path))),
            ("user", Type::String),
            ("groups", texts()),
            ("extra", Type::map(Type::String, texts())),
            ("uid", Type::String),
        ],
    ))
});

const RESOURCE: [&str; 7] = ["namespace", "verb", "group", "version", "resource", "subresource", "name"];

/// All conditions of one webhook, compiled; what is wrong is told at `at`.
pub fn read(webhook: &Json, at: &str, problems: &mut Vec<String>) -> Vec<Expression> {
    let conditions = webhook.items("matchConditions");
    let version = webhook.text("matchConditionSubjectAccessReviewVersion");
    match version {
        "" if !conditions.is_empty() => problems.push(format!(
            "{at}.matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are specified"
        )),
        "" | "v1" => {}
        other => problems.push(format!(
            "{at}.matchConditionSubjectAccessReviewVersion: Unsupported value: {other:?}: supported values: v1"
        )),
    }
    if conditions.len() > MOST {
        problems.push(format!("{at}.matchConditions: Too many: {}: must have at most {MOST} items", conditions.len()));
        return Vec::new();
    }
    let environment = Environment::kubernetes().with_variable("request", REQUEST.clone());
    let mut compiled: Vec<Expression> = Vec::new();
    for (i, condition) in conditions.iter().enumerate() {
        let (text, at) = (condition.text("expression"), format!("{at}.matchConditions[{i}].expression"));
        if text.trim().is_empty() {
            problems.push(format!("{at}: Required value"));
        } else if compiled.iter().any(|known| known.text() == text) {
            problems.push(format!("{at}: Duplicate value: {text:?}"));
        } else {
            match Expression::compile(&environment, text, Some(&Type::Bool)) {
                Ok(expression) => compiled.push(expression),
                Err(why) => problems.push(format!("{at}: {why}")),
            }
        }
    }
    compiled
}

/// Do all hold for this review? One that does not decides, whatever else fails.
pub fn hold(conditions: &[Expression], spec: &Json) -> Result<bool, String> {
    if conditions.is_empty() {
        return Ok(true);
    }
    let request = complete(spec);
    let activation = Activation::new().with("request", Value::typed(&request, &REQUEST));
    let mut failures = Vec::new();
    for condition in conditions {
        match condition.holds(&activation) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(why) => {
                let text = condition.text();
                failures.push(format!("cel evaluation error: expression '{text}' resulted in error: {why}"));
            }
        }
    }
    if failures.is_empty() { Ok(true) } else { Err(failures.join(", ")) }
}

/// With the fields that are empty, which conditions can name without asking first whether they are there.
fn complete(spec: &Json) -> Json {
    fn fill<'n>(part: Option<&mut Json>, fields: impl IntoIterator<Item = (&'n str, Json)>) {
        if let Some(Json::Object(part)) = part {
            for (name, empty) in fields {
                part.entry(name).or_insert(empty);
            }
        }
    }
    let mut spec = spec.clone();
    fill(Some(&mut spec), [("user", json!("")), ("uid", json!("")), ("groups", json!([])), ("extra", json!({}))]);
    fill(spec.get_mut("resourceAttributes"), RESOURCE.map(|name| (name, json!(""))));
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(texts: &[&str]) -> Result<Vec<Expression>, Vec<String>> {
        let list: Vec<Json> = texts.iter().map(|text| json!({"expression": text})).collect();
        let webhook = json!({"matchConditions": list, "matchConditionSubjectAccessReviewVersion": "v1"});
        let mut problems = Vec::new();
        let compiled = read(&webhook, "w", &mut problems);
        if problems.is_empty() { Ok(compiled) } else { Err(problems) }
    }

    #[test]
    fn only_what_matches_is_asked() {
        let pods = json!({"user": "eve", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "a"}});
        let path = json!({"user": "eve", "nonResourceAttributes": {"verb": "get", "path": "/x"}});
        for (texts, of_pods, of_path) in [
            (&["request.user == 'eve'"][..], Ok(true), Ok(true)),
            (&["has(request.resourceAttributes)", "request.resourceAttributes.namespace != 'b'"], Ok(true), Ok(false)),
            (&["request.resourceAttributes.name == ''", "!('system:masters' in request.groups)"], Ok(true), Err(())),
            (&["request.resourceAttributes.name == ''", "request.user != 'eve'"], Ok(false), Ok(false)),
            (&["request.?resourceAttributes.fieldSelector.hasValue()"], Ok(false), Ok(false)),
        ] {
            let compiled = conditions(texts).expect("valid");
            assert_eq!(hold(&compiled, &pods).map_err(|_| ()), of_pods, "{texts:?}");
            assert_eq!(hold(&compiled, &path).map_err(|_| ()), of_path, "{texts:?}");
        }
        assert_eq!(
            hold(&conditions(&["request.resourceAttributes.name == ''"]).expect("valid"), &path),
            Err("cel evaluation error: expression 'request.resourceAttributes.name == ''' resulted in error: no such \
                 key: resourceAttributes"
                .to_owned())
        );
    }

    #[test]
    fn conditions_are_compiled_first() {
        assert_eq!(
            conditions(&["request.users == 'a'", " ", "true", "true", "1"]).expect_err("invalid"),
            [
                "w.matchConditions[0].expression: Invalid value: \"request.users == 'a'\": compilation failed: ERROR: \
                 <input>:1:8: undefined field 'users'\n | request.users == 'a'\n | .......^",
                "w.matchConditions[1].expression: Required value",
                "w.matchConditions[3].expression: Duplicate value: \"true\"",
                "w.matchConditions[4].expression: Invalid value: \"1\": must evaluate to bool",
            ]
        );
    }
}
