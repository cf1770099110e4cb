//! A new pod of a Job, with its index where the Job has indexes.

use controller_runtime::adoption::controller_reference;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};

use super::{
    look::{FAILURES, IGNORED_FAILURES, INDEX, Look, TRACKED, number},
    policies::{self, Verdict},
};
use crate::pods;

const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// The longest beginning of a name that still leaves room for a random end.
const LONGEST_BEGINNING: usize = 58;

pub fn new_pod(look: &Look<'_>, index: Option<i32>) -> Pod {
    let mut pod = pods::from_template(&look.spec.template, look.job, controller_reference(look.job));
    let finalizers = pod.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == TRACKED) {
        finalizers.push(TRACKED.to_owned());
    }
    let Some(index) = index else { return pod };
    let job = look.job.metadata.name.as_deref().unwrap_or_default();
    pod.metadata.generate_name = Some(beginning(job, index));
    pod.metadata.labels.get_or_insert_default().insert(INDEX.to_owned(), index.to_string());
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(INDEX.to_owned(), index.to_string());
    if look.spec.backoff_limit_per_index.is_some() {
        let (failures, ignored) = failures(look, index);
        annotations.insert(FAILURES.to_owned(), failures.to_string());
        if ignored > 0 {
            annotations.insert(IGNORED_FAILURES.to_owned(), ignored.to_string());
        }
    }
    if let Some(spec) = &mut pod.spec {
        spec.hostname = Some(format!("{job}-{index}"));
        spec.init_containers.iter_mut().flatten().chain(&mut spec.containers).for_each(tell_index);
    }
    pod
}

fn beginning(job: &str, index: i32) -> String {
    let end = format!("-{index}-");
    let room = LONGEST_BEGINNING.saturating_sub(end.len());
    format!("{}{end}", job.get(..room).unwrap_or(job))
}

/// How often an index has failed, and how often it was not counted.
fn failures(look: &Look<'_>, index: i32) -> (i32, i32) {
    let Some(last) = look.to_replace.get(&index) else { return (0, 0) };
    let (failures, ignored) = (number(last, FAILURES), number(last, IGNORED_FAILURES));
    match policies::verdict(look.spec, last) {
        Verdict::Ignored => (failures, ignored + 1),
        _ => (failures + 1, ignored),
    }
}

fn tell_index(container: &mut Container) {
    let variables = container.env.get_or_insert_default();
    if variables.iter().any(|variable| variable.name == INDEX_VARIABLE) {
        return;
    }
    let field = ObjectFieldSelector { field_path: format!("metadata.labels['{INDEX}']"), ..Default::default() };
    variables.push(EnvVar {
        name: INDEX_VARIABLE.to_owned(),
        value_from: Some(EnvVarSource { field_ref: Some(field), ..Default::default() }),
        ..Default::default()
    });
}
