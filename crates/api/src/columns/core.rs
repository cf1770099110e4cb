//! Namespaces, nodes, events, configuration, quotas.

use object_model::meta::Meta;
use object_model::time::Duration;
use object_model::value::Fields;
use serde_json::Value;

use super::cells::{age, at, condition, count, filled_or, flag, human, int, is_true, items, name, since, text, time};
use super::{AGE, Column, Columns, NAME, docs};

/// Of kinds that show nothing but their name and age.
pub static NAME_AND_AGE: Columns = Columns::new(&[NAME, AGE], |object, now| vec![name(object), age(object, now)]);

pub static NAMESPACE: Columns =
    Columns::new(&[NAME, Column::text("Status", "The status of the namespace"), AGE], |object, now| {
        vec![name(object), text(object, "status.phase").into(), age(object, now)]
    });

pub static SECRET: Columns = Columns::new(
    &[NAME, Column::text("Type", docs::SECRET_TYPE), Column::text("Data", docs::SECRET_DATA), AGE],
    |object, now| vec![name(object), text(object, "type").into(), count(object, "data").into(), age(object, now)],
);

pub static CONFIG_MAP: Columns =
    Columns::new(&[NAME, Column::text("Data", docs::CONFIG_MAP_DATA), AGE], |object, now| {
        vec![name(object), (count(object, "data") + count(object, "binaryData")).into(), age(object, now)]
    });

pub static COMPONENT_STATUS: Columns = Columns::new(
    &[
        NAME,
        Column::text("Status", "Status of the component conditions"),
        Column::text("Message", "Message of the component conditions"),
        Column::text("Error", "Error of the component conditions"),
    ],
    |object, _| {
        let (status, message, error) = match object.items("conditions").iter().find(|c| c.text("type") == "Healthy") {
            Some(c) if c.text("status") == "True" => ("Healthy", c.text("message"), c.text("error")),
            Some(c) => ("Unhealthy", c.text("message"), c.text("error")),
            None => ("Unknown", "", ""),
        };
        vec![name(object), status.into(), message.into(), error.into()]
    },
);

pub static RESOURCE_QUOTA: Columns = Columns::new(
    &[
        NAME,
        Column::text("Request", "Request represents a minimum amount of cpu/memory that a container may consume."),
        Column::text(
            "Limit",
            "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the \
            node.",
        ),
        AGE,
    ],
    |object, now| {
        let used = at(object, "status.used");
        let hard = at(object, "status.hard").and_then(Value::as_object).into_iter().flatten();
        let (limits, requests): (Vec<_>, Vec<_>) = hard.partition(|(resource, _)| resource.starts_with("limits."));
        let shown = |amounts: Vec<(&String, &Value)>| -> Value {
            let used = |resource: &str| used.and_then(|used| used.get(resource)?.as_str()).unwrap_or("0");
            let amount = |(resource, hard): &(&String, &Value)| {
                format!("{resource}: {}/{}", used(resource), hard.as_str().unwrap_or("0"))
            };
            amounts.iter().map(amount).collect::<Vec<_>>().join(", ").into()
        };
        vec![name(object), shown(requests), shown(limits), age(object, now)]
    },
);

pub static NODE: Columns = Columns::new(
    &[
        NAME,
        Column::text("Status", "The status of the node"),
        Column::text("Roles", "The roles of the node"),
        AGE,
        Column::text("Version", docs::NODE_VERSION),
        Column::text("Internal-IP", docs::NODE_ADDRESSES).wide(),
        Column::text("External-IP", docs::NODE_ADDRESSES).wide(),
        Column::text("OS-Image", docs::NODE_OS_IMAGE).wide(),
        Column::text("Kernel-Version", docs::NODE_KERNEL).wide(),
        Column::text("Container-Runtime", docs::NODE_RUNTIME).wide(),
    ],
    |node, now| {
        let info = |field| filled_or(text(node, field), "<unknown>");
        let mut kernel = info("status.nodeInfo.kernelVersion").to_owned();
        let architecture = text(node, "status.nodeInfo.architecture");
        if !architecture.is_empty() {
            kernel.push_str(&format!(" ({architecture})"));
        }
        vec![
            name(node),
            node_status(node).into(),
            node_roles(node).into(),
            age(node, now),
            text(node, "status.nodeInfo.kubeletVersion").into(),
            node_address(node, "InternalIP").into(),
            node_address(node, "ExternalIP").into(),
            info("status.nodeInfo.osImage").into(),
            kernel.into(),
            info("status.nodeInfo.containerRuntimeVersion").into(),
        ]
    },
);

fn node_status(node: &Value) -> String {
    let ready = match condition(node, "Ready") {
        Some(_) if is_true(node, "Ready") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if flag(node, "spec.unschedulable") { format!("{ready},SchedulingDisabled") } else { ready.to_owned() }
}

/// A role is the end of a label's name, or the value of the older label.
fn node_roles(node: &Value) -> String {
    let role = |(key, value)| match str::strip_prefix(key, "node-role.kubernetes.io/") {
        Some(role) => Some(role),
        None if key == "kubernetes.io/role" => Some(value),
        None => None,
    };
    let mut roles: Vec<&str> =
        Meta::of(node).labels().iter().filter_map(role).filter(|role| !role.is_empty()).collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }
}

fn node_address<'a>(node: &'a Value, of_type: &str) -> &'a str {
    let found = items(node, "status.addresses").iter().find(|address| address.text("type") == of_type);
    found.map_or("<none>", |address| address.text("address"))
}

pub static EVENT: Columns = Columns::new(
    &[
        Column::text("Last Seen", docs::EVENT_LAST_SEEN),
        Column::text("Type", docs::EVENT_TYPE),
        Column::text("Reason", docs::EVENT_REASON),
        Column::text("Object", docs::EVENT_OBJECT),
        Column::text("Subobject", docs::EVENT_SUBOBJECT).wide(),
        Column::text("Source", docs::EVENT_SOURCE).wide(),
        Column::text("Message", docs::EVENT_MESSAGE),
        Column::text("First Seen", docs::EVENT_FIRST_SEEN).wide(),
        Column::text("Count", docs::EVENT_COUNT).wide(),
        NAME.wide(),
    ],
    |event, now| {
        let first = if time(event, "firstTimestamp").is_some() { "firstTimestamp" } else { "eventTime" };
        let last = if time(event, "lastTimestamp").is_some() { "lastTimestamp" } else { first };
        // An event of the newer API that happened once has no count.
        let (last, count) = match at(event, "series") {
            Some(_) => ("series.lastObservedTime", int(event, "series.count")),
            None => (last, int(event, "count").max(1)),
        };
        let kind = text(event, "involvedObject.kind").to_lowercase();
        let object = match text(event, "involvedObject.name") {
            "" => kind,
            name => format!("{kind}/{name}"),
        };
        let component = filled_or(text(event, "source.component"), text(event, "reportingComponent"));
        let source = match filled_or(text(event, "source.host"), text(event, "reportingInstance")) {
            "" => component.to_owned(),
            host => format!("{component}, {host}"),
        };
        vec![
            since(event, last, now).into(),
            text(event, "type").into(),
            text(event, "reason").into(),
            object.into(),
            text(event, "involvedObject.fieldPath").into(),
            source.into(),
            text(event, "message").trim().into(),
            since(event, first, now).into(),
            count.into(),
            name(event),
        ]
    },
);

pub static LEASE: Columns = Columns::new(&[NAME, Column::text("Holder", docs::LEASE_HOLDER), AGE], |object, now| {
    vec![name(object), text(object, "spec.holderIdentity").into(), age(object, now)]
});

pub static RUNTIME_CLASS: Columns = Columns::new(&[NAME, Column::text("Handler", ""), AGE], |object, now| {
    vec![name(object), text(object, "handler").into(), age(object, now)]
});

pub static PRIORITY_CLASS: Columns = Columns::new(
    &[
        NAME,
        Column::integer("Value", docs::PRIORITY_VALUE),
        Column::boolean("Global-Default", docs::PRIORITY_DEFAULT),
        AGE,
        Column::text("PreemptionPolicy", docs::PRIORITY_PREEMPTION),
    ],
    |object, now| {
        vec![
            name(object),
            int(object, "value").into(),
            flag(object, "globalDefault").into(),
            age(object, now),
            text(object, "preemptionPolicy").into(),
        ]
    },
);

pub static SIGNING_REQUEST: Columns = Columns::new(
    &[
        NAME,
        AGE,
        Column::text("SignerName", docs::SIGNING_SIGNER),
        Column::text("Requestor", docs::SIGNING_REQUEST),
        Column::text("RequestedDuration", docs::SIGNING_DURATION),
        Column::text("Condition", docs::SIGNING_CONDITIONS),
    ],
    |object, now| {
        let duration = at(object, "spec.expirationSeconds").and_then(Value::as_i64);
        let mut state = match () {
            () if condition(object, "Denied").is_some() => "Denied",
            () if condition(object, "Approved").is_some() => "Approved",
            () => "Pending",
        }
        .to_owned();
        if condition(object, "Failed").is_some() {
            state.push_str(",Failed");
        }
        if !text(object, "status.certificate").is_empty() {
            state.push_str(",Issued");
        }
        vec![
            name(object),
            age(object, now),
            filled_or(text(object, "spec.signerName"), "<none>").into(),
            text(object, "spec.username").into(),
            duration.map_or_else(|| "<none>".to_owned(), |seconds| human(Duration::from_seconds(seconds))).into(),
            state.into(),
        ]
    },
);
