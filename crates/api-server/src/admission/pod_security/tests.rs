//! Every rule, and Kubernetes' own pods that a level must pass and must refuse.

use object_model::meta::Meta;
use serde_json::{Value, json};

use super::{
    checks::{Pod, details, reasons, violations},
    is_significant,
    policy::{Level, Policy, Standard, Version},
};

const BASELINE: Standard = Standard { level: Level::Baseline, version: Version::Latest };
const RESTRICTED: Standard = Standard { level: Level::Restricted, version: Version::Latest };

fn at(level: Level, minor: u32) -> Standard {
    Standard { level, version: Version::Minor(minor) }
}

fn wrong(standard: Standard, pod: &Value) -> String {
    details(&violations(standard, &Pod::of(pod)))
}

/// A pod that keeps to everything.
fn model() -> Value {
    json!({
        "metadata": {"name": "p"},
        "spec": {
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "a", "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
            }}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    })
}

fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = model();
    change(&mut pod);
    pod
}

#[test]
fn a_plain_pod_is_not_restricted_enough() {
    let pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
    assert_eq!(wrong(BASELINE, &pod), "");
    assert_eq!(
        wrong(RESTRICTED, &pod),
        "allowPrivilegeEscalation != false (containers \"a\", \"b\" must set \
         securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (containers \"a\", \"b\" must set \
         securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or containers \"a\", \"b\" must set \
         securityContext.runAsNonRoot=true), seccompProfile (pod or containers \"a\", \"b\" must set \
         securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")"
    );
    assert_eq!(wrong(RESTRICTED, &model()), "");
    assert_eq!(wrong(Standard::default(), &with(|pod| pod["spec"]["hostPID"] = true.into())), "");
}

#[test]
fn what_the_baseline_forbids() {
    let container = |path: &str, value: Value| {
        with(|pod| {
            let context = &mut pod["spec"]["containers"][0]["securityContext"];
            *path.split('.').fold(context, |at, name| &mut at[name]) = value;
        })
    };
    let of_pod = |path: &str, value: Value| {
        with(|pod| *path.split('.').fold(&mut pod["spec"], |at, name| &mut at[name]) = value)
    };
    let cases = [
        (of_pod("hostNetwork", json!(true)), "host namespaces (hostNetwork=true)"),
        (of_pod("volumes", json!([{"name": "v", "hostPath": {}}])), "hostPath volumes (volume \"v\")"),
        (
            container("privileged", json!(true)),
            "privileged (container \"a\" must not set securityContext.privileged=true)",
        ),
        (
            container("capabilities.add", json!(["NET_RAW", "CHOWN"])),
            "non-default capabilities (container \"a\" must not include \"NET_RAW\" in securityContext.capabilities.add)",
        ),
        (
            container("procMount", json!("Unmasked")),
            "procMount (container \"a\" must not set securityContext.procMount to \"Unmasked\")",
        ),
        (
            container("seLinuxOptions", json!({"type": "foo", "user": "u", "role": "r"})),
            "seLinuxOptions (container \"a\" set forbidden securityContext.seLinuxOptions: type \"foo\"; user may not be set; \
             role may not be set)",
        ),
        (
            container("seccompProfile.type", json!("Unconfined")),
            "seccompProfile (container \"a\" must not set securityContext.seccompProfile.type to \"Unconfined\")",
        ),
        (
            of_pod("securityContext.appArmorProfile", json!({"type": "Unconfined"})),
            "forbidden AppArmor profile (pod must not set AppArmor profile type to \"Unconfined\")",
        ),
        (
            of_pod("securityContext.sysctls", json!([{"name": "a.b"}, {"name": "net.ipv4.tcp_rmem"}])),
            "forbidden sysctls (a.b)",
        ),
        (
            of_pod("securityContext.windowsOptions", json!({"hostProcess": true})),
            "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
        ),
        (
            with(|pod| pod["spec"]["containers"][0]["ports"] = json!([{"hostPort": 80}, {"hostPort": 8080}])),
            "hostPort (container \"a\" uses hostPorts 80, 8080)",
        ),
        (
            with(|pod| pod["spec"]["containers"][0]["livenessProbe"] = json!({"httpGet": {"host": "h"}})),
            "probe or lifecycle host (container \"a\" uses probe or lifecycle host \"h\")",
        ),
        (
            with(|pod| {
                let key = "container.apparmor.security.beta.kubernetes.io/a";
                pod["metadata"]["annotations"] = json!({key: "unconfined"});
            }),
            "forbidden AppArmor profile (annotation must not set AppArmor profile type to \
             \"container.apparmor.security.beta.kubernetes.io/a=\"unconfined\"\")",
        ),
    ];
    for (pod, expected) in cases {
        assert_eq!(wrong(BASELINE, &pod), expected);
    }
}

#[test]
fn what_the_restricted_level_forbids() {
    let volumes = json!([{"name": "v", "hostPath": {}}, {"name": "w", "nfs": {}}]);
    let pod = with(|pod| pod["spec"]["volumes"] = volumes);
    let expected = "restricted volume types (volumes \"v\", \"w\" use restricted volume types \"hostPath\", \"nfs\")";
    assert_eq!(wrong(RESTRICTED, &pod), expected);
    let root = with(|pod| pod["spec"]["securityContext"]["runAsUser"] = 0.into());
    assert_eq!(wrong(RESTRICTED, &root), "runAsUser=0 (pod must not set runAsUser=0)");
    let asks = with(|pod| {
        pod["spec"]["containers"][0]["securityContext"]["runAsNonRoot"] = false.into();
        pod["spec"]["containers"][0]["securityContext"]["capabilities"]["add"] = json!(["CHOWN", "NET_BIND_SERVICE"]);
    });
    assert_eq!(reasons(&violations(RESTRICTED, &Pod::of(&asks))), "unrestricted capabilities, runAsNonRoot != true");
}

#[test]
fn versions_differ() {
    let none = json!({"spec": {"containers": [{"name": "a"}]}});
    assert_eq!(wrong(at(Level::Restricted, 7), &none), wrong(at(Level::Restricted, 0), &none));
    assert!(!wrong(at(Level::Restricted, 7), &none).contains("allowPrivilegeEscalation"));
    assert!(!wrong(at(Level::Restricted, 21), &none).contains("capabilities"));
    assert_eq!(wrong(at(Level::Restricted, 99), &none), wrong(RESTRICTED, &none));
    let windows = with(|pod| {
        pod["spec"]["os"] = json!({"name": "windows"});
        pod["spec"]["containers"][0]["securityContext"] = json!({});
        pod["spec"]["securityContext"] = json!({"runAsNonRoot": true});
    });
    assert_eq!(wrong(at(Level::Restricted, 25), &windows), "");
    assert!(wrong(at(Level::Restricted, 24), &windows).contains("seccompProfile"));
    let sysctl = with(|pod| pod["spec"]["securityContext"]["sysctls"] = json!([{"name": "net.ipv4.tcp_fin_timeout"}]));
    assert_eq!(wrong(at(Level::Baseline, 28), &sysctl), "forbidden sysctls (net.ipv4.tcp_fin_timeout)");
    assert_eq!(wrong(at(Level::Baseline, 29), &sysctl), "");
    let key = "seccomp.security.alpha.kubernetes.io/pod";
    let annotated = with(|pod| pod["metadata"]["annotations"] = json!({key: "unconfined"}));
    assert_eq!(
        wrong(at(Level::Baseline, 18), &annotated),
        format!("seccompProfile (forbidden annotation {key}=\"unconfined\")")
    );
    assert_eq!(wrong(at(Level::Baseline, 19), &annotated), "");
}

#[test]
fn root_in_its_own_user_namespace_is_nobody() {
    let pod = with(|pod| {
        pod["spec"]["hostUsers"] = false.into();
        pod["spec"]["securityContext"]["runAsUser"] = 0.into();
        pod["spec"]["securityContext"]["runAsNonRoot"] = false.into();
        pod["spec"]["containers"][0]["securityContext"]["procMount"] = "Unmasked".into();
    });
    assert_eq!(wrong(BASELINE, &pod), "");
    assert_eq!(reasons(&violations(RESTRICTED, &Pod::of(&pod))), "procMount");
    assert_eq!(
        reasons(&violations(at(Level::Restricted, 34), &Pod::of(&pod))),
        "procMount, runAsNonRoot != true, runAsUser=0"
    );
}

#[test]
fn labels_choose_the_policy() {
    let policy = |labels: Value| {
        let namespace = json!({"metadata": {"labels": labels}});
        let (policy, errors) = Policy::of(Meta::of(&namespace).labels(), &Policy::default());
        (policy, errors.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let (plain, errors) = policy(json!({"pod-security.kubernetes.io/enforce": "restricted",
        "pod-security.kubernetes.io/enforce-version": "v1.20"}));
    assert!(errors.is_empty());
    assert_eq!(plain.enforce.to_string(), "restricted:v1.20");
    assert_eq!(plain.warn, plain.enforce, "who enforces is warned as well");
    assert_eq!(plain.audit, Standard::default());
    let (wrong, errors) = policy(json!({"pod-security.kubernetes.io/enforce": "high",
        "pod-security.kubernetes.io/warn": "low", "pod-security.kubernetes.io/audit-version": "v2"}));
    assert_eq!((wrong.enforce.level, wrong.warn.level), (Level::Restricted, Level::Privileged));
    assert_eq!(
        errors,
        [
            "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"high\": must be one of privileged, \
             baseline, restricted",
            "metadata.labels[pod-security.kubernetes.io/audit-version]: Invalid value: \"v2\": must be \"latest\" or \"v1.x\"",
            "metadata.labels[pod-security.kubernetes.io/warn]: Invalid value: \"low\": must be one of privileged, baseline, \
             restricted",
        ]
    );
}

#[test]
fn only_a_new_image_is_judged_again() {
    let pod = json!({"spec": {"containers": [{"name": "a", "image": "i:1"}]}});
    let mut labelled = pod.clone();
    labelled["metadata"] = json!({"labels": {"a": "b"}});
    assert!(!is_significant(&labelled, &pod));
    let mut newer = pod.clone();
    newer["spec"]["containers"][0]["image"] = "i:2".into();
    assert!(is_significant(&newer, &pod));
    let mut debugged = pod.clone();
    debugged["spec"]["ephemeralContainers"] = json!([{"name": "d", "image": "sh"}]);
    assert!(is_significant(&debugged, &pod));
    assert!(!is_significant(&debugged, &debugged));
}
