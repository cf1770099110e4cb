//! Who clients are: certificates, tokens and headers over real TLS, good ones and others.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use api_server::{
    authentication::{front_proxy, keys},
    clock::Clock,
    serving::authority::{Authority, certificates},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use testing::{
    TestServer,
    client::{Client, MERGE_PATCH, Trust, Watch},
};

use super::audit;

const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// A clock that is ahead of the real one by as much as a test says.
#[derive(Default)]
struct Ahead(AtomicU64);

impl Clock for Ahead {
    fn now(&self) -> SystemTime {
        SystemTime::now() + Duration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

struct Case {
    server: TestServer,
    admin: Client,
}

impl Case {
    async fn new() -> Self {
        Self::with(|_, _| {}).await
    }

    async fn with(change: impl FnOnce(&mut api_server::Settings, &Path) + Send + 'static) -> Self {
        let server = TestServer::with(change).await;
        let admin = server.client();
        admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await.expect(201);
        for name in ["default", "a"] {
            let account = json!({"metadata": {"name": name}});
            admin.post("/api/v1/namespaces/n/serviceaccounts", &account).await.expect(201);
        }
        Self { server, admin }
    }

    fn authority(&self) -> Authority {
        Authority::open(&self.server.folder().join("pki")).expect("the authority")
    }

    /// Somebody who has nothing to show.
    fn nobody(&self) -> Client {
        Client::new(self.server.address, Trust::nobody(&self.authority()))
    }

    async fn ask(&self, spec: Value) -> testing::client::Answer {
        self.admin.post("/api/v1/namespaces/n/serviceaccounts/a/token", &json!({"spec": spec})).await
    }

    async fn token(&self, spec: Value) -> String {
        text(&self.ask(spec).await.expect(201)["status"]["token"])
    }

    /// What a review says of a token.
    async fn review(&self, token: &str, audiences: &[&str]) -> Value {
        let review = json!({"spec": {"token": token, "audiences": audiences}});
        self.admin.post(REVIEWS, &review).await.expect(201)["status"].clone()
    }

    async fn why_not(&self, token: &str) -> String {
        let status = self.review(token, &[]).await;
        assert_eq!(status["authenticated"], Value::Null, "{status}");
        text(&status["error"])
    }

    async fn pod(&self, name: &str) -> Value {
        let mut pod = super::pod(name);
        pod["spec"]["serviceAccountName"] = "a".into();
        self.admin.post("/api/v1/namespaces/n/pods", &pod).await.expect(201)
    }

    /// A Secret that holds a token of the account, and all that happens to Secrets from then on.
    async fn held(&self) -> (Value, Watch) {
        let secret = json!({
            "metadata": {"name": "held", "annotations": {"kubernetes.io/service-account.name": "a"}},
            "type": "kubernetes.io/service-account-token",
        });
        let path = "/api/v1/namespaces/n/secrets";
        let made = self.admin.post(path, &secret).await.expect(201);
        let path = format!("{path}?watch=1&resourceVersion={}", super::version(&made));
        let mut watch = self.admin.watch(&path).await.expect("a watch");
        let filled = watch.next().await.expect("the controller fills it")["object"].clone();
        (filled, watch)
    }

    async fn secret(&self, namespace: &str, object: &Value) {
        self.admin.post(&format!("/api/v1/namespaces/{namespace}/secrets"), object).await.expect(201);
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Whom the server takes the client for; nobody, if it refuses to say.
async fn who(client: &Client) -> Option<Value> {
    let answer = client.post(WHO, &json!({})).await;
    (answer.code == 201).then(|| answer.json()["status"]["userInfo"].clone())
}

/// Is the client somebody? One who is must be told apart from one who may do nothing.
async fn known(client: &Client) -> bool {
    client.get("/api").await.code != 401
}

/// A token with other claims and the same signature.
fn forged(token: &str, change: impl FnOnce(&mut Value)) -> String {
    let encoding = base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let [header, claims, signature] = token.split('.').collect::<Vec<_>>().try_into().expect("three parts");
    let mut claims: Value = serde_json::from_slice(&encoding.decode(claims).expect("base64")).expect("claims");
    change(&mut claims);
    format!("{header}.{}.{signature}", encoding.encode(claims.to_string()))
}

fn claims(token: &str) -> Value {
    let middle = token.split('.').nth(1).expect("claims");
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(middle).expect("base64");
    serde_json::from_slice(&bytes).expect("JSON")
}

#[tokio::test]
async fn service_accounts() {
    let case = Case::new().await;
    let answer = case.ask(json!({"expirationSeconds": 700})).await.expect(201);
    assert_eq!((&answer["kind"], &answer["metadata"]["name"]), (&"TokenRequest".into(), &"a".into()));
    assert_eq!(answer["spec"]["audiences"], json!([ISSUER]));
    assert!(answer["status"]["expirationTimestamp"].is_string());
    let token = text(&answer["status"]["token"]);
    let told = claims(&token);
    assert_eq!(told["sub"], "system:serviceaccount:n:a");
    assert_eq!(told["exp"].as_i64().unwrap() - told["iat"].as_i64().unwrap(), 700);
    assert_eq!(told["kubernetes.io"]["serviceaccount"]["uid"], answer["metadata"]["uid"]);

    let status = case.review(&token, &[]).await;
    assert_eq!(status["authenticated"], true);
    assert_eq!(status["audiences"], json!([ISSUER]));
    assert_eq!(status["user"]["username"], "system:serviceaccount:n:a");
    assert_eq!(
        status["user"]["groups"],
        json!(["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"])
    );
    let id = format!("JTI={}", text(&told["jti"]));
    assert_eq!(status["user"]["extra"]["authentication.kubernetes.io/credential-id"], json!([id]));
    assert!(known(&case.nobody().bearing(&token)).await);

    let refused = case.ask(json!({"expirationSeconds": 1})).await.refused(422);
    assert!(refused.contains("may not specify a duration less than 10 minutes"), "{refused}");
    let missing = case.admin.post("/api/v1/namespaces/n/serviceaccounts/none/token", &json!({})).await;
    assert!(missing.refused(404).contains("serviceaccounts \"none\" not found"));
    let odd = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}});
    assert!(case.ask(odd).await.refused(400).contains("cannot bind token to object of type"));
}

#[tokio::test]
async fn forged_and_misused_tokens() {
    let case = Case::new().await;
    let token = case.token(json!({})).await;
    let admin = forged(&token, |claims| claims["sub"] = "system:serviceaccount:kube-system:admin".into());
    assert_eq!(case.why_not(&admin).await, "invalid signature");
    assert!(!known(&case.nobody().bearing(&admin)).await);
    assert_eq!(case.why_not("nonsense").await, "invalid bearer token");
    assert!(!known(&case.nobody().bearing("nonsense")).await);

    // For somebody else, it is no good here, and good there.
    let vault = case.token(json!({"audiences": ["vault"]})).await;
    assert!(case.why_not(&vault).await.contains("is invalid for the target audiences"));
    assert!(!known(&case.nobody().bearing(&vault)).await);
    assert_eq!(case.review(&vault, &["vault", "other"]).await["audiences"], json!(["vault"]));
    assert!(case.review(&token, &["vault"]).await["error"].as_str().unwrap().contains("is invalid for the target"));

    // Another server's token, with all the right claims.
    let other = Case::new().await;
    assert_eq!(case.why_not(&other.token(json!({})).await).await, "invalid signature, no keys found");
    assert!(case.admin.post(REVIEWS, &json!({"spec": {}})).await.refused(400).contains("token is required"));
}

#[tokio::test]
async fn tokens_end() {
    let clock = Arc::new(Ahead::default());
    let given = clock.clone();
    let case = Case::with(move |settings, _| settings.clock = given).await;
    let token = case.token(json!({"expirationSeconds": 600})).await;
    let client = case.nobody().bearing(&token);
    assert!(known(&client).await);
    clock.0.store(630, Ordering::SeqCst);
    assert!(known(&client).await, "clocks may differ a little");
    clock.0.store(700, Ordering::SeqCst);
    assert!(!known(&client).await);
    assert_eq!(case.why_not(&token).await, "service account token has expired");
}

#[tokio::test]
async fn revoked_tokens_end_at_once() {
    let case = Case::new().await;
    let pod = case.pod("p").await;
    let bound = |kind: &str, name: &str| json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name}});
    let mut wrong = bound("Pod", "p");
    wrong["boundObjectRef"]["uid"] = "other".into();
    assert!(case.ask(wrong).await.refused(409).contains("does not match the UID in record"));
    case.admin.post("/api/v1/namespaces/n/pods", &super::pod("stranger")).await.expect(201);
    assert!(case.ask(bound("Pod", "stranger")).await.refused(400).contains("different serviceaccount name"));

    let token = case.token(bound("Pod", "p")).await;
    let client = case.nobody().bearing(&token);
    assert!(known(&client).await);
    let extra = case.review(&token, &[]).await["user"]["extra"].clone();
    assert_eq!(extra["authentication.kubernetes.io/pod-name"], json!(["p"]));
    assert_eq!(extra["authentication.kubernetes.io/pod-uid"], json!([pod["metadata"]["uid"]]));
    case.admin.delete_with("/api/v1/namespaces/n/pods/p", &json!({"gracePeriodSeconds": 0})).await.expect(200);
    assert!(!known(&client).await);
    assert_eq!(case.why_not(&token).await, "service account token has been invalidated");
    // One of the same name is another one.
    case.pod("p").await;
    assert!(case.why_not(&token).await.contains("does not match service account pod ref claim"));

    case.secret("n", &json!({"metadata": {"name": "s"}})).await;
    case.admin.post("/api/v1/nodes", &json!({"metadata": {"name": "node-1"}})).await.expect(201);
    for (kind, name, path) in
        [("Secret", "s", "/api/v1/namespaces/n/secrets/s"), ("Node", "node-1", "/api/v1/nodes/node-1")]
    {
        let token = case.token(bound(kind, name)).await;
        let client = case.nobody().bearing(&token);
        assert!(known(&client).await, "{kind}");
        case.admin.delete(path).await.expect(200);
        assert!(!known(&client).await, "{kind}");
    }

    let token = case.token(json!({})).await;
    let client = case.nobody().bearing(&token);
    assert!(known(&client).await);
    case.admin.delete("/api/v1/namespaces/n/serviceaccounts/a").await.expect(200);
    assert!(!known(&client).await);
    case.admin.post("/api/v1/namespaces/n/serviceaccounts", &json!({"metadata": {"name": "a"}})).await.expect(201);
    assert!(case.why_not(&token).await.contains("does not match claim"));
}

#[tokio::test]
async fn rotated_keys() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_owned();
    let keep = |path: &Path| {
        let source = keys::Source::Folder(path.to_owned());
        move |settings: &mut api_server::Settings, _: &Path| settings.authentication.service_account_keys = source
    };
    let first = Case::with(keep(&path)).await;
    let old = first.token(json!({})).await;
    let kid = |token: &str| {
        let header = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
        serde_json::from_slice::<Value>(&header).unwrap()["kid"].clone()
    };
    fs::write(path.join("2.key"), api_server::authentication::jws::SigningKey::generate().unwrap()).unwrap();
    let second = Case::with(keep(&path)).await;
    let new = second.token(json!({})).await;
    assert_ne!(kid(&old), kid(&new));
    // The account is another server's, but the signature counts.
    assert!(second.why_not(&old).await.contains("does not match claim"));
    assert!(known(&second.nobody().bearing(&new)).await);
    fs::remove_file(path.join("1.key")).unwrap();
    let third = Case::with(keep(&path)).await;
    assert_eq!(third.why_not(&old).await, "invalid signature, no keys found");
    assert!(third.why_not(&new).await.contains("does not match claim"));

    // Others can verify what it signs.
    let about = third.admin.get("/.well-known/openid-configuration").await.expect(200);
    assert_eq!(about["issuer"], ISSUER);
    assert!(text(&about["jwks_uri"]).ends_with("/openid/v1/jwks"));
    let keys = third.admin.get("/openid/v1/jwks").await;
    assert_eq!(keys.header("content-type"), "application/jwk-set+json");
    assert_eq!(keys.json()["keys"][0]["kid"], kid(&new));
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path.join("2.key")).unwrap().permissions());
    assert_eq!(mode & 0o400, 0o400);
}

#[tokio::test]
async fn certificates_name_their_user() {
    let case = Case::new().await;
    let user = who(&case.admin).await.expect("the administrator is known");
    assert_eq!(user["username"], "test-admin");
    assert_eq!(user["groups"], json!(["system:masters", "system:authenticated"]));
    let id = text(&user["extra"]["authentication.kubernetes.io/credential-id"][0]);
    assert!(id.starts_with("X509SHA256=") && id.len() == 11 + 64, "{id}");
    // Of an authority that nobody knows.
    let folder = tempfile::tempdir().expect("a folder");
    let other = Authority::open(folder.path()).expect("an authority");
    let leaf = other.client("test-admin", "system:masters").expect("a certificate");
    let stranger = Client::new(case.server.address, Trust::stranger(&case.authority(), &leaf));
    assert_eq!(stranger.get("/version").await.refused(401), "Unauthorized");
    // A good token makes up for it.
    let token = case.token(json!({})).await;
    assert!(known(&stranger.bearing(&token)).await);
    // Without anything, one is anonymous.
    assert_eq!(case.nobody().get("/version").await.code, 200);
    assert!(case.nobody().get("/api/v1/nodes").await.refused(403).contains("User \"system:anonymous\" cannot list"));
}

#[tokio::test]
async fn bootstrap_tokens() {
    let clock = Arc::new(Ahead::default());
    let given = clock.clone();
    let case = Case::with(move |settings, _| settings.clock = given).await;
    let end = object_model::time::Time::from(SystemTime::now() + Duration::from_secs(300)).to_seconds().to_string();
    let mut secret = json!({
        "metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
            "auth-extra-groups": "system:bootstrappers:workers", "expiration": end,
        },
    });
    case.secret("kube-system", &secret).await;
    let token = "abcdef.0123456789abcdef";
    let status = case.review(token, &[]).await;
    assert_eq!(status["user"]["username"], "system:bootstrap:abcdef");
    let groups = json!(["system:bootstrappers", "system:bootstrappers:workers", "system:authenticated"]);
    assert_eq!(status["user"]["groups"], groups);
    assert_eq!(case.why_not("abcdef.0123456789abcdee").await, "invalid bearer token");
    let client = case.nobody().bearing(token);
    assert!(known(&client).await);
    clock.0.store(301, Ordering::SeqCst);
    assert!(!known(&client).await, "it has expired");

    secret["metadata"]["name"] = "bootstrap-token-fedcba".into();
    secret["stringData"]["token-id"] = "fedcba".into();
    secret["stringData"]["usage-bootstrap-authentication"] = "false".into();
    secret["stringData"]["expiration"] = "".into();
    case.secret("kube-system", &secret).await;
    assert_eq!(case.why_not("fedcba.0123456789abcdef").await, "invalid bearer token");
    let path = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-fedcba";
    let allow = json!({"stringData": {"usage-bootstrap-authentication": "true"}});
    case.admin.patch(path, MERGE_PATCH, &allow).await.expect(200);
    let client = case.nobody().bearing("fedcba.0123456789abcdef");
    assert!(known(&client).await);
    case.admin.delete(path).await.expect(200);
    assert!(!known(&client).await);
}

#[tokio::test]
async fn tokens_in_secrets() {
    let case = Case::new().await;
    let (filled, mut watch) = case.held().await;
    let decoded = |key: &str| String::from_utf8(STANDARD.decode(text(&filled["data"][key])).unwrap()).unwrap();
    assert_eq!(decoded("namespace"), "n");
    assert!(decoded("ca.crt").contains("BEGIN CERTIFICATE"));
    let token = decoded("token");
    assert_eq!(case.review(&token, &[]).await["user"]["username"], "system:serviceaccount:n:a");
    assert!(case.review(&token, &["vault"]).await["authenticated"].is_null());
    let client = case.nobody().bearing(&token);
    assert!(known(&client).await);
    let label = ["object", "metadata", "labels", "kubernetes.io/legacy-token-last-used"];
    let mut used = watch.next().await.expect("an event");
    while label.iter().fold(&used, |value, key| &value[key]).is_null() {
        used = watch.next().await.expect("it is noted when the token was used");
    }

    let held = "/api/v1/namespaces/n/secrets/held";
    let invalid = json!({"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": "2026-01-01"}}});
    case.admin.patch(held, MERGE_PATCH, &invalid).await.expect(200);
    assert!(case.why_not(&token).await.contains("has been marked invalid"));
    let valid = json!({"metadata": {"labels": null}});
    case.admin.patch(held, MERGE_PATCH, &valid).await.expect(200);
    assert!(known(&client).await);
    case.admin.delete("/api/v1/namespaces/n/serviceaccounts/a").await.expect(200);
    assert!(!known(&client).await);
    while let Some(event) = watch.next().await {
        if event["type"] == "DELETED" {
            break;
        }
    }
    assert_eq!(case.admin.get(held).await.code, 404);
}

#[tokio::test]
async fn static_tokens_and_closed_doors() {
    let case = Case::with(|settings, folder| {
        let (tokens, configuration) = (folder.join("tokens.csv"), folder.join("authentication.yaml"));
        fs::write(&tokens, "s3cret,ada,42,\"readers,system:masters\"\n").unwrap();
        let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous:\n  enabled: true\n  \
                    conditions:\n  - path: /livez\n";
        fs::write(&configuration, text).unwrap();
        settings.authentication.token_file = Some(tokens);
        settings.authentication.configuration = Some(configuration);
    })
    .await;
    let user = who(&case.nobody().bearing("s3cret")).await.expect("ada is known");
    assert_eq!((&user["username"], &user["uid"]), (&"ada".into(), &"42".into()));
    assert_eq!(user["groups"], json!(["readers", "system:masters", "system:authenticated"]));
    assert!(!known(&case.nobody().bearing("s3cre")).await);
    assert_eq!(case.nobody().get("/livez").await.code, 200);
    assert_eq!(case.nobody().get("/version").await.refused(401), "Unauthorized");
}

#[tokio::test]
async fn front_proxies() {
    let folder = tempfile::tempdir().expect("a folder");
    let proxies = Authority::open(folder.path()).expect("an authority");
    let trusted = certificates(&folder.path().join("ca.crt")).expect("its certificate");
    let case = Case::with(move |settings, _| {
        let named = front_proxy::Settings::new(trusted, vec!["front-proxy".into()]);
        settings.authentication.front_proxy = Some(named);
    })
    .await;
    let speaks_for = |client: &Client| {
        let client = client.saying("x-remote-user", "ada").saying("x-remote-uid", "7");
        client.saying("x-remote-group", "system:masters").saying("x-remote-extra-acme.com%2Fteam", "blue")
    };
    let with = |name: &str| {
        let leaf = proxies.client(name, "proxies").expect("a certificate");
        Client::new(case.server.address, Trust::stranger(&case.authority(), &leaf))
    };
    let user = who(&speaks_for(&with("front-proxy"))).await.expect("ada is known");
    assert_eq!((&user["username"], &user["uid"]), (&"ada".into(), &"7".into()));
    assert_eq!(user["groups"], json!(["system:masters", "system:authenticated"]));
    assert_eq!(user["extra"], json!({"acme.com/team": ["blue"]}));
    // A proxy of another name, one that names nobody, a client of the cluster, and nobody at all.
    assert_eq!(speaks_for(&with("other")).get("/version").await.code, 401);
    assert_eq!(with("front-proxy").get("/version").await.code, 401);
    assert_eq!(who(&speaks_for(&case.admin)).await.expect("the administrator is known")["username"], "test-admin");
    assert_eq!(who(&speaks_for(&case.nobody())).await, None);
    assert!(speaks_for(&case.nobody()).get("/api/v1/nodes").await.refused(403).contains("system:anonymous"));
}

/// Servers that are to know users as this one does find out how, also if somebody deletes what tells them.
#[tokio::test]
async fn other_servers_learn_by_which_authorities_users_are_known() {
    const PATH: &str = "/api/v1/namespaces/kube-system/configmaps";
    const NAME: &str = "extension-apiserver-authentication";
    let case = Case::with(|settings, _| {
        let proxies = settings.authentication.client_authorities.clone();
        settings.authentication.front_proxy = Some(front_proxy::Settings::new(proxies, vec!["front-proxy".into()]));
    })
    .await;
    let found = case.admin.get(&format!("{PATH}/{NAME}")).await.expect(200);
    let authority = case.authority();
    let same = |key: &str| found["data"][key].as_str().is_some_and(|text| is_same(text, authority.certificate_pem()));
    assert!(same("client-ca-file") && same("requestheader-client-ca-file"), "{found}");
    assert_eq!(found["data"]["requestheader-allowed-names"], r#"["front-proxy"]"#);
    let from = &found["metadata"]["resourceVersion"];
    let query = format!(
        "{PATH}?watch=1&fieldSelector=metadata.name={NAME}&resourceVersion={}",
        from.as_str().unwrap_or_default()
    );
    let mut watch = case.admin.watch(&query).await.expect("a watch");
    case.admin.delete(&format!("{PATH}/{NAME}")).await.expect(200);
    assert_eq!(watch.next().await.expect("an event")["type"], "DELETED");
    let again = watch.next().await.expect("an event");
    assert_eq!((&again["type"], &again["object"]["data"]), (&"ADDED".into(), &found["data"]));
}

/// However the lines are broken.
fn is_same(a: &str, b: &str) -> bool {
    a.split_whitespace().collect::<String>() == b.split_whitespace().collect::<String>()
}

/// Lets a user do what the rules say, everywhere.
async fn allow(case: &Case, user: &str, rules: Value) {
    let role = json!({"metadata": {"name": user}, "rules": rules});
    case.admin.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.expect(201);
    let binding = json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    case.admin.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.expect(201);
    // Permissions follow the store a moment later.
    case.admin.get("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings").await.expect(200);
}

#[tokio::test]
async fn acting_as_others() {
    let case = Case::new().await;
    let as_ada = case.admin.saying("impersonate-user", "ada");
    let user = who(&as_ada).await.expect("the administrator may be anybody");
    assert_eq!(user["username"], "ada");
    assert_eq!(user["groups"], json!(["system:authenticated"]));
    assert_eq!(user["extra"], Value::Null, "nothing of the administrator is left");
    assert!(as_ada.get("/api/v1/nodes").await.refused(403).contains("User \"ada\" cannot list"));
    let whole = as_ada.saying("impersonate-uid", "7").saying("impersonate-group", "readers");
    let whole = whole.saying("impersonate-extra-acme.com%2Fteam", "blue");
    let user = who(&whole).await.expect("with all that belongs to it");
    assert_eq!((&user["uid"], &user["groups"]), (&"7".into(), &json!(["readers", "system:authenticated"])));
    assert_eq!(user["extra"], json!({"acme.com/team": ["blue"]}));
    let account = case.admin.saying("impersonate-user", "system:serviceaccount:n:a");
    let groups = json!(["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"]);
    assert_eq!(who(&account).await.unwrap()["groups"], groups);
    let anonymous = case.admin.saying("impersonate-user", "system:anonymous");
    assert_eq!(anonymous.get("/api/v1/nodes").await.code, 403);
    assert!(
        case.admin.saying("impersonate-group", "g").get("/api").await.refused(400).contains("without impersonating")
    );

    // Without permission; with the old one; with one for a single verb.
    let eve = case.server.client_of("eve", "people");
    let refused = eve.saying("impersonate-user", "ada").get("/api/v1/nodes").await.refused(403);
    assert!(refused.contains("User \"eve\" cannot impersonate-on:user-info:list resource \"nodes\""), "{refused}");
    assert_eq!(who(&eve.saying("impersonate-user", "ada")).await, None);
    let old = json!([{"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["ada"]}]);
    allow(&case, "bob", old).await;
    let bob = case.server.client_of("bob", "people");
    assert_eq!(who(&bob.saying("impersonate-user", "ada")).await.expect("allowed by name")["username"], "ada");
    assert_eq!(who(&bob.saying("impersonate-user", "admin")).await, None);
    let masters = bob.saying("impersonate-user", "ada").saying("impersonate-group", "system:masters");
    assert_eq!(masters.get("/api/v1/nodes").await.code, 403);
    let narrow = json!([
        {"apiGroups": ["authentication.k8s.io"], "resources": ["users"], "verbs": ["impersonate:user-info"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["impersonate-on:user-info:create"]},
    ]);
    allow(&case, "carol", narrow).await;
    let carol = case.server.client_of("carol", "people").saying("impersonate-user", "ada");
    assert_eq!(who(&carol).await.expect("for this request")["username"], "ada");
    assert!(carol.get("/api/v1/nodes").await.refused(403).contains("User \"carol\" cannot"));
    let node = case.server.client_of("carol", "people").saying("impersonate-user", "system:node:n");
    assert_eq!(who(&node).await, None);
}

/// Which credential was issued to whom, which ones are used though they should not be, and by which right somebody acts as
/// somebody else.
#[tokio::test]
async fn credentials_can_be_traced() {
    let folder = tempfile::tempdir().expect("a folder");
    let policy =
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";
    let (audit, clock) = (audit::settings(folder.path(), policy), Arc::new(Ahead::default()));
    let given = clock.clone();
    let case = Case::with(move |settings, _| {
        settings.clock = given;
        settings.audit = Some(audit);
    })
    .await;
    // What is told of the request with this id.
    let told = |id: &str| {
        audit::events(folder.path()).into_iter().find(|event| event["auditID"] == id).expect("the request is recorded")
    };
    let note = |id: &str, key: &str| text(&told(id)["annotations"][key]);
    let get = async |token: &str, id: &str| case.nobody().bearing(token).saying("audit-id", id).get("/api").await.code;

    case.pod("p").await;
    let spec = json!({"expirationSeconds": 3607, "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p"}});
    let asking = case.admin.saying("audit-id", "issued");
    let path = "/api/v1/namespaces/n/serviceaccounts/a";
    let token =
        text(&asking.post(&format!("{path}/token"), &json!({"spec": spec})).await.expect(201)["status"]["token"]);
    let id = format!("JTI={}", text(&claims(&token)["jti"]));
    assert_eq!(note("issued", "authentication.kubernetes.io/issued-credential-id"), id);
    let stale = |id: &str| note(id, "authentication.k8s.io/stale-token");
    assert_eq!((get(&token, "fresh").await, stale("fresh")), (200, String::new()));
    clock.0.store(3700, Ordering::SeqCst);
    for id in ["stale", "remembered"] {
        assert_eq!(get(&token, id).await, 200);
        let text = stale(id);
        let late = text.strip_prefix("subject: system:serviceaccount:n:a, seconds after warning threshold: ");
        assert!(late.and_then(|late| late.parse().ok()).is_some_and(|late: u64| late >= 90), "{text}");
    }

    let (filled, _watch) = case.held().await;
    let token = String::from_utf8(STANDARD.decode(text(&filled["data"]["token"])).expect("base64")).expect("a token");
    let legacy = |id: &str, rest: &str| note(id, &format!("authentication.k8s.io/legacy-token{rest}"));
    assert_eq!(get(&token, "manual").await, 200);
    assert_eq!(legacy("manual", ""), "system:serviceaccount:n:a");
    assert_eq!(
        (legacy("manual", "-manual-secret"), legacy("manual", "-autogenerated-secret")),
        ("held".into(), "".into())
    );
    case.admin.patch(path, MERGE_PATCH, &json!({"secrets": [{"name": "held"}]})).await.expect(200);
    assert_eq!((get(&token, "made").await, legacy("made", "-autogenerated-secret")), (200, "held".into()));
    let invalid = json!({"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": "2026-01-01"}}});
    case.admin.patch("/api/v1/namespaces/n/secrets/held", MERGE_PATCH, &invalid).await.expect(200);
    assert_eq!((get(&token, "invalid").await, legacy("invalid", "-invalidated")), (401, "held/n".into()));

    let by_name = json!([{"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}]);
    allow(&case, "bob", by_name).await;
    for (user, group, constraint) in [("bob", "people", ""), ("root", "system:masters", "impersonate:user-info")] {
        let client = case.server.client_of(user, group).saying("impersonate-user", "ada").saying("audit-id", user);
        client.get("/api").await.expect(200);
        let event = told(user);
        assert_eq!(event["impersonatedUser"]["username"], "ada");
        assert_eq!(text(&event["authenticationMetadata"]["impersonationConstraint"]), constraint, "{event}");
    }
}

/// A CertificateSigningRequest, and the key it is for.
fn asked(name: &str, user: &str, group: &str, signer: &str) -> (Value, rcgen::KeyPair) {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, group);
    params.distinguished_name.push(rcgen::DnType::CommonName, user);
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    let usages = json!(["client auth", "digital signature", "key encipherment"]);
    let spec =
        json!({"request": STANDARD.encode(pem), "signerName": signer, "usages": usages, "expirationSeconds": 3600});
    (json!({"metadata": {"name": name}, "spec": spec}), key)
}

/// Waits for the request to have a certificate, and comes back as whom it makes.
async fn certified(case: &Case, made: &Value, key: &rcgen::KeyPair) -> Client {
    let name = text(&made["metadata"]["name"]);
    let path = format!("{CSRS}?watch=1&fieldSelector=metadata.name={name}&resourceVersion={}", super::version(made));
    let mut watch = case.admin.watch(&path).await.expect("a watch");
    let certificate = loop {
        let status = watch.next().await.expect("an event")["object"]["status"].clone();
        assert!(!status.to_string().contains("Failed"), "{status}");
        if status["certificate"].is_string() {
            break STANDARD.decode(text(&status["certificate"])).unwrap();
        }
    };
    let leaf = api_server::serving::authority::Leaf {
        certificate_pem: String::from_utf8(certificate).unwrap(),
        key_pem: key.serialize_pem(),
    };
    Client::new(case.server.address, Trust::stranger(&case.authority(), &leaf))
}

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

#[tokio::test]
async fn certificates_on_request() {
    let case = Case::new().await;
    // Somebody asks, the administrator approves.
    let (request, key) = asked("ada", "ada", "readers", "kubernetes.io/kube-apiserver-client");
    let mut made = case.admin.post(CSRS, &request).await.expect(201);
    let id = text(&made["spec"]["extra"]["authentication.kubernetes.io/credential-id"][0]);
    assert!(id.starts_with("X509SHA256="), "{made}");
    made["status"] = json!({"conditions": [{"type": "Approved", "status": "True", "reason": "Test", "message": ""}]});
    case.admin.put(&format!("{CSRS}/ada/approval"), &made).await.expect(200);
    let ada = certified(&case, &made, &key).await;
    let user = who(&ada).await.expect("ada is known");
    assert_eq!((&user["username"], &user["groups"]), (&"ada".into(), &json!(["readers", "system:authenticated"])));

    // A machine joins with a bootstrap token: nobody needs to approve.
    let secret = json!({
        "metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"},
    });
    case.secret("kube-system", &secret).await;
    for (name, role) in [
        ("join", "system:node-bootstrapper"),
        ("approve", "system:certificates.k8s.io:certificatesigningrequests:nodeclient"),
    ] {
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:bootstrappers"}],
        });
        case.admin.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.expect(201);
    }
    case.admin.get("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings").await.expect(200);
    let joining = case.nobody().bearing("abcdef.0123456789abcdef");
    let (request, key) = asked("node", "system:node:n1", "system:nodes", "kubernetes.io/kube-apiserver-client-kubelet");
    let made = joining.post(CSRS, &request).await.expect(201);
    assert_eq!(made["spec"]["username"], "system:bootstrap:abcdef");
    let node = certified(&case, &made, &key).await;
    assert_eq!(who(&node).await.expect("the node is known")["username"], "system:node:n1");

    // Approved by mistake, and not what the signer signs.
    let (request, _) = asked("wrong", "system:node:n2", "people", "kubernetes.io/kube-apiserver-client-kubelet");
    let mut made = case.admin.post(CSRS, &request).await.expect(201);
    made["status"] = json!({"conditions": [{"type": "Approved", "status": "True", "reason": "Test", "message": ""}]});
    let made = case.admin.put(&format!("{CSRS}/wrong/approval"), &made).await.expect(200);
    let path = format!("{CSRS}?watch=1&fieldSelector=metadata.name=wrong&resourceVersion={}", super::version(&made));
    let mut watch = case.admin.watch(&path).await.expect("a watch");
    let failed = watch.next().await.expect("an event")["object"]["status"]["conditions"].to_string();
    assert!(failed.contains("subject organization is not system:nodes"), "{failed}");
}

/// Nobody becomes a master, or another node, by a request that looks different to those who judge it and those who sign it.
#[tokio::test]
async fn certificates_for_others() {
    let case = Case::new().await;
    let pem = |request: &Value| String::from_utf8(STANDARD.decode(text(&request["spec"]["request"])).unwrap()).unwrap();
    let client = "kubernetes.io/kube-apiserver-client";
    let (mut master, _) = asked("master", "eve", "system:masters", client);
    let refused = case.admin.post(CSRS, &master).await.refused(403);
    assert!(refused.ends_with("signer with system:masters group is not allowed"), "{refused}");
    // Some readers of PEM take a carriage return for the end of a line.
    let harmless = pem(&asked("harmless", "ada", "readers", client).0);
    for hidden in [format!("x\r{}{harmless}", pem(&master)), format!("{harmless}{}", pem(&master))] {
        master["spec"]["request"] = STANDARD.encode(hidden).into();
        let refused = case.admin.post(CSRS, &master).await.refused(403);
        assert!(refused.ends_with("failed to parse CSR: there must be one PEM block only"), "{refused}");
    }
    let node = case.server.client_of("system:node:n1", "system:nodes");
    for signer in ["kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"] {
        let (other, _) = asked("other", "system:node:n2", "system:nodes", signer);
        let refused = node.post(CSRS, &other).await.refused(403);
        assert!(refused.ends_with("can only create a node CSR with CN=system:node:n1"), "{refused}");
    }
}

/// Another server's service accounts are known here, by their issuer's keys or by asking it: both over the network.
#[tokio::test]
async fn issuers_and_webhooks() {
    let there = Case::with(|settings, _| {
        settings.authentication.service_account_issuers = vec!["https://there.example".into()];
    })
    .await;
    let everybody = json!({
        "metadata": {"name": "keys-for-everybody"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:service-account-issuer-discovery",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:unauthenticated"}],
    });
    there.admin.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &everybody).await.expect(201);
    let (address, authority) = (there.server.address, there.authority().certificate_pem().to_owned());
    let kubeconfig = fs::read_to_string(there.server.kubeconfig()).expect("a kubeconfig");
    let here = Case::with(move |settings, folder| {
        let configuration = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
            "jwt": [{
                "issuer": {
                    "url": "https://there.example", "audiences": ["here"], "certificateAuthority": authority,
                    "discoveryURL": format!("https://{address}/.well-known/openid-configuration"),
                },
                "claimMappings": {"username": {"claim": "sub", "prefix": "there:"}},
            }],
        });
        let (file, webhook) = (folder.join("authentication.json"), folder.join("webhook"));
        fs::write(&file, configuration.to_string()).unwrap();
        let reviews = format!("https://{address}{REVIEWS}");
        fs::write(&webhook, kubeconfig.replace(&format!("https://{address}"), &reviews)).unwrap();
        settings.authentication.configuration = Some(file);
        settings.authentication.webhook = Some(api_server::authentication::webhook::Settings { kubeconfig: webhook });
    })
    .await;
    let token = there.token(json!({"audiences": ["here"]})).await;
    let user = here.review(&token, &[]).await["user"].clone();
    assert_eq!(user["username"], "there:system:serviceaccount:n:a");
    assert!(known(&here.nobody().bearing(&token)).await);
    let forged = forged(&token, |claims| claims["sub"] = "system:admin".into());
    assert!(here.why_not(&forged).await.contains("oidc: verify token: failed to verify signature"));
    // For an audience that the configuration does not name, only the other server itself can tell.
    let token = there.token(json!({"audiences": [ISSUER]})).await;
    assert_eq!(here.review(&token, &[]).await["user"]["username"], "system:serviceaccount:n:a");
    there.admin.delete("/api/v1/namespaces/n/serviceaccounts/a").await.expect(200);
    assert!(here.why_not(&token).await.contains("serviceaccounts \"a\" not found"));
}
