//! Rules of the kinds that no recording shows: subresources, what an old object may keep, addresses of Services.

use api::kinds::core::service::addresses::before_allocation;
use api::kinds::{self, Context, Strategy};
use api::schemas::schema_of;
use object_model::codec::canonical::canonicalise;
use object_model::field::Errors;
use serde_json::{Value, json};

fn strategy(kind: &str) -> &'static Strategy {
    ["", "apps", "batch"].iter().find_map(|group| kinds::find(group, kind)).expect("a kind")
}

/// A stored object: decoded, defaulted, prepared and found valid.
fn stored(mut object: Value) -> Value {
    let strategy = strategy(object["kind"].as_str().expect("a kind"));
    let context = Context { now: "2026-01-02T03:04:05Z".to_owned(), ..Default::default() };
    object["metadata"]["namespace"] = json!("ns");
    object["metadata"]["uid"] = json!("u");
    decode(strategy, &mut object);
    if let Err(errors) = strategy.before_create(&mut object, &context) {
        panic!("{errors:?}");
    }
    object["metadata"]["resourceVersion"] = json!("1");
    object
}

fn decode(strategy: &Strategy, object: &mut Value) {
    let schema = schema_of(strategy.group, "v1", strategy.kind).expect("a schema");
    canonicalise(&schema, object).expect("an object of its kind");
    (strategy.defaults)(object);
}

/// What an update of the object or a subresource comes to.
fn update(subresource: &str, new: &Value, old: &Value) -> Result<Value, Vec<String>> {
    let strategy = strategy(old["kind"].as_str().expect("a kind"));
    let mut new = new.clone();
    decode(strategy, &mut new);
    let rules = strategy.update_of(subresource).expect("a subresource");
    match strategy.before_update(rules, &mut new, old, &Context::default()) {
        Ok(_) => Ok(new),
        Err(errors) => Err(messages(&errors)),
    }
}

fn messages(errors: &Errors) -> Vec<String> {
    errors.iter().map(|error| error.to_string().lines().next().unwrap_or_default().to_owned()).collect()
}

/// The object with one value changed.
fn with(object: &Value, pointer: &str, value: Value) -> Value {
    let mut changed = object.clone();
    *changed.pointer_mut(pointer).unwrap_or_else(|| panic!("nothing at {pointer}")) = value;
    changed
}

fn pod(spec: Value) -> Value {
    let mut whole = json!({"containers": [{"name": "c", "image": "i:1"}]});
    for (name, value) in spec.as_object().into_iter().flatten() {
        whole[name] = value.clone();
    }
    stored(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": whole}))
}

#[test]
fn a_pod_may_change_its_image_and_little_else() {
    let old = pod(json!({"activeDeadlineSeconds": 100, "tolerations": [{"key": "a", "operator": "Exists"}]}));
    let new = update("", &with(&old, "/spec/containers/0/image", json!("i:2")), &old).expect("a new image");
    assert_eq!((new["metadata"]["generation"].as_i64(), &new["status"]), (Some(2), &old["status"]));
    assert!(update("", &with(&old, "/spec/activeDeadlineSeconds", json!(50)), &old).is_ok());
    let longer = update("", &with(&old, "/spec/activeDeadlineSeconds", json!(200)), &old);
    assert_eq!(
        longer.unwrap_err(),
        ["spec.activeDeadlineSeconds: Invalid value: 200: must be less than or equal to previous value"]
    );
    let fewer = update("", &with(&old, "/spec/tolerations", json!([])), &old);
    assert_eq!(
        fewer.unwrap_err(),
        ["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"]
    );
    let renamed = update("", &with(&old, "/spec/containers/0/name", json!("d")), &old).unwrap_err();
    assert!(renamed[0].starts_with("spec: Forbidden: pod updates may not change fields other than"), "{renamed:?}");
}

#[test]
fn a_gated_pod_may_narrow_where_it_runs() {
    let old = pod(json!({"schedulingGates": [{"name": "g"}], "nodeSelector": {"a": "b"}}));
    assert_eq!(old["status"]["conditions"][0]["reason"], "SchedulingGated");
    assert!(update("", &with(&old, "/spec/nodeSelector", json!({"a": "b", "c": "d"})), &old).is_ok());
    let other = update("", &with(&old, "/spec/nodeSelector", json!({"c": "d"})), &old).unwrap_err();
    assert!(other[0].contains("only additions to spec.nodeSelector are allowed"), "{other:?}");
    let gate = update("", &with(&old, "/spec/schedulingGates", json!([{"name": "h"}])), &old).unwrap_err();
    assert_eq!(
        gate,
        ["spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'h'"]
    );
}

#[test]
fn resize_takes_cpu_and_memory_only() {
    let resources = json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}});
    let old = pod(json!({"containers": [{"name": "c", "image": "i:1", "resources": resources}]}));
    let mut new = with(&old, "/spec/containers/0/resources/requests/cpu", json!("2"));
    new["spec"]["containers"][0]["image"] = json!("other");
    new["metadata"]["labels"] = json!({"x": "y"});
    let resized = update("resize", &new, &old).expect("more cpu");
    assert_eq!(resized["spec"]["containers"][0]["resources"]["requests"]["cpu"], "2");
    assert_eq!(resized["spec"]["containers"][0]["image"], "i:1", "the rest is none of resize's business");
    assert!(resized["metadata"]["labels"].is_null());
    let mut storage = old.clone();
    storage["spec"]["containers"][0]["resources"]["requests"]["ephemeral-storage"] = json!("1Gi");
    let refused = update("resize", &storage, &old).unwrap_err();
    assert_eq!(refused, ["spec: Forbidden: only cpu and memory resources are mutable"]);
    let gone = update("resize", &with(&old, "/spec/containers/0/resources/limits", json!({})), &old).unwrap_err();
    assert_eq!(gone, ["spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed"]);
    let best_effort = update("resize", &with(&old, "/spec/containers/0/resources", json!({})), &old).unwrap_err();
    assert!(best_effort[0].contains("Pod QOS Class may not change as a result of resizing"), "{best_effort:?}");
}

#[test]
fn ephemeral_containers_are_added_and_stay() {
    let old = pod(json!({}));
    let mut new = old.clone();
    new["spec"]["ephemeralContainers"] = json!([{"name": "debug", "image": "busybox", "targetContainerName": "c"}]);
    new["spec"]["containers"][0]["image"] = json!("other");
    let debugged = update("ephemeralcontainers", &new, &old).expect("a new container");
    assert_eq!(debugged["spec"]["containers"][0]["image"], "i:1");
    assert_eq!(debugged["spec"]["ephemeralContainers"][0]["imagePullPolicy"], "Always");
    let gone = update("ephemeralcontainers", &old, &debugged).unwrap_err();
    assert_eq!(
        gone,
        ["spec.ephemeralContainers: Forbidden: existing ephemeral containers \"debug\" may not be removed"]
    );
    new["spec"]["ephemeralContainers"][0]["ports"] = json!([{"containerPort": 80}]);
    new["spec"]["ephemeralContainers"][0]["targetContainerName"] = json!("nobody");
    assert_eq!(
        update("ephemeralcontainers", &new, &old).unwrap_err(),
        [
            "spec.ephemeralContainers[0].targetContainerName: Not found: \"nobody\"",
            "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container",
        ]
    );
}

#[test]
fn a_pod_status_keeps_ended_containers_ended() {
    let mut old = pod(json!({"restartPolicy": "Never"}));
    old["status"]["containerStatuses"] = json!([{
        "name": "c", "ready": false, "restartCount": 0, "image": "i", "imageID": "", "state": {"terminated": {"exitCode": 1}},
    }]);
    let running = with(&old, "/status/containerStatuses/0/state", json!({"running": {}}));
    assert_eq!(
        update("status", &running, &old).unwrap_err(),
        ["status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"]
    );
    let mut restarts = old.clone();
    restarts["spec"]["restartPolicy"] = json!("OnFailure");
    let running = with(&restarts, "/status/containerStatuses/0/state", json!({"running": {}}));
    assert!(update("status", &running, &restarts).is_ok());
    let mut addressed = old.clone();
    addressed["status"]["podIP"] = json!("10.1.2.3");
    addressed["spec"]["nodeName"] = json!("sneaky");
    let written = update("status", &addressed, &old).expect("an address");
    assert_eq!(written["status"]["podIPs"], json!([{"ip": "10.1.2.3"}]));
    assert!(written["spec"].get("nodeName").is_none(), "the status writer does not bind");
}

#[test]
fn pods_have_a_quality_of_service_and_a_grace_period() {
    let class = |resources: Value| {
        let pod = pod(json!({"containers": [{"name": "c", "image": "i", "resources": resources}]}));
        pod["status"]["qosClass"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(class(json!({})), "BestEffort");
    assert_eq!(class(json!({"requests": {"cpu": "1"}})), "Burstable");
    assert_eq!(class(json!({"limits": {"cpu": "1", "memory": "1Gi"}})), "Guaranteed");
    assert_eq!(class(json!({"limits": {"cpu": "1"}})), "Burstable");
    let grace = strategy("Pod").grace_period.expect("pods go gracefully");
    let mut pod = pod(json!({}));
    assert_eq!(grace(&pod, Some(5)), 0, "nothing runs yet");
    pod["spec"]["nodeName"] = json!("n");
    assert_eq!((grace(&pod, None), grace(&pod, Some(5)), grace(&pod, Some(-1))), (30, 5, 1));
}

#[test]
fn what_was_stored_under_looser_rules_can_still_be_updated() {
    let mut old = pod(json!({}));
    old["metadata"]["annotations"] = json!({"controller.kubernetes.io/pod-deletion-cost": "much"});
    old["spec"]["affinity"] = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["-bad-"]}]}},
    ]}});
    assert!(update("", &with(&old, "/spec/containers/0/image", json!("i:2")), &old).is_ok());
    let mut clean = old.clone();
    clean["metadata"]["annotations"] = json!({});
    clean["spec"]["affinity"] = json!({});
    let refused = update("", &old, &clean).unwrap_err();
    assert!(refused.iter().any(|message| message.contains("must be a 32bit integer")), "{refused:?}");
}

#[test]
fn services_take_their_families_from_the_cluster() {
    let service = |spec: Value| {
        let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec});
        decode(strategy("Service"), &mut service);
        service
    };
    let complete = |spec: Value, families: &[&str]| {
        let mut service = service(spec);
        before_allocation(&mut service, &Value::Null, families).map(|()| service).map_err(|errors| messages(&errors))
    };
    let ports = json!([{"port": 80}]);
    let one = complete(json!({"ports": ports, "selector": {"a": "b"}}), &["IPv4"]).expect("one family");
    assert_eq!((&one["spec"]["ipFamilyPolicy"], &one["spec"]["ipFamilies"]), (&json!("SingleStack"), &json!(["IPv4"])));
    let preferred = json!({"ports": ports, "selector": {"a": "b"}, "ipFamilyPolicy": "PreferDualStack"});
    assert_eq!(
        complete(preferred.clone(), &["IPv4"]).expect("as good as it gets")["spec"]["ipFamilies"],
        json!(["IPv4"])
    );
    let both = complete(preferred, &["IPv6", "IPv4"]).expect("two families");
    assert_eq!(both["spec"]["ipFamilies"], json!(["IPv6", "IPv4"]));
    let required = json!({"ports": ports, "selector": {"a": "b"}, "ipFamilyPolicy": "RequireDualStack"});
    assert_eq!(
        complete(required, &["IPv4"]).unwrap_err(),
        [
            "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services"
        ]
    );
    let headless = complete(json!({"clusterIP": "None"}), &["IPv4"]).expect("headless without a selector");
    assert_eq!(headless["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    let v6 = json!({"ports": ports, "clusterIP": "fd00::1"});
    assert!(complete(v6, &["IPv4"]).unwrap_err()[0].contains("IPv6 is not configured on this cluster"));
}

#[test]
fn services_keep_what_was_allocated() {
    let mut old = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {
        "type": "NodePort", "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack", "ports": [{"name": "a", "port": 80, "nodePort": 30080}],
    }});
    decode(strategy("Service"), &mut old);
    let mut new = old.clone();
    new["spec"] = json!({"type": "NodePort", "ports": [{"name": "a", "port": 81}, {"name": "b", "port": 82}]});
    decode(strategy("Service"), &mut new);
    before_allocation(&mut new, &old, &["IPv4"]).expect("a changed port");
    assert_eq!(new["spec"]["clusterIPs"], json!(["10.0.0.7"]));
    assert_eq!(new["spec"]["ports"][0]["nodePort"], 30080);
    assert!(new["spec"]["ports"][1].get("nodePort").is_none(), "to be allocated");
    let old = stored(old);
    let external =
        update("", &with(&old, "/spec", json!({"type": "ExternalName", "externalName": "example.com"})), &old);
    assert_eq!(external.expect("another type")["spec"].get("clusterIP"), None);
    let moved = with(&with(&old, "/spec/clusterIP", json!("10.0.0.8")), "/spec/clusterIPs", json!(["10.0.0.8"]));
    assert!(update("", &moved, &old).unwrap_err()[0].contains("may not change once set"));
}

#[test]
fn a_finished_job_stays_finished() {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let mut old = stored(
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}}),
    );
    assert_eq!(old["spec"]["selector"]["matchLabels"], json!({"batch.kubernetes.io/controller-uid": "u"}));
    let done = |kind: &str| json!({"type": kind, "status": "True"});
    let mut new = old.clone();
    new["status"] = json!({
        "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T01:00:00Z", "succeeded": 1,
        "conditions": [done("SuccessCriteriaMet"), done("Complete")],
    });
    old = update("status", &new, &old).expect("a complete job");
    let again = update("status", &with(&old, "/status/conditions", json!([])), &old).unwrap_err();
    assert!(again.iter().any(|m| m.contains("cannot disable the terminal Complete=True condition")), "{again:?}");
    let fewer = update("status", &with(&old, "/status/succeeded", json!(0)), &old).unwrap_err();
    assert_eq!(fewer, ["status.succeeded: Invalid value: 0: cannot decrease the succeeded counter"]);
    let suspended = {
        let mut job = with(&old, "/spec/suspend", json!(true));
        job["status"] = json!({});
        job
    };
    let mut resources = suspended.clone();
    resources["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    assert!(update("", &resources, &suspended).is_ok(), "a suspended job may change its resources");
    assert!(update("", &with(&suspended, "/spec/template/spec/containers/0/image", json!("x")), &suspended).is_err());
}

#[test]
fn selectable_fields_are_those_of_kubernetes() {
    let pod = pod(json!({"nodeName": "n"}));
    let fields: Vec<_> = strategy("Pod").selectable(&pod).collect();
    assert_eq!(fields[0], ("metadata.name", "p".to_owned()));
    assert_eq!(fields[1], ("metadata.namespace", "ns".to_owned()));
    assert!(
        fields.contains(&("spec.nodeName", "n".to_owned()))
            && fields.contains(&("spec.hostNetwork", "false".to_owned()))
    );
    assert!(strategy("Pod").can_select("status.phase") && !strategy("Pod").can_select("spec.bogus"));
    assert!(!strategy("Node").can_select("metadata.namespace"));
}
