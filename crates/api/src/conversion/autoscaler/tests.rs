use serde_json::json;

use super::*;
use crate::conversion::convert;

fn autoscaler(spec: Value, status: Value) -> Value {
    json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "annotations": {"mine": "x"}},
        "spec": spec,
        "status": status,
    })
}

#[test]
fn v1_carries_in_annotations_what_it_has_no_fields_for() {
    let rules = json!({"selectPolicy": "Max", "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]});
    let external = json!({
        "type": "External",
        "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "30"}},
    });
    let spec = json!({
        "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
        "minReplicas": 1,
        "maxReplicas": 5,
        "metrics": [external, cpu_metric(&json!(70))],
        "behavior": {"scaleUp": rules},
    });
    let status = json!({
        "currentReplicas": 2,
        "desiredReplicas": 3,
        "currentMetrics": [
            {"type": "Resource", "resource": {"name": "cpu", "current": {"averageValue": "10m", "averageUtilization": 50}}}
        ],
        "conditions": [{"type": "AbleToScale", "status": "True", "lastTransitionTime": null, "reason": "a<b"}],
    });
    let stored = autoscaler(spec, status);
    let mut object = stored.clone();
    convert(&mut object, "autoscaling/v1");
    assert_eq!(
        object,
        json!({
            "apiVersion": "autoscaling/v1",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "web", "annotations": {
                "mine": "x",
                METRICS: r#"[{"type":"External","external":{"metricName":"queue","targetAverageValue":"30"}}]"#,
                CURRENT_METRICS: concat!(
                    r#"[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":50,"#,
                    r#""currentAverageValue":"10m"}}]"#
                ),
                CONDITIONS: concat!(
                    r#"[{"type":"AbleToScale","status":"True","lastTransitionTime":null,"#,
                    r#""reason":"a\u003cb"}]"#
                ),
                BEHAVIOR: concat!(
                    r#"{"ScaleUp":{"StabilizationWindowSeconds":null,"SelectPolicy":"Max","#,
                    r#""Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15}],"Tolerance":null},"ScaleDown":null}"#
                ),
            }},
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
                "minReplicas": 1,
                "maxReplicas": 5,
                "targetCPUUtilizationPercentage": 70,
            },
            "status": {"currentReplicas": 2, "desiredReplicas": 3, "currentCPUUtilizationPercentage": 50},
        })
    );
    convert(&mut object, "autoscaling/v2");
    assert_eq!(object, stored);
}

#[test]
fn v1_without_a_metric_means_cpu() {
    let mut object = json!({
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"annotations": {METRICS: "no JSON"}},
        "spec": {"maxReplicas": 5},
    });
    convert(&mut object, "autoscaling/v2");
    assert_eq!(object["spec"]["metrics"], json!([cpu_metric(&json!(80))]));
    assert_eq!(object["metadata"], json!({}));
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    fn amount() -> impl Strategy<Value = Value> {
        (1..2000u32).prop_map(|thousandths| Value::from(quantity(&json!(format!("{thousandths}m"))).to_string()))
    }

    fn identifier() -> impl Strategy<Value = Value> {
        ("[a-z<&]{1,6}", any::<bool>()).prop_map(|(name, selects)| {
            if selects {
                json!({"name": name, "selector": {"matchLabels": {"a": name}}})
            } else {
                json!({"name": name})
            }
        })
    }

    /// Metrics of every type; that of CPU is apart, since it comes last.
    fn metric() -> impl Strategy<Value = Value> {
        let described = json!({"kind": "Service", "name": "web", "apiVersion": "v1"});
        (0..6u8, identifier(), amount(), 1..200i64).prop_map(move |(which, metric, amount, percentage)| match which {
            0 => json!({"type": "Object", "object": {
                "describedObject": described, "metric": metric, "target": {"type": "Value", "value": amount}}}),
            1 => json!({"type": "Object", "object": {
                "describedObject": described, "metric": metric,
                "target": {"type": "AverageValue", "averageValue": amount}}}),
            2 => json!({"type": "Pods", "pods": {
                "metric": metric, "target": {"type": "AverageValue", "averageValue": amount}}}),
            3 => json!({"type": "External", "external": {"metric": metric, "target": {"type": "Value", "value": amount}}}),
            4 => json!({"type": "ContainerResource", "containerResource": {
                "name": "cpu", "container": "main",
                "target": {"type": "Utilization", "averageUtilization": percentage}}}),
            _ => json!({"type": "Resource", "resource": {
                "name": "memory", "target": {"type": "AverageValue", "averageValue": amount}}}),
        })
    }

    fn current_metric() -> impl Strategy<Value = Value> {
        (any::<bool>(), identifier(), amount(), 1..200i64).prop_map(|(is_resource, metric, amount, percentage)| {
            if is_resource {
                json!({"type": "Resource", "resource": {
                    "name": "cpu", "current": {"averageValue": amount, "averageUtilization": percentage}}})
            } else {
                json!({"type": "External", "external": {"metric": metric, "current": {"value": amount}}})
            }
        })
    }

    proptest! {
        #[test]
        fn nothing_is_lost_on_the_way_through_v1(
            others in prop::collection::vec(metric(), 0..4),
            cpu in prop::option::of(1..200i64),
            current in prop::collection::vec(current_metric(), 1..3),
            window in prop::option::of(0..3600i64),
            tolerance in prop::option::of(amount()),
            reason in "[ -~]{1,20}",
        ) {
            let mut metrics = others;
            metrics.extend(cpu.map(|percentage| cpu_metric(&json!(percentage))));
            if metrics.is_empty() {
                metrics.push(cpu_metric(&json!(80)));
            }
            let mut down = json!({"policies": [{"type": "Percent", "value": 10, "periodSeconds": 15}]});
            put(&mut down, &["stabilizationWindowSeconds"], window.map(Value::from).as_ref());
            put(&mut down, &["tolerance"], tolerance.as_ref());
            let target = json!({"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"});
            let spec = json!({
                "scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 3, "metrics": metrics,
                "behavior": {"scaleDown": down},
            });
            let condition = json!({"type": "A", "status": "True", "lastTransitionTime": null, "reason": reason});
            let status = json!({"desiredReplicas": 2, "currentMetrics": current, "conditions": [condition]});
            let stored = autoscaler(spec, status);
            let mut object = stored.clone();
            convert(&mut object, "autoscaling/v1");
            convert(&mut object, "autoscaling/v2");
            prop_assert_eq!(object, stored);
        }
    }
}
