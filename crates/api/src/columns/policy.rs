//! Who may do what: roles, admission, priority of requests, other API servers.

use object_model::meta::TextMap;
use object_model::time::Time;
use object_model::value::Fields;
use serde_json::Value;

use super::cells::{age, at, condition, count, int, name, text, text_or};
use super::{AGE, Column, Columns, NAME, docs};

pub static ROLE_BINDING: Columns = Columns::new(
    &[
        NAME,
        Column::text("Role", docs::ROLE_REF),
        AGE,
        Column::text("Users", "Users in the roleBinding").wide(),
        Column::text("Groups", "Groups in the roleBinding").wide(),
        Column::text("ServiceAccounts", "ServiceAccounts in the roleBinding").wide(),
    ],
    binding,
);

pub static CLUSTER_ROLE_BINDING: Columns = Columns::new(
    &[
        NAME,
        Column::text("Role", docs::CLUSTER_ROLE_REF),
        AGE,
        Column::text("Users", "Users in the clusterRoleBinding").wide(),
        Column::text("Groups", "Groups in the clusterRoleBinding").wide(),
        Column::text("ServiceAccounts", "ServiceAccounts in the clusterRoleBinding").wide(),
    ],
    binding,
);

fn binding(binding: &Value, now: Time) -> Vec<Value> {
    let subjects = |kind: &str, shown: fn(&Value) -> String| -> Value {
        let found = binding.items("subjects").iter().filter(|subject| subject.text("kind") == kind);
        found.map(shown).collect::<Vec<_>>().join(", ").into()
    };
    let plain = |subject: &Value| subject.text("name").to_owned();
    vec![
        name(binding),
        format!("{}/{}", text(binding, "roleRef.kind"), text(binding, "roleRef.name")).into(),
        age(binding, now),
        subjects("User", plain),
        subjects("Group", plain),
        subjects("ServiceAccount", |subject| format!("{}/{}", subject.text("namespace"), subject.text("name"))),
    ]
}

/// Of both kinds of webhook configuration.
pub static WEBHOOKS: Columns = Columns::new(
    &[
        NAME,
        Column::integer("Webhooks", "Webhooks indicates the number of webhooks registered in this configuration"),
        AGE,
    ],
    |object, now| vec![name(object), count(object, "webhooks").into(), age(object, now)],
);

const PARAM_KIND: Column =
    Column::text("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy");

pub static VALIDATING_POLICY: Columns = Columns::new(
    &[
        NAME,
        Column::integer(
            "Validations",
            "Validations indicates the number of validation rules defined in this configuration",
        ),
        PARAM_KIND,
        AGE,
    ],
    |object, now| vec![name(object), count(object, "spec.validations").into(), param_kind(object), age(object, now)],
);

pub static MUTATING_POLICY: Columns = Columns::new(
    &[
        NAME,
        Column::integer("Mutations", "Mutation indicates the number of mutations rules defined in this configuration"),
        PARAM_KIND,
        AGE,
    ],
    |object, now| vec![name(object), count(object, "spec.mutations").into(), param_kind(object), age(object, now)],
);

fn param_kind(policy: &Value) -> Value {
    match at(policy, "spec.paramKind") {
        Some(kind) => format!("{}/{}", kind.text("apiVersion"), kind.text("kind")).into(),
        None => "<unset>".into(),
    }
}

/// Of the bindings of both kinds of admission policy.
pub static POLICY_BINDING: Columns = Columns::new(
    &[
        NAME,
        Column::text("PolicyName", "PolicyName indicates the policy definition which the policy binding binded to"),
        Column::text("ParamRef", "ParamRef indicates the param resource which sets the configuration param"),
        AGE,
    ],
    |object, now| {
        let params = at(object, "spec.paramRef").unwrap_or(&Value::Null);
        let params = match (params.text("name"), params.text("namespace"), at(params, "selector")) {
            ("", _, None) => "<unset>".to_owned(),
            ("", _, Some(selector)) => selector_struct(selector),
            // Whether the parameter has a namespace cannot be told from here.
            (name, "", _) => format!("*/{name}"),
            (name, namespace, _) => format!("{namespace}/{name}"),
        };
        vec![name(object), text(object, "spec.policyName").into(), params.into(), age(object, now)]
    },
);

/// A selector as Go prints the struct.
fn selector_struct(selector: &Value) -> String {
    let labels = TextMap::of(selector.field("matchLabels"));
    let labels: String = labels.iter().map(|(key, value)| format!("{key}: {value},")).collect();
    let expression = |e: &Value| {
        let values: Vec<&str> = e.items("values").iter().filter_map(Value::as_str).collect();
        let (key, operator) = (e.text("key"), e.text("operator"));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{}],}},", values.join(" "))
    };
    let expressions: String = selector.items("matchExpressions").iter().map(expression).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
        MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

pub static FLOW_SCHEMA: Columns = Columns::new(
    &[
        NAME,
        Column::text("PriorityLevel", docs::FLOW_LEVEL),
        Column::text("MatchingPrecedence", docs::FLOW_PRECEDENCE),
        Column::text("DistinguisherMethod", docs::FLOW_DISTINGUISHER),
        AGE,
        Column::text("MissingPL", "references a broken or non-existent PriorityLevelConfiguration"),
    ],
    |object, now| {
        vec![
            name(object),
            text(object, "spec.priorityLevelConfiguration.name").into(),
            int(object, "spec.matchingPrecedence").into(),
            text_or(object, "spec.distinguisherMethod.type", "<none>").into(),
            age(object, now),
            condition(object, "Dangling").map_or("?", |condition| condition.text("status")).into(),
        ]
    },
);

pub static PRIORITY_LEVEL: Columns = Columns::new(
    &[
        NAME,
        Column::text("Type", docs::LEVEL_TYPE),
        Column::text("NominalConcurrencyShares", docs::LEVEL_SHARES),
        Column::text("Queues", docs::LEVEL_QUEUES),
        Column::text("HandSize", docs::LEVEL_HAND_SIZE),
        Column::text("QueueLengthLimit", docs::LEVEL_QUEUE_LENGTH),
        AGE,
    ],
    |object, now| {
        let limited = at(object, "spec.limited");
        let queuing = limited.and_then(|limited| at(limited, "limitResponse.queuing"));
        let number = |of: Option<&Value>, field| of.map_or_else(|| "<none>".into(), |of| Value::from(int(of, field)));
        vec![
            name(object),
            text(object, "spec.type").into(),
            number(limited, "nominalConcurrencyShares"),
            number(queuing, "queues"),
            number(queuing, "handSize"),
            number(queuing, "queueLengthLimit"),
            age(object, now),
        ]
    },
);

pub static API_SERVICE: Columns = Columns::new(
    &[
        NAME,
        Column::text("Service", "The reference to the service that hosts this API endpoint."),
        Column::text("Available", "Whether this service is available."),
        AGE,
    ],
    |object, now| {
        let service = match at(object, "spec.service") {
            Some(service) => format!("{}/{}", service.text("namespace"), service.text("name")),
            None => "Local".to_owned(),
        };
        let available = condition(object, "Available").map(|c| (c.text("status"), c.text("reason")));
        let available = match available {
            None => "Unknown".to_owned(),
            Some((status, reason)) if status == "True" || reason.is_empty() => status.to_owned(),
            Some((status, reason)) => format!("{status} ({reason})"),
        };
        vec![name(object), service.into(), available.into(), age(object, now)]
    },
);
