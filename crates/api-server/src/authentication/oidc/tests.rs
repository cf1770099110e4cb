use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use serde_json::json;

use super::*;
use crate::{authentication::jws::SigningKey, clock::SystemClock, context::Annotations};

fn configuration() -> Value {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {"url": "https://issuer.example", "audiences": ["ferry"]},
            "claimValidationRules": [{"claim": "hd", "requiredValue": "example.org"}],
            "claimMappings": {
                "username": {"claim": "email", "prefix": "oidc:"},
                "groups": {"claim": "groups", "prefix": "g:"},
                "uid": {"claim": "sub"},
            },
        }],
        "anonymous": {"enabled": true, "conditions": [{"path": "/livez"}]},
    })
}

fn key() -> SigningKey {
    let pem = SigningKey::generate().unwrap();
    SigningKey::from_der(&PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap()
}

struct Case {
    issuers: Issuers,
    key: SigningKey,
    _folder: tempfile::TempDir,
}

impl Case {
    fn new() -> Self {
        Self::configured(configuration())
    }

    fn configured(mut value: Value) -> Self {
        let (folder, key) = (tempfile::tempdir().unwrap(), key());
        let path = folder.path().join("keys.json");
        std::fs::write(&path, json!({"keys": [key.public.to_jwk()]}).to_string()).unwrap();
        value["jwt"][0]["issuer"]["discoveryURL"] = format!("file://{}", path.display()).into();
        let configuration = Configuration::from_value(&value).unwrap();
        let issuers = Issuers::new(configuration.issuers, &[], Arc::new(SystemClock)).unwrap();
        Self { issuers, key, _folder: folder }
    }

    fn claims() -> Value {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        json!({
            "iss": "https://issuer.example", "aud": ["other", "ferry"], "exp": now + 60, "sub": "42", "hd": "example.org",
            "email": "ada@example.org", "email_verified": true, "groups": ["a", "b"],
        })
    }

    async fn token(&self, change: impl FnOnce(&mut Value)) -> Result<Option<Known>, Denied> {
        let mut claims = Self::claims();
        change(&mut claims);
        self.issuers.token(&self.key.sign(&claims).unwrap(), &[], &Annotations::default()).await
    }

    async fn refused(&self, change: impl FnOnce(&mut Value)) -> String {
        self.token(change).await.unwrap_err().0
    }
}

#[tokio::test]
async fn claims_become_a_user() {
    let case = Case::new();
    let user = case.token(|_| {}).await.unwrap().unwrap().user;
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("oidc:ada@example.org", "42"));
    assert_eq!(user.groups, ["g:a", "g:b"]);
    let user = case.token(|claims| claims["groups"] = "one".into()).await.unwrap().unwrap().user;
    assert_eq!(user.groups, ["g:one"]);
}

#[tokio::test]
async fn tokens_that_are_not_good() {
    let case = Case::new();
    assert_eq!(case.refused(|c| c["exp"] = 1.into()).await, "oidc: verify token: token is expired");
    assert!(case.refused(|c| c["aud"] = "other".into()).await.contains("expected audience"));
    assert!(case.refused(|c| c["hd"] = "evil.example".into()).await.contains("required claim hd"));
    assert_eq!(case.refused(|c| c["email_verified"] = false.into()).await, "oidc: email not verified");
    assert_eq!(case.refused(|c| c["email_verified"] = "true".into()).await, "oidc: email not verified");
    assert!(case.refused(|c| c["groups"] = json!([1])).await.contains("groups"));
    assert!(case.token(|c| c["iss"] = "https://other.example".into()).await.unwrap().is_none());
    let forged = key().sign(&Case::claims()).unwrap();
    assert!(
        case.issuers
            .token(&forged, &[], &Annotations::default())
            .await
            .unwrap_err()
            .0
            .contains("failed to verify signature")
    );
}

#[tokio::test]
async fn expressions_map_and_judge_claims() {
    let mut value = configuration();
    value["jwt"][0]["claimMappings"] = json!({
        "username": {"expression": "claims.email_verified ? 'oidc:' + claims.email : ''"},
        "groups": {"expression": "claims.groups.map(g, 'g:' + g) + (has(claims.team) ? [claims.team] : [])"},
        "uid": {"expression": "claims.sub + '@' + claims.hd"},
        "extra": [
            {"key": "example.org/level", "valueExpression": "string(claims.?level.orValue(0))"},
            {"key": "example.org/none", "valueExpression": "claims.?nothing.orValue('')"},
        ],
    });
    value["jwt"][0]["claimValidationRules"] =
        json!([{"expression": "claims.hd.endsWith('.org')", "message": "only organisations"}]);
    value["jwt"][0]["userValidationRules"] =
        json!([{"expression": "!user.username.startsWith('oidc:system:')", "message": "a reserved name"}]);
    let case = Case::configured(value);
    let user = case.token(|claims| claims["level"] = 3.into()).await.unwrap().unwrap().user;
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("oidc:ada@example.org", "42@example.org"));
    assert_eq!(user.groups, ["g:a", "g:b"]);
    assert_eq!(user.extra, [("example.org/level".to_owned(), vec!["3".to_owned()])]);
    let why = case.refused(|c| c["hd"] = "example.com".into()).await;
    assert!(why.ends_with("validation expression 'claims.hd.endsWith('.org')' failed: only organisations"), "{why}");
    let why = case.refused(|c| c["email"] = "system:admin".into()).await;
    assert!(why.ends_with("failed: a reserved name"), "{why}");
    let why = case.refused(|c| c["email_verified"] = false.into()).await;
    assert_eq!(why, "oidc: empty username via CEL expression is not allowed");
    let why = case.refused(|c| c["sub"] = 1.into()).await;
    assert_eq!(why, "oidc: error evaluating uid claim expression: no such overload");
}

#[test]
fn configurations_are_checked_whole() {
    let read = Configuration::from_value(&configuration()).unwrap();
    assert_eq!(read.anonymous.unwrap().paths, ["/livez"]);
    let mut bad = configuration();
    bad["jwt"][0]["issuer"]["url"] = "http://issuer.example".into();
    bad["jwt"][0]["issuer"]["audiences"] = json!(["a", "b"]);
    bad["jwt"][0]["claimMappings"]["username"] = json!({"expression": "claims.email"});
    bad["jwt"][0]["claimMappings"]["groups"] = json!({"claim": "groups"});
    bad["jwt"][0]["userValidationRules"] = json!([{"expression": "user.name == ''"}]);
    bad["jwt"][0]["claimValidationRules"] = json!([{"expression": "", "mesage": "m"}]);
    bad["jwt"][0]["claimMappings"]["extra"] = json!([{"key": "a.org/b", "valueExpression": "claims.sub", "keys": 1}]);
    bad["jwt"][0]["claimMappings"]["uid"] = json!({"claim": "sub", "prefix": ""});
    bad["anonymous"]["conditions"][0]["paths"] = json!([]);
    bad["jwt"][0]["wheels"] = 4.into();
    let problems = Configuration::from_value(&bad).unwrap_err().join("\n");
    for wanted in [
        "jwt[0].issuer.url",
        "jwt[0].issuer.audienceMatchPolicy: must be MatchAny",
        "jwt[0].claimMappings.username.expression: claims.email_verified must be used",
        "jwt[0].claimMappings.groups.prefix: is required",
        "jwt[0].userValidationRules[0].expression: Invalid value: \"user.name == ''\": compilation failed: ERROR: <input>:1:5",
        "jwt[0].claimValidationRules[0]: claim or expression is required",
        "jwt[0].wheels: unknown field",
        "jwt[0].claimValidationRules[0].mesage: unknown field",
        "jwt[0].claimMappings.extra[0].keys: unknown field",
        "jwt[0].claimMappings.uid.prefix: unknown field",
        "anonymous.conditions[0].paths: unknown field",
    ] {
        assert!(problems.contains(wanted), "{wanted}\n{problems}");
    }
}
