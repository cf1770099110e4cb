//! The status of a Job: counts only grow, and what is finished stays finished.

use std::collections::HashSet;

use object_model::field::ErrorKind;
use serde_json::Value;

use crate::validation::{Field, meta, same_at};

/// Does the status have this condition, and is it true?
pub fn is_true(status: &Value, condition: &str) -> bool {
    has(status, condition, "True")
}

fn has(status: &Value, condition: &str, value: &str) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|c| c["type"] == condition && c["status"] == value)
}

fn is_finished(status: &Value) -> bool {
    is_true(status, "Complete") || is_true(status, "Failed")
}

pub fn update(job: &Field, old: &Value) {
    meta::builtin_meta_update(&job.at("metadata"), &old["metadata"]);
    let (spec, status, old_status) = (job.at("spec"), job.at("status"), &old["status"]);
    for name in ["active", "succeeded", "failed", "ready", "terminating"] {
        status.at(name).non_negative();
    }
    uncounted_pods(&status.at("uncountedTerminatedPods"));
    let changes = Changes { new: status.value(), old: old_status };
    conditions(&status, &changes);
    times(&status, &changes);
    finished(&status, &spec, &changes);
    indexes(&status, &spec, &changes);
    rest(&status, &changes);
    progress(&status, &spec, old_status);
}

/// Rules are only applied to what a write changes, so that an older writer's status can still be written.
struct Changes<'a> {
    new: &'a Value,
    old: &'a Value,
}

impl Changes<'_> {
    fn field(&self, name: &str) -> bool {
        !same_at(self.new, self.old, name)
    }

    fn condition(&self, name: &str) -> bool {
        is_true(self.new, name) != is_true(self.old, name)
    }

    fn finished(&self) -> bool {
        is_finished(self.new) != is_finished(self.old)
    }
}

fn no_value(field: &Field, detail: impl Into<String>) {
    field.tell(ErrorKind::Invalid, None, detail.into());
}

fn uncounted_pods(pods: &Field) {
    let mut seen = HashSet::new();
    for list in ["succeeded", "failed"] {
        for uid in pods.at(list).each() {
            if uid.is_empty() {
                uid.with_text().invalid("must not be empty");
            } else if seen.contains(&uid.text()) {
                uid.duplicate();
            } else {
                seen.insert(uid.text());
            }
        }
    }
}

fn conditions(status: &Field, changes: &Changes) {
    let told = status.at("conditions");
    let both = |a: &str, b: &str| is_true(changes.new, a) && is_true(changes.new, b);
    for other in ["Failed", "FailureTarget"] {
        if both("Complete", other) && (changes.condition("Complete") || changes.condition(other)) {
            no_value(&told, format!("cannot set Complete=True and {other}=true conditions"));
        }
    }
}

fn times(status: &Field, changes: &Changes) {
    let (start, end) = (status.at("startTime"), status.at("completionTime"));
    let complete = is_true(changes.new, "Complete");
    if changes.condition("Complete") || changes.field("completionTime") {
        if end.is_set() && !complete {
            end.invalid("cannot set completionTime when there is no Complete=True condition");
        }
        if !end.is_set() && complete {
            end.missing("completionTime is required for Complete jobs");
        }
    }
    // Canonical times sort as text.
    let changed = changes.field("startTime") || changes.field("completionTime");
    if changed && start.is_set() && end.is_set() && end.text() < start.text() {
        end.invalid("must be equal to or after `startTime`");
    }
}

fn finished(status: &Field, spec: &Field, changes: &Changes) {
    let told = status.at("conditions");
    let is = |condition: &str| is_true(changes.new, condition);
    if (changes.condition("Failed") || changes.field("failedIndexes")) && is("Failed") && !is("FailureTarget") {
        no_value(&told, "cannot set Failed=True condition without the FailureTarget=true condition");
    }
    if (changes.condition("Complete") || changes.condition("SuccessCriteriaMet"))
        && is("Complete")
        && !is("SuccessCriteriaMet")
    {
        no_value(&told, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
    }
    if !is_finished(changes.new) {
        return;
    }
    let (active, start, uncounted) =
        (status.at("active"), status.at("startTime"), status.at("uncountedTerminatedPods"));
    if (changes.finished() || changes.field("active")) && active.number() > 0 {
        active.invalid("active>0 is invalid for finished job");
    }
    let never_ran = spec.at("suspend").is_true() && spec.at("completions").int() == Some(0);
    if (changes.finished() || changes.field("startTime")) && !never_ran && !start.is_set() {
        start.missing("startTime is required for finished job");
    }
    let any_uncounted = ["succeeded", "failed"].iter().any(|list| !uncounted.at(list).is_empty());
    if (changes.finished() || changes.field("uncountedTerminatedPods")) && any_uncounted {
        uncounted.invalid("must be empty for finished job");
    }
}

fn indexes(status: &Field, spec: &Field, changes: &Changes) {
    let (completed, failed) = (status.at("completedIndexes"), status.at("failedIndexes"));
    let (completed_changed, failed_changed) = (changes.field("completedIndexes"), changes.field("failedIndexes"));
    let (completions, per_index) = (spec.at("completions"), spec.at("backoffLimitPerIndex"));
    let parse = |field: &Field, name: &str| {
        if let Err(error) = count_indexes(field.text(), completions.number()) {
            field.invalid(format!("error parsing {name}: {error}"));
        }
    };
    if completed_changed && completions.is_set() {
        parse(&completed, "completedIndexes");
    }
    if failed_changed && completions.is_set() && per_index.is_set() && failed.is_set() {
        parse(&failed, "failedIndexes");
    }
    if completed_changed && !completed.is_empty() && !spec.at("completionMode").is("Indexed") {
        completed.invalid("cannot set non-empty completedIndexes when non-indexed completion mode");
    }
    if failed_changed && !per_index.is_set() && failed.is_set() {
        failed.invalid("cannot set non-null failedIndexes when backoffLimitPerIndex is null");
    }
    if (completed_changed || failed_changed)
        && completions.is_set()
        && failed.is_set()
        && let Some(index) = first_overlap(completed.text(), failed.text(), completions.number())
    {
        failed.invalid(format!("failedIndexes and completedIndexes overlap at index: {index}"));
    }
}

fn rest(status: &Field, changes: &Changes) {
    let (terminating, ready, told) = (status.at("terminating"), status.at("ready"), status.at("conditions"));
    if (changes.finished() || changes.field("terminating")) && terminating.number() > 0 && is_finished(changes.new) {
        terminating.invalid("terminating>0 is invalid for finished job");
    }
    if (changes.field("ready") || changes.field("active")) && ready.number() > status.at("active").number() {
        ready.invalid("cannot set more ready pods than active");
    }
    if is_true(changes.new, "SuccessCriteriaMet") {
        for other in ["Failed", "FailureTarget"] {
            if is_true(changes.new, other) {
                no_value(&told, format!("cannot set SuccessCriteriaMet=True and {other}=true conditions"));
            }
        }
    }
}

/// Against the old status: nothing that was decided is taken back.
fn progress(status: &Field, spec: &Field, old: &Value) {
    let told = status.at("conditions");
    let now = status.value();
    let (met, complete) = ("SuccessCriteriaMet", "Complete");
    if !spec.at("successPolicy").value().is_null() && !is_true(now, met) && is_true(now, complete) {
        no_value(&told, "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True");
    }
    for condition in ["Failed", complete, "FailureTarget"] {
        if is_true(old, condition) && !is_true(now, condition) {
            no_value(&told, format!("cannot disable the terminal {condition}=True condition"));
        }
    }
    let number = |name: &str| old[name].as_i64().unwrap_or_default();
    // An indexed Job that shrinks forgets the indexes beyond.
    let elastic = spec.at("completionMode").is("Indexed") && same(spec, "completions", "parallelism");
    for name in ["failed", "succeeded"] {
        if status.at(name).number() < number(name) && (name == "failed" || !elastic) {
            status.at(name).invalid_value(status.at(name).number(), format!("cannot decrease the {name} counter"));
        }
    }
    let (start, end) = (status.at("startTime"), status.at("completionTime"));
    if end.is_set() && !old["completionTime"].is_null() && *end.value() != old["completionTime"] {
        end.invalid("field is immutable");
    }
    let resuming = is_true(old, "Suspended") && has(now, "Suspended", "False");
    let moved = !old["startTime"].is_null() && *start.value() != old["startTime"];
    if moved && !resuming && !spec.at("suspend").is_true() {
        start.invalid("field is immutable for unsuspended job once set");
    }
    if is_true(old, met) && !is_true(now, met) {
        no_value(&told, "cannot disable the SuccessCriteriaMet=True condition");
    }
    if is_true(old, complete) && !is_true(old, met) && is_true(now, met) {
        no_value(&told, "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions");
    }
}

fn same(spec: &Field, a: &str, b: &str) -> bool {
    spec.at(a).value() == spec.at(b).value()
}

/// How many indexes a list such as `1,3-5` names.
pub fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let (mut total, mut last): (i64, Option<i64>) = (0, None);
    for interval in text.split(',').filter(|_| !text.is_empty()) {
        let (low, high) = interval_of(interval, completions)?;
        if let Some(last) = last.filter(|last| *last >= low) {
            return Err(format!("non-increasing order, previous: {last}, current: {low}"));
        }
        total += high - low + 1;
        last = Some(high);
    }
    Ok(total)
}

fn interval_of(text: &str, completions: i64) -> Result<(i64, i64), String> {
    let ends: Vec<&str> = text.split('-').collect();
    let index = |text: &str| match text.parse::<i64>() {
        Err(_) => Err(format!("cannot convert string to integer for index: {text:?}")),
        Ok(index) if index >= completions => Err(format!("too large index: {text:?}")),
        Ok(index) => Ok(index),
    };
    match ends[..] {
        [single] => index(single).map(|index| (index, index)),
        [low, high] => match (index(low)?, index(high)?) {
            (low, high) if low >= high => Err(format!("non-increasing order, previous: {low}, current: {high}")),
            ends => Ok(ends),
        },
        _ => Err(format!(
            "the fragment {text:?} violates the requirement that an index interval can have at most two parts separated \
             by '-'"
        )),
    }
}

fn first_overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let intervals = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|interval| interval_of(interval, completions).ok()).collect()
    };
    let failed = intervals(failed);
    intervals(completed)
        .into_iter()
        .flat_map(|(low, high)| {
            failed.iter().filter(move |(l, h)| low <= *h && *l <= high).map(move |(l, _)| low.max(*l))
        })
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_indexes_and_finds_overlaps() {
        assert_eq!(count_indexes("1,3-5", 10), Ok(4));
        assert_eq!(count_indexes("", 10), Ok(0));
        assert_eq!(count_indexes("3,2", 10), Err("non-increasing order, previous: 3, current: 2".to_owned()));
        assert_eq!(count_indexes("10", 10), Err("too large index: \"10\"".to_owned()));
        assert_eq!(count_indexes("x", 10), Err("cannot convert string to integer for index: \"x\"".to_owned()));
        assert_eq!(first_overlap("0-3,7", "5,6-8", 10), Some(7));
        assert_eq!(first_overlap("0-3", "4", 10), None);
    }
}
