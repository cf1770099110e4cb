//! The road an object takes in the server, with stand-ins for what is not in this crate.

use std::collections::HashMap;

use api::conversion::convert;
use api::kinds::{self, Context, Requester, Strategy};
use api::schemas::schema_of;
use object_model::codec::canonical::canonicalise;
use object_model::identity::GroupKind;
use object_model::status::Status;
use serde_json::{Value, json};

use crate::compare::{self, Outcome};
use crate::facts::Recording;

/// The certificate that the recorded requests were made with.
const CREDENTIAL: &str = "X509SHA256=e694e3bc491f93de35444c3ffe2c7c0d7e0b2f856d03a8dbbc126af78502d281";

pub struct Road {
    /// What a real create left in the store, by path.
    stored: HashMap<String, Value>,
    context: Context,
}

impl Road {
    pub fn new() -> Self {
        let user = Requester {
            name: "admin".to_owned(),
            groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
            extra: vec![("authentication.kubernetes.io/credential-id".to_owned(), vec![CREDENTIAL.to_owned()])],
            ..Default::default()
        };
        let context = Context { user, now: "2026-01-02T03:04:05Z".to_owned() };
        Self { stored: HashMap::new(), context }
    }

    /// Sends one recorded request along. `None` if it is not one for the strategies.
    pub fn travel(&mut self, case: &Recording) -> Option<Outcome> {
        let (api_version, kind) = (case.body["apiVersion"].as_str()?, case.body["kind"].as_str()?);
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let strategy = kinds::find(group, kind)?;
        let path = case.path.split('?').next()?;
        let dry_run = case.path.contains("dryRun");
        let is_write = ["POST", "PUT"].contains(&case.method.as_str()) && case.content_type.is_none();
        if !is_write || ![200, 201, 422].contains(&case.code) {
            return None;
        }
        let mut object = decode(strategy, &case.body, path)?;
        let outcome = if case.method == "POST" {
            let result = create(strategy, &mut object, &self.context);
            judge(case, strategy, &object, result)
        } else {
            let old = self.stored.get(path)?;
            // An update may leave out the version where the kind allows it; else the server refuses it before validation.
            if object["metadata"]["resourceVersion"].is_null() {
                if !strategy.unconditional_update {
                    return None;
                }
                object["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
            }
            let result = update(strategy, &mut object, old, &self.context);
            judge(case, strategy, &object, result)
        };
        if case.method == "POST" && case.code == 201 && !dry_run {
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            object["metadata"]["resourceVersion"] = json!("1");
            settle(strategy.kind, &mut object);
            self.stored.insert(format!("{path}/{name}"), object);
        }
        Some(outcome)
    }
}

/// The version an object takes the road in.
fn stored_version(strategy: &Strategy) -> String {
    match (strategy.group, strategy.kind) {
        (_, "Event") => "v1".to_owned(),
        (group, "HorizontalPodAutoscaler") => format!("{group}/v2"),
        ("", _) => "v1".to_owned(),
        (group, _) => format!("{group}/v1"),
    }
}

fn decode(strategy: &Strategy, body: &Value, path: &str) -> Option<Value> {
    let mut object = body.clone();
    if object["metadata"].is_null() {
        object["metadata"] = json!({});
    }
    if strategy.namespaced {
        let mut parts = path.split('/').skip_while(|part| *part != "namespaces").skip(1);
        object["metadata"]["namespace"] = json!(parts.next()?);
    }
    let version = body["apiVersion"].as_str()?.rsplit('/').next()?;
    canonicalise(&schema_of(strategy.group, version, strategy.kind)?, &mut object).ok()?;
    convert(&mut object, &stored_version(strategy));
    (strategy.defaults)(&mut object);
    let once = object.clone();
    (strategy.defaults)(&mut object);
    assert_eq!(once, object, "defaults are idempotent");
    Some(object)
}

type Result = std::result::Result<Vec<String>, object_model::field::Errors>;

fn create(strategy: &Strategy, object: &mut Value, context: &Context) -> Result {
    for name in ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        if let Some(meta) = object["metadata"].as_object_mut() {
            meta.remove(name);
        }
    }
    object["metadata"]["uid"] = json!("11111111-1111-1111-1111-111111111111");
    admit(strategy.kind, object);
    if strategy.kind == "Service" {
        allocate(object, &Value::Null)?;
    }
    strategy.before_create(object, context)
}

fn update(strategy: &Strategy, object: &mut Value, old: &Value, context: &Context) -> Result {
    if strategy.kind == "Service" {
        allocate(object, old)?;
    }
    if strategy.kind == "Pod" {
        // Admission on update fills in what it did on create.
        for name in ["priority", "preemptionPolicy"] {
            if object["spec"][name].is_null() {
                object["spec"][name] = old["spec"][name].clone();
            }
        }
        default_tolerations(object);
    }
    strategy.before_update(&strategy.update, object, old, context)
}

fn judge(case: &Recording, strategy: &Strategy, object: &Value, result: Result) -> Outcome {
    let failed = case.code == 422;
    match result {
        Ok(_) if failed => Outcome::Different(format!("accepted, Kubernetes {}", case.answer["message"])),
        Ok(_) => {
            let mut served = object.clone();
            convert(&mut served, case.body["apiVersion"].as_str().unwrap_or_default());
            let object = &served;
            let mut canonical = object.clone();
            let version = object["apiVersion"].as_str().and_then(|version| version.rsplit('/').next());
            let schema = schema_of(strategy.group, version.unwrap_or_default(), strategy.kind).expect("a schema");
            canonicalise(&schema, &mut canonical).expect("what comes out can be read again");
            assert_eq!(canonical, *object, "{}: what comes out is canonical", case.what);
            compare::success(&case.answer, object)
        }
        Err(errors) => {
            let kind = GroupKind { group: strategy.group.into(), kind: strategy.kind.into() };
            let status = Status::invalid(&kind, object["metadata"]["name"].as_str().unwrap_or_default(), &errors);
            let status = serde_json::to_value(&status).unwrap_or_default();
            if failed {
                compare::failure(&case.answer, &status)
            } else {
                Outcome::Different(format!("refused: {}", status["message"]))
            }
        }
    }
}

/// What the controllers inside the API server write to an object soon after it is created.
fn settle(kind: &str, object: &mut Value) {
    if kind == "FlowSchema" {
        let level = object["spec"]["priorityLevelConfiguration"]["name"].clone();
        let message =
            format!("This FlowSchema references the PriorityLevelConfiguration object named {level} and it exists");
        let condition = json!({
            "type": "Dangling",
            "status": "False",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
            "reason": "Found",
            "message": message,
        });
        object["status"]["conditions"] = json!([condition]);
    }
}

/// What the admission plugins that are on by default do to these objects.
fn admit(kind: &str, object: &mut Value) {
    match kind {
        "Pod" => admit_pod(object),
        "PersistentVolume" => object["metadata"]["finalizers"] = json!(["kubernetes.io/pv-protection"]),
        "PersistentVolumeClaim" => object["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]),
        "Node" => {
            let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
            match object["spec"]["taints"].as_array_mut() {
                Some(taints) => taints.push(taint),
                None => object["spec"]["taints"] = json!([taint]),
            }
        }
        _ => {}
    }
}

const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn admit_pod(pod: &mut Value) {
    let spec = &mut pod["spec"];
    if !spec.is_object() {
        return;
    }
    if spec["serviceAccountName"].as_str().unwrap_or_default().is_empty() {
        spec["serviceAccountName"] = json!("default");
    }
    if spec["automountServiceAccountToken"] != false {
        let mut used = false;
        for list in ["initContainers", "containers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                let mount = json!({"name": "kube-api-access-xxxxx", "readOnly": true, "mountPath": TOKEN_PATH});
                match container["volumeMounts"].as_array_mut() {
                    Some(mounts) => mounts.push(mount),
                    None => container["volumeMounts"] = json!([mount]),
                }
                used = true;
            }
        }
        if used {
            let volume = json!({"name": "kube-api-access-xxxxx", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [
                    {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                ]}},
            ]}});
            match spec["volumes"].as_array_mut() {
                Some(volumes) => volumes.push(volume),
                None => spec["volumes"] = json!([volume]),
            }
        }
    }
    spec["priority"] = json!(0);
    spec["preemptionPolicy"] = json!("PreemptLowerPriority");
    default_tolerations(pod);
}

fn default_tolerations(pod: &mut Value) {
    let spec = &mut pod["spec"];
    let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = tolerations.iter().any(|t| {
            let text = |name: &str| t[name].as_str().unwrap_or_default().to_owned();
            [key, ""].contains(&text("key").as_str()) && ["NoExecute", ""].contains(&text("effect").as_str())
        });
        if !tolerated {
            tolerations
                .push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
    if spec.is_object() {
        spec["tolerations"] = json!(tolerations);
    }
}

/// Addresses and ports from a cluster with one family.
fn allocate(service: &mut Value, old: &Value) -> std::result::Result<(), object_model::field::Errors> {
    kinds::core::service::addresses::before_allocation(service, old, &["IPv4"])?;
    let spec = &mut service["spec"];
    if !spec.is_object() {
        return Ok(());
    }
    if spec["type"] != "ExternalName" && spec["clusterIP"].as_str().unwrap_or_default().is_empty() {
        spec["clusterIP"] = json!("10.96.0.77");
        spec["clusterIPs"] = json!(["10.96.0.77"]);
    }
    if ["NodePort", "LoadBalancer"].contains(&spec["type"].as_str().unwrap_or_default()) {
        for port in spec["ports"].as_array_mut().into_iter().flatten() {
            if port["nodePort"].as_i64().unwrap_or_default() == 0 {
                port["nodePort"] = json!(31000 + port["port"].as_i64().unwrap_or_default() % 1000);
            }
        }
    }
    if spec["type"] == "LoadBalancer"
        && spec["externalTrafficPolicy"] == "Local"
        && spec["healthCheckNodePort"].is_null()
    {
        spec["healthCheckNodePort"] = json!(32000);
    }
    Ok(())
}
