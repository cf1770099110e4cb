//! What runs pods: controllers, jobs, autoscalers.

use object_model::int_or_string::IntOrString;
use object_model::meta::Meta;
use object_model::selector::LabelSelector;
use object_model::value::Fields;
use serde_json::Value;

use super::cells::{
    age, at, containers, count, first_of, flag, human, int, is_deleting, is_true, items, labels, name, selector, since,
    text, text_or, time,
};
use super::{AGE, CONTAINERS, Column, Columns, IMAGES, NAME, docs};

const READY: Column = Column::text("Ready", "Number of the pod with ready state");
const TEMPLATE: &str = "spec.template.spec.containers";

pub static POD_TEMPLATE: Columns = Columns::new(
    &[NAME, CONTAINERS, IMAGES, Column::text("Pod Labels", "The labels for the pod template.")],
    |object, _| {
        let [names, images] = containers(object, "template.spec.containers");
        vec![name(object), names, images, labels(object, "template.metadata.labels").into()]
    },
);

pub static REPLICATION_CONTROLLER: Columns = Columns::new(
    &[
        NAME,
        Column::integer("Desired", docs::CONTROLLER_DESIRED),
        Column::integer("Current", docs::CONTROLLER_CURRENT),
        Column::integer("Ready", docs::CONTROLLER_READY),
        AGE,
        CONTAINERS.wide(),
        IMAGES.wide(),
        Column::text("Selector", docs::CONTROLLER_SELECTOR).wide(),
    ],
    |object, now| {
        let [desired, current, ready] = replicas(object);
        with_pods(
            vec![name(object), desired, current, ready, age(object, now)],
            object,
            labels(object, "spec.selector"),
        )
    },
);

pub static REPLICA_SET: Columns = Columns::new(
    &[
        NAME,
        Column::integer("Desired", docs::REPLICA_SET_DESIRED),
        Column::integer("Current", docs::REPLICA_SET_CURRENT),
        Column::integer("Ready", docs::REPLICA_SET_READY),
        AGE,
        CONTAINERS.wide(),
        IMAGES.wide(),
        Column::text("Selector", docs::REPLICA_SET_SELECTOR).wide(),
    ],
    |object, now| {
        let [desired, current, ready] = replicas(object);
        with_pods(
            vec![name(object), desired, current, ready, age(object, now)],
            object,
            selector(object, "spec.selector"),
        )
    },
);

pub static DEPLOYMENT: Columns = Columns::new(
    &[
        NAME,
        READY,
        Column::text("Up-to-date", docs::DEPLOYMENT_UPDATED),
        Column::text("Available", docs::DEPLOYMENT_AVAILABLE),
        AGE,
        CONTAINERS.wide(),
        IMAGES.wide(),
        Column::text("Selector", docs::DEPLOYMENT_SELECTOR).wide(),
    ],
    |object, now| {
        let selector = match at(object, "spec.selector").map(LabelSelector::from_object) {
            None => String::new(),
            Some(Ok(selector)) => selector.to_string(),
            Some(Err(_)) => "<invalid>".to_owned(),
        };
        let row = vec![
            name(object),
            ready(object),
            int(object, "status.updatedReplicas").into(),
            int(object, "status.availableReplicas").into(),
            age(object, now),
        ];
        with_pods(row, object, selector)
    },
);

pub static STATEFUL_SET: Columns =
    Columns::new(&[NAME, READY, AGE, CONTAINERS.wide(), IMAGES.wide()], |object, now| {
        let [names, images] = containers(object, TEMPLATE);
        vec![name(object), ready(object), age(object, now), names, images]
    });

pub static DAEMON_SET: Columns = Columns::new(
    &[
        NAME,
        Column::integer("Desired", docs::DAEMON_SET_DESIRED),
        Column::integer("Current", docs::DAEMON_SET_CURRENT),
        Column::integer("Ready", docs::DAEMON_SET_READY),
        Column::integer("Up-to-date", docs::DAEMON_SET_UPDATED),
        Column::integer("Available", docs::DAEMON_SET_AVAILABLE),
        Column::text("Node Selector", docs::POD_NODE_SELECTOR),
        AGE,
        CONTAINERS.wide(),
        IMAGES.wide(),
        Column::text("Selector", docs::DAEMON_SET_SELECTOR).wide(),
    ],
    |object, now| {
        let row = vec![
            name(object),
            int(object, "status.desiredNumberScheduled").into(),
            int(object, "status.currentNumberScheduled").into(),
            int(object, "status.numberReady").into(),
            int(object, "status.updatedNumberScheduled").into(),
            int(object, "status.numberAvailable").into(),
            labels(object, "spec.template.spec.nodeSelector").into(),
            age(object, now),
        ];
        with_pods(row, object, selector(object, "spec.selector"))
    },
);

pub static CONTROLLER_REVISION: Columns = Columns::new(
    &[NAME, Column::text("Controller", "Controller of the object"), Column::text("Revision", docs::REVISION), AGE],
    |object, now| {
        let owner = Meta::of(object).controller().map_or_else(
            || "<none>".to_owned(),
            |owner| match owner.api_version.split_once('/') {
                Some((group, _)) => format!("{}.{group}/{}", owner.kind.to_lowercase(), owner.name),
                None => format!("{}/{}", owner.kind.to_lowercase(), owner.name),
            },
        );
        vec![name(object), owner.into(), int(object, "revision").into(), age(object, now)]
    },
);

pub static JOB: Columns = Columns::new(
    &[
        NAME,
        Column::text("Status", "Status of the job."),
        Column::text("Completions", docs::JOB_COMPLETIONS),
        Column::text("Duration", "Time required to complete the job."),
        AGE,
        CONTAINERS.wide(),
        IMAGES.wide(),
        Column::text("Selector", docs::JOB_SELECTOR).wide(),
    ],
    |object, now| {
        let succeeded = int(object, "status.succeeded");
        let completions = match (at(object, "spec.completions"), int(object, "spec.parallelism")) {
            (Some(completions), _) => format!("{succeeded}/{completions}"),
            (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
            _ => format!("{succeeded}/1"),
        };
        let duration = time(object, "status.startTime")
            .map_or_else(String::new, |start| human(time(object, "status.completionTime").unwrap_or(now).since(start)));
        let row = vec![name(object), job_status(object).into(), completions.into(), duration.into(), age(object, now)];
        with_pods(row, object, selector(object, "spec.selector"))
    },
);

fn job_status(job: &Value) -> &'static str {
    match () {
        () if is_true(job, "Complete") => "Complete",
        () if is_true(job, "Failed") => "Failed",
        () if is_deleting(job) => "Terminating",
        () if is_true(job, "Suspended") => "Suspended",
        () if is_true(job, "FailureTarget") => "FailureTarget",
        () if is_true(job, "SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

pub static CRON_JOB: Columns = Columns::new(
    &[
        NAME,
        Column::text("Schedule", docs::CRON_SCHEDULE),
        Column::text("Timezone", docs::CRON_TIME_ZONE),
        Column::boolean("Suspend", docs::CRON_SUSPEND),
        Column::integer("Active", docs::CRON_ACTIVE),
        Column::text("Last Schedule", docs::CRON_LAST_SCHEDULE),
        AGE,
        CONTAINERS.wide(),
        IMAGES.wide(),
        Column::text("Selector", docs::JOB_SELECTOR).wide(),
    ],
    |object, now| {
        let [names, images] = containers(object, "spec.jobTemplate.spec.template.spec.containers");
        let suspend = match (at(object, "spec.suspend"), flag(object, "spec.suspend")) {
            (None, _) => "<unset>",
            (_, true) => "True",
            (_, false) => "False",
        };
        const LAST: &str = "status.lastScheduleTime";
        let last = if at(object, LAST).is_some() { since(object, LAST, now) } else { "<none>".to_owned() };
        vec![
            name(object),
            text(object, "spec.schedule").into(),
            text_or(object, "spec.timeZone", "<none>").into(),
            suspend.into(),
            count(object, "status.active").into(),
            last.into(),
            age(object, now),
            names,
            images,
            selector(object, "spec.jobTemplate.spec.selector").into(),
        ]
    },
);

pub static AUTOSCALER: Columns = Columns::new(
    &[
        NAME,
        Column::text("Reference", docs::AUTOSCALER_REFERENCE),
        Column::text("Targets", docs::AUTOSCALER_METRICS),
        Column::text("MinPods", docs::AUTOSCALER_MIN),
        Column::text("MaxPods", docs::AUTOSCALER_MAX),
        Column::text("Replicas", docs::AUTOSCALER_REPLICAS),
        AGE,
    ],
    |object, now| {
        let target = |field| text(object, field);
        let min = at(object, "spec.minReplicas").map_or_else(|| "<unset>".to_owned(), Value::to_string);
        vec![
            name(object),
            format!("{}/{}", target("spec.scaleTargetRef.kind"), target("spec.scaleTargetRef.name")).into(),
            metrics(object).into(),
            min.into(),
            int(object, "spec.maxReplicas").into(),
            int(object, "status.currentReplicas").into(),
            age(object, now),
        ]
    },
);

/// Where each metric is and where it should be.
fn metrics(autoscaler: &Value) -> String {
    let current = items(autoscaler, "status.currentMetrics");
    let all: Vec<String> = items(autoscaler, "spec.metrics")
        .iter()
        .enumerate()
        .map(|(index, spec)| metric(spec, current.get(index).unwrap_or(&Value::Null)))
        .collect();
    if all.is_empty() { "<none>".to_owned() } else { first_of(&all, 2, ", ") }
}

fn metric(spec: &Value, status: &Value) -> String {
    const UNKNOWN: &str = "<unknown>";
    let source = match spec.text("type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let (spec, status) = (at(spec, source).unwrap_or(&Value::Null), at(status, source));
    // A status that is there without the amount shows Go's word for nothing.
    let current = |field| status.map_or(UNKNOWN, |status| text_or(status, field, "<nil>"));
    let per_pod = at(spec, "target.averageValue").and_then(Value::as_str);
    match (source, per_pod) {
        ("pods", per_pod) => format!("{}/{}", current("current.averageValue"), per_pod.unwrap_or("<nil>")),
        ("external" | "object", Some(target)) => {
            let current = status.map_or(UNKNOWN, |status| text_or(status, "current.averageValue", UNKNOWN));
            format!("{current}/{target} (avg)")
        }
        ("external" | "object", None) => {
            format!("{}/{}", current("current.value"), text_or(spec, "target.value", "<nil>"))
        }
        (_, Some(target)) => format!("{}: {}/{target}", spec.text("name"), current("current.averageValue")),
        (_, None) => {
            let percent = |amount: Option<&Value>, absent: &str| amount.map_or(absent.to_owned(), |n| format!("{n}%"));
            let current = percent(status.and_then(|s| at(s, "current.averageUtilization")), UNKNOWN);
            let target = percent(at(spec, "target.averageUtilization"), "<auto>");
            format!("{}: {current}/{target}", spec.text("name"))
        }
    }
}

pub static SCALE: Columns = Columns::new(
    &[
        Column::text("Name", docs::NAME),
        Column::integer("Desired", docs::SCALE_DESIRED),
        Column::integer("Available", docs::SCALE_AVAILABLE),
        AGE,
    ],
    |object, now| {
        let [desired, current, _] = replicas(object);
        vec![name(object), desired, current, age(object, now)]
    },
);

pub static DISRUPTION_BUDGET: Columns = Columns::new(
    &[
        NAME,
        Column::text("Min Available", "The minimum number of pods that must be available."),
        Column::text("Max Unavailable", "The maximum number of pods that may be unavailable."),
        Column::integer("Allowed Disruptions", "Calculated number of pods that may be disrupted at this time."),
        AGE,
    ],
    |object, now| {
        let amount = |field| {
            let amount = at(object, field).and_then(IntOrString::of);
            amount.map_or_else(|| "N/A".to_owned(), |amount| amount.to_string())
        };
        vec![
            name(object),
            amount("spec.minAvailable").into(),
            amount("spec.maxUnavailable").into(),
            int(object, "status.disruptionsAllowed").into(),
            age(object, now),
        ]
    },
);

/// A row that goes on, in wide output, with the containers of the pod template and the selector of its pods.
fn with_pods(mut row: Vec<Value>, object: &Value, selector: String) -> Vec<Value> {
    row.extend(containers(object, TEMPLATE));
    row.push(selector.into());
    row
}

/// Wanted, there, ready.
fn replicas(object: &Value) -> [Value; 3] {
    ["spec.replicas", "status.replicas", "status.readyReplicas"].map(|field| int(object, field).into())
}

/// Ready of wanted.
fn ready(object: &Value) -> Value {
    let [wanted, _, ready] = replicas(object);
    format!("{ready}/{wanted}").into()
}
