//! Rules of the kinds outside core, apps and batch that no recording shows: subresources and their writers, structures
//! that recordings do not break, and bodies that are never stored.

use api::kinds::{self, Context, Requester, Strategy};
use api::schemas::schema_of;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use object_model::codec::canonical::canonicalise;
use object_model::field::Errors;
use serde_json::{Value, json};

fn strategy_of(object: &Value) -> &'static Strategy {
    let (group, _) = object["apiVersion"].as_str().and_then(|text| text.split_once('/')).expect("a group");
    let kind = object["kind"].as_str().expect("a kind");
    kinds::find(group, kind).or_else(|| kinds::find_asked(group, kind)).expect("a known kind")
}

fn decode(strategy: &Strategy, object: &mut Value) {
    let schema = schema_of(strategy.group, "v1", strategy.kind).expect("a schema");
    canonicalise(&schema, object).expect("an object of its kind");
    (strategy.defaults)(object);
}

fn context() -> Context {
    let user = Requester { name: "jane".to_owned(), groups: vec!["dev".to_owned()], ..Default::default() };
    Context { now: "2026-01-02T03:04:05Z".to_owned(), user }
}

fn messages(errors: &Errors) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// What a creation comes to.
fn create(mut object: Value) -> Result<Value, Vec<String>> {
    let strategy = strategy_of(&object);
    if strategy.namespaced {
        object["metadata"]["namespace"] = json!("ns");
    }
    decode(strategy, &mut object);
    strategy.before_create(&mut object, &context()).map_err(|errors| messages(&errors))?;
    object["metadata"]["resourceVersion"] = json!("1");
    Ok(object)
}

fn problems(object: Value) -> Vec<String> {
    create(object).expect_err("an invalid object")
}

/// What an update of the object or a subresource comes to.
fn update(subresource: &str, new: &Value, old: &Value) -> Result<Value, Vec<String>> {
    let strategy = strategy_of(old);
    let mut new = new.clone();
    decode(strategy, &mut new);
    let rules = strategy.update_of(subresource).expect("a subresource");
    strategy.before_update(rules, &mut new, old, &context()).map_err(|errors| messages(&errors))?;
    Ok(new)
}

fn check(mut body: Value) -> Vec<String> {
    let strategy = strategy_of(&body);
    (strategy.defaults)(&mut body);
    strategy.check(&body).map_or_else(|errors| messages(&errors), |()| Vec::new())
}

fn object(group_version: &str, kind: &str, name: &str, rest: Value) -> Value {
    let mut object = json!({"apiVersion": group_version, "kind": kind, "metadata": {"name": name}});
    for (field, value) in rest.as_object().into_iter().flatten() {
        object[field] = value.clone();
    }
    object
}

/// A DER sequence of two sequences and a signature, as far as anyone looks here.
fn pem(label: &str) -> Value {
    let der = BASE64.encode([0x30, 7, 0x30, 0, 0x30, 0, 0x03, 1, 0]);
    json!(BASE64.encode(format!("-----BEGIN {label}-----\n{der}\n-----END {label}-----\n")))
}

fn signing_request() -> Value {
    let spec = json!({
        "request": pem("CERTIFICATE REQUEST"),
        "signerName": "example.com/signer",
        "usages": ["client auth"],
        "username": "someone else",
    });
    create(object("certificates.k8s.io/v1", "CertificateSigningRequest", "csr", json!({ "spec": spec })))
        .expect("valid")
}

#[test]
fn a_signing_request_has_three_writers() {
    let request = signing_request();
    assert_eq!(request["spec"]["username"], "jane", "the server says who asks");

    let mut approved = request.clone();
    approved["status"]["conditions"] = json!([{"type": "Approved", "status": "True"}]);
    let refused = update("status", &approved, &request).expect_err("only approvers approve");
    assert_eq!(refused, ["status.conditions: Forbidden: updates may not add a condition of type \"Approved\""]);
    let approved = update("approval", &approved, &request).expect("an approval");
    assert_eq!(approved["status"]["conditions"][0]["lastTransitionTime"], "2026-01-02T03:04:05Z");

    let mut signed = approved.clone();
    signed["status"]["certificate"] = pem("CERTIFICATE");
    signed["status"]["conditions"][0]["reason"] = json!("Changed");
    let by_approver = update("approval", &signed, &approved).expect("the certificate is put back");
    assert!(by_approver["status"].get("certificate").is_none());
    let signed = update("status", &signed, &approved).expect("a certificate");
    assert_eq!(signed["status"]["conditions"], approved["status"]["conditions"], "signers do not change approvals");

    let mut resigned = signed.clone();
    resigned["status"]["certificate"] = json!(BASE64.encode("nothing"));
    assert_eq!(
        update("status", &resigned, &signed).expect_err("signed once"),
        [
            "status.certificate: Invalid value: \"<certificate data>\": must contain at least one CERTIFICATE PEM block",
            "status.certificate: Forbidden: updates may not modify existing certificate content",
        ]
    );
}

#[test]
fn signers_have_qualified_names() {
    let with_signer = |signer: &str| {
        let mut request = signing_request();
        request["spec"]["signerName"] = json!(signer);
        request
    };
    for (signer, detail) in [
        ("signer", "must be a fully qualified domain and path of the form 'example.com/signer-name'"),
        ("com/signer", "should be a domain with at least two segments separated by dots"),
        ("kubernetes.io/legacy-unknown", "the legacy signerName is not allowed via this API version"),
    ] {
        let found = problems(with_signer(signer));
        assert!(found.len() == 1 && found[0].ends_with(detail), "{signer}: {found:?}");
    }
}

fn definition(versions: Value) -> Value {
    let spec = json!({
        "group": "example.org",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": versions,
    });
    object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.org", json!({ "spec": spec }))
}

fn version(name: &str, storage: bool, properties: Value) -> Value {
    let schema = json!({"type": "object", "properties": properties});
    json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}})
}

#[test]
fn a_definition_is_named_by_its_parts_and_defaulted() {
    let made = create(definition(json!([version("v1", true, json!({}))]))).expect("valid");
    assert_eq!(made["spec"]["names"]["singular"], "widget");
    assert_eq!(made["spec"]["names"]["listKind"], "WidgetList");
    assert_eq!(made["spec"]["conversion"]["strategy"], "None");
    assert_eq!(made["status"]["storedVersions"], json!(["v1"]));

    let mut renamed = definition(json!([version("v1", true, json!({}))]));
    renamed["metadata"]["name"] = json!("gadgets.example.org");
    let detail = "must be spec.names.plural+\".\"+spec.group";
    assert_eq!(problems(renamed), [format!("metadata.name: Invalid value: \"gadgets.example.org\": {detail}")]);
}

#[test]
fn what_versions_share_is_told_above_them() {
    let untyped = json!({"color": {}});
    let problem = "properties[color].type: Required value: must not be empty for specified object fields";
    let same = definition(json!([version("v1", true, untyped.clone()), version("v2", false, untyped.clone())]));
    assert_eq!(problems(same), [format!("spec.validation.openAPIV3Schema.{problem}")]);
    let other = definition(json!([version("v1", true, untyped), version("v2", false, json!({}))]));
    assert_eq!(problems(other), [format!("spec.versions[0].schema.openAPIV3Schema.{problem}")]);
}

#[test]
fn versions_that_are_stored_in_must_stay() {
    let both = [version("v1", true, json!({})), version("v2", false, json!({}))];
    let old = create(definition(json!(both))).expect("valid");
    let mut moved = old.clone();
    moved["spec"]["versions"][0]["storage"] = json!(false);
    moved["spec"]["versions"][1]["storage"] = json!(true);
    let moved = update("", &moved, &old).expect("another storage version");
    assert_eq!(moved["status"]["storedVersions"], json!(["v1", "v2"]));
    assert_eq!(moved["metadata"]["generation"], 2);

    let mut dropped = moved.clone();
    dropped["spec"]["versions"] = json!([moved["spec"]["versions"][1]]);
    let found = update("", &dropped, &moved).expect_err("v1 may still be stored");
    assert!(
        found.len() == 1 && found[0].starts_with("status.storedVersions[0]: Invalid value: \"v1\": missing"),
        "{found:?}"
    );
}

#[test]
fn a_definition_may_convert_by_webhook_and_select_by_fields() {
    let mut with_webhook = definition(json!([version("v1", true, json!({"color": {"type": "string"}}))]));
    with_webhook["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "clientConfig": {"url": "http://host/path?query"},
        "conversionReviewVersions": ["v2"],
    }});
    with_webhook["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".colour"}, {"jsonPath": ".color"}]);
    let found = problems(with_webhook);
    let places: Vec<&str> = found.iter().map(|problem| problem.split(": ").next().unwrap_or_default()).collect();
    assert_eq!(
        places,
        [
            "spec.selectableFields[0].jsonPath",
            "spec.conversion.webhookClientConfig.url",
            "spec.conversion.webhookClientConfig.url",
            "spec.conversion.conversionReviewVersions",
        ],
        "{found:#?}"
    );
}

#[test]
fn groups_of_the_community_need_approval() {
    let mut community = definition(json!([version("v1", true, json!({}))]));
    community["spec"]["group"] = json!("x.k8s.io");
    community["metadata"]["name"] = json!("widgets.x.k8s.io");
    let found = problems(community.clone());
    assert!(found[0].starts_with("metadata.annotations[api-approved.kubernetes.io]: Required value"), "{found:?}");
    community["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "https://example.com/1"});
    create(community).expect("approved");
}

fn slice(spec: Value) -> Value {
    let mut whole = json!({
        "driver": "gpu.example.com",
        "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "node-1",
    });
    for (name, value) in spec.as_object().into_iter().flatten() {
        whole[name] = value.clone();
    }
    object("resource.k8s.io/v1", "ResourceSlice", "slice", json!({ "spec": whole }))
}

#[test]
fn devices_have_attributes_capacities_and_taints() {
    let device = json!({
        "name": "gpu-0",
        "attributes": {"model": {"string": "x"}, "driver": {"version": "1.2.3-rc.1+build"}},
        "capacity": {"memory": {"value": "16Gi"}},
        "taints": [{"key": "example.com/broken", "effect": "NoSchedule"}],
    });
    let made = create(slice(json!({"devices": [device]}))).expect("valid");
    assert_eq!(made["spec"]["devices"][0]["taints"][0]["timeAdded"], "2026-01-02T03:04:05Z");

    let wrong = json!({
        "name": "gpu-0",
        "attributes": {"model": {"string": "x", "int": 1}, "driver": {"version": "01.2.3"}},
        "capacity": {"memory": {"value": "16Gi", "requestPolicy": {}}},
    });
    let found = problems(slice(json!({"devices": [wrong.clone(), wrong], "allNodes": true})));
    for expected in [
        "spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of `nodeName`, `nodeSelector`, `allNodes`, \
         `perDeviceNodeSelection` is required, but multiple fields are set",
        "spec.devices[0].attributes[driver].version: Invalid value: \"01.2.3\": must be a string compatible with \
         semver.org spec 2.0.0",
        "spec.devices[0].capacity[memory].requestPolicy: Forbidden: allowMultipleAllocations must be true",
        "spec.devices[1]: Duplicate value: \"gpu-0\"",
    ] {
        assert!(found.iter().any(|problem| problem == expected), "{expected} is not in {found:#?}");
    }
}

#[test]
fn capacity_can_be_asked_for_in_steps() {
    let policy = json!({"default": "3Gi", "validRange": {"min": "1Gi", "max": "32Gi", "step": "1Gi"}});
    let device = json!({
        "name": "gpu-0",
        "allowMultipleAllocations": true,
        "capacity": {"memory": {"value": "16Gi", "requestPolicy": policy}},
    });
    let at = "spec.devices[0].capacity[memory].requestPolicy.validRange";
    let detail = "max is larger than capacity value: 16Gi";
    assert_eq!(problems(slice(json!({"devices": [device]}))), [format!("{at}.max: Invalid value: \"32Gi\": {detail}")]);
}

#[test]
fn a_claims_status_speaks_of_devices_it_got() {
    let devices = json!({"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]});
    let claim = json!({"spec": {"devices": devices}});
    let old = create(object("resource.k8s.io/v1", "ResourceClaim", "claim", claim)).expect("valid");
    assert_eq!(old["spec"]["devices"]["requests"][0]["exactly"]["count"], 1);

    let result = json!({"request": "gpu", "driver": "gpu.example.com", "pool": "p", "device": "gpu-0"});
    let mut given = old.clone();
    given["status"] = json!({
        "allocation": {"devices": {"results": [result]}},
        "devices": [{"driver": "gpu.example.com", "pool": "p", "device": "gpu-1"}],
    });
    let found = update("status", &given, &old).expect_err("another device");
    assert_eq!(
        found,
        ["status.devices[0]: Invalid value: \"gpu.example.com/p/gpu-1\": must be an allocated device in the claim"]
    );
    given["status"]["devices"][0]["device"] = json!("gpu-0");
    let given = update("status", &given, &old).expect("its device");
    let mut taken = given.clone();
    taken["status"].as_object_mut().expect("a status").remove("allocation");
    let taken = update("status", &taken, &given).expect("taken away");
    assert!(taken["status"].get("devices").is_none(), "nothing is told of devices that are gone");
}

#[test]
fn reviews_ask_about_one_thing_and_have_no_name() {
    let review = |kind: &str, metadata: Value, spec: Value| {
        check(json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}))
    };
    assert!(review("SelfSubjectAccessReview", json!({}), json!({"nonResourceAttributes": {"path": "/"}})).is_empty());
    assert_eq!(
        review("SubjectAccessReview", json!({"name": "x"}), json!({})),
        [
            "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes \
             must be specified",
            "spec.user: Invalid value: \"\": at least one of user or group must be specified",
            "metadata: Invalid value: {\"name\":\"x\"}: must be empty",
        ]
    );
    let local = json!({"user": "u", "resourceAttributes": {"namespace": "b"}});
    assert_eq!(
        review("LocalSubjectAccessReview", json!({"namespace": "a"}), local),
        ["spec.resourceAttributes.namespace: Invalid value: \"b\": must match metadata.namespace"]
    );
}

#[test]
fn tokens_live_for_at_least_ten_minutes() {
    let request = |spec: Value| {
        check(json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": spec}))
    };
    assert!(request(json!({})).is_empty(), "an hour if nothing is said");
    let found = request(json!({"expirationSeconds": 599}));
    assert_eq!(found, ["spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes"]);
}

#[test]
fn mandatory_flows_cannot_be_changed() {
    let spec = kinds::flowcontrol::mandatory_schema("exempt").expect("a mandatory schema");
    let exempt = object("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "exempt", json!({ "spec": spec }));
    let old = create(exempt).expect("as it must be");
    let mut changed = old.clone();
    changed["spec"]["rules"][0]["subjects"][0]["group"]["name"] = json!("everyone");
    let found = update("", &changed, &old).expect_err("fixed");
    assert!(found[0].ends_with("spec of 'exempt' must equal the fixed value"), "{found:?}");

    let spec = kinds::flowcontrol::mandatory_level("exempt").expect("a mandatory level");
    let kind = "PriorityLevelConfiguration";
    let exempt = object("flowcontrol.apiserver.k8s.io/v1", kind, "exempt", json!({ "spec": spec }));
    let old = create(exempt).expect("as it must be");
    let mut changed = old.clone();
    changed["spec"]["exempt"]["lendablePercent"] = json!(10);
    update("", &changed, &old).expect("what it lends may be tuned");
}

#[test]
fn policies_that_mutate_match_no_deletions() {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["DELETE"]});
    let spec = json!({
        "matchConstraints": {"resourceRules": [rule]},
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": " "}, "applyConfiguration": {}}],
        "variables": [{"name": "while", "expression": "1"}],
        "reinvocationPolicy": "Never",
    });
    let policy = object("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy", "map", json!({ "spec": spec }));
    assert_eq!(
        problems(policy),
        [
            "spec.matchConstraints.resourceRules.operations: Unsupported value: \"DELETE\": supported values: \"*\", \
             \"CONNECT\", \"CREATE\", \"UPDATE\"",
            "spec.variables[0].name: Invalid value: \"while\": must be a valid CEL identifier",
            "spec.mutations[0].jsonPatch.expression: Required value",
            "spec.mutations[0].applyConfiguration: Invalid value: \"{applyConfiguration}\": must not be specified when \
             patchType is JSONPatch",
        ]
    );
}

#[test]
fn expressions_of_policies_must_compile() {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]});
    let policy = |kind: &str, rest: Value| {
        let mut spec = json!({"matchConstraints": {"resourceRules": [rule]}});
        for (field, value) in rest.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        object("admissionregistration.k8s.io/v1", kind, "policy", json!({ "spec": spec }))
    };
    let validating = |rest: Value| policy("ValidatingAdmissionPolicy", rest);
    create(validating(json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [{"name": "a", "expression": "request.userInfo.username != params.data.name"}],
        "variables": [
            {"name": "replicas", "expression": "int(object.spec.replicas)"},
            {"name": "twice", "expression": "variables.replicas * 2"}
        ],
        "validations": [{
            "expression": "variables.twice < 10 && authorizer.requestResource.check('get').allowed()",
            "messageExpression": "'at most ' + string(variables.replicas)"
        }],
        "auditAnnotations": [{"key": "k", "valueExpression": "'a' + namespaceObject.metadata.name"}],
    })))
    .expect("valid");
    let found = problems(validating(json!({
        "matchConditions": [{"name": "a", "expression": " variables.x "}, {"name": "b", "expression": "params.x == 1"}],
        "validations": [
            {"expression": "object.x", "messageExpression": "authorizer"},
            {"expression": "variables.nothing == 1 && request.nam == ''"}
        ],
        "auditAnnotations": [{"key": "k", "valueExpression": "1"}],
    })));
    let bad = |at: &str, text: &str, why: &str| format!("spec.{at}: Invalid value: \"{text}\": {why}");
    let unknown = |column: usize, name: &str, text: &str| {
        let place = format!("{}^", ".".repeat(column - 1));
        format!(
            "compilation failed: ERROR: <input>:1:{column}: undeclared reference to '{name}' (in container '')\n | \
             {text}\n | {place}"
        )
    };
    let text = "variables.nothing == 1 && request.nam == ''";
    let fields = format!(
        "compilation failed: ERROR: <input>:1:10: undefined field 'nothing'\n | {text}\n | .........^\nERROR: \
         <input>:1:34: undefined field 'nam'\n | {text}\n | .................................^"
    );
    assert_eq!(
        found,
        [
            bad("matchConditions[0].expression", "variables.x", &unknown(1, "variables", "variables.x")),
            bad("matchConditions[1].expression", "params.x == 1", &unknown(1, "params", "params.x == 1")),
            bad("validations[0].expression", "object.x", "must evaluate to bool but got dyn"),
            bad("validations[0].messageExpression", "authorizer", &unknown(1, "authorizer", "authorizer")),
            bad("validations[1].expression", text, &fields),
            bad("auditAnnotations[0].valueExpression", "1", "must evaluate to one of [string null_type] but got int"),
        ]
    );
    let mutating =
        |patch: Value| policy("MutatingAdmissionPolicy", json!({"mutations": [patch], "reinvocationPolicy": "Never"}));
    let apply = |text: &str| json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}});
    create(mutating(apply("Object{spec: Object.spec{replicas: 3}}"))).expect("valid");
    let patch = |text: &str| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": text}});
    create(mutating(patch("[JSONPatch{op: 'add', path: '/a/' + jsonpatch.escapeKey('b/c'), value: 1}]")))
        .expect("valid");
    let wrong = problems(mutating(patch("JSONPatch{}")));
    let why = "must evaluate to list(JSONPatch) but got JSONPatch";
    assert_eq!(wrong, [bad("mutations[0].jsonPatch.expression", "JSONPatch{}", why)]);
}

#[test]
fn a_budgets_status_has_its_own_writer() {
    let budget = json!({"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
    let old = create(object("policy/v1", "PodDisruptionBudget", "pdb", budget)).expect("valid");
    let mut changed = old.clone();
    changed["status"]["expectedPods"] = json!(3);
    changed["spec"]["minAvailable"] = json!(2);
    let by_status = update("status", &changed, &old).expect("a status");
    assert_eq!((&by_status["spec"]["minAvailable"], &by_status["status"]["expectedPods"]), (&json!(1), &json!(3)));
    let by_spec = update("", &changed, &old).expect("a spec");
    assert_eq!((&by_spec["spec"]["minAvailable"], &by_spec["status"]["expectedPods"]), (&json!(2), &json!(0)));
    assert_eq!(by_spec["metadata"]["generation"], 2);
}

#[test]
fn evictions_do_not_break_the_store() {
    let body = object(
        "policy/v1",
        "Eviction",
        "p",
        json!({"deleteOptions": {
            "ignoreStoreReadErrorWithClusterBreakingPotential": true,
        }}),
    );
    assert_eq!(check(body).len(), 1);
}
