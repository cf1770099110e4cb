//! The signers of Kubernetes, who make certificates for approved CertificateSigningRequests; the approver of requests that
//! nodes make for themselves; and the end of requests that have served their purpose.
//!
//! One loop follows the requests in the watch cache and acts on each as `certificate-controller`, by requests that take the
//! same road as everybody's. What it does to a request depends on nothing but the request, so that several servers may run
//! it: whoever is later meets a conflict, and leaves it at that.

mod der;
pub(crate) mod issue;
pub(crate) mod request;

use std::{
    sync::{Arc, LazyLock},
    time::{Duration, SystemTime},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use hyper::Method;
use object_model::{meta::Meta, time::Time, value::Fields};
use request::{KUBELET_CLIENT, Request};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::{
    Server,
    catalogue::store_prefix,
    context::User,
    serving::authority::Authority,
    watch_cache::{Entry, Scope},
};

const KIND: &str = "CertificateSigningRequest";
const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// How long what is done stays to be seen.
const DONE_STAYS: Duration = Duration::from_secs(3600);
/// How long what nobody has finished stays.
const UNDONE_STAYS: Duration = Duration::from_secs(24 * 3600);
const AGAIN: Duration = Duration::from_secs(5);
const SHORTEST: Duration = Duration::from_secs(600);

static IDENTITY: LazyLock<Arc<User>> =
    LazyLock::new(|| Arc::new(User::service_account("kube-system", "certificate-controller")));

/// How certificates are signed.
#[derive(Clone)]
pub struct Signing {
    pub authority: Arc<Authority>,
    /// How long certificates live, unless a shorter time is asked for.
    pub lifetime: Duration,
}

impl Signing {
    pub fn new(authority: Arc<Authority>) -> Self {
        Self { authority, lifetime: Duration::from_secs(365 * 24 * 3600) }
    }
}

/// Works on requests until the server stops.
pub async fn run(server: Arc<Server>, signing: Signing) {
    let stopped = server.drain.clone();
    let controller = Controller { server, signing };
    tokio::select! {
        () = controller.follow() => {}
        () = stopped.cancelled() => {}
    }
}

struct Controller {
    server: Arc<Server>,
    signing: Signing,
}

impl Controller {
    async fn follow(&self) {
        let cache = &self.server.registry.cache;
        let requests = cache.resource(&store_prefix("certificates.k8s.io", "certificatesigningrequests"));
        loop {
            let (snapshot, revision) = cache.snapshot(&requests);
            let Ok(mut watcher) = requests.watch(Scope::All, revision) else {
                tokio::time::sleep(AGAIN).await;
                continue;
            };
            let mut next: Option<SystemTime> = None;
            for entry in snapshot.objects.values() {
                self.handle(entry, &mut next).await;
            }
            drop(snapshot);
            loop {
                let wait = next.map(|at| at.duration_since(self.now()).unwrap_or_default());
                let event = tokio::select! {
                    event = watcher.next() => event,
                    // Something is due: everything is looked at again.
                    () = tokio::time::sleep(wait.unwrap_or(Duration::MAX)), if wait.is_some() => break,
                };
                match event {
                    Ok(event) => {
                        if let Some(entry) = &event.after {
                            self.handle(entry, &mut next).await;
                        }
                    }
                    Err(_) => break,
                }
            }
        }
    }

    fn now(&self) -> SystemTime {
        self.server.registry.clock.now()
    }

    /// Does to a request what is due, and notes when something will be.
    async fn handle(&self, entry: &Entry, next: &mut Option<SystemTime>) {
        let object = entry.object(KIND);
        let due = match self.reconcile(&object).await {
            Ok(due) => due,
            Err(why) => {
                tracing::warn!(request = %entry.name, %why, "a certificate signing request could not be handled");
                Some(self.now() + AGAIN)
            }
        };
        if let Some(due) = due {
            *next = Some(next.map_or(due, |known| known.min(due)));
        }
    }

    /// When the request will have to be looked at again.
    async fn reconcile(&self, object: &Value) -> Result<Option<SystemTime>, String> {
        let name = Meta::of(object).name();
        let end = ends(object);
        if end.is_some_and(|end| end <= self.now()) {
            let uid = json!({"preconditions": {"uid": Meta::of(object).uid()}});
            self.call(Method::DELETE, &format!("{PATH}/{name}"), &uid).await?;
            return Ok(None);
        }
        let issued = !object.text_at(&["status", "certificate"]).is_empty();
        if issued || has(object, "Denied") || has(object, "Failed") {
            return Ok(end);
        }
        if has(object, "Approved") {
            self.sign(object).await?
        } else {
            self.approve(object).await?
        }
        Ok(end)
    }

    /// Signs an approved request, or says why it cannot be signed.
    async fn sign(&self, object: &Value) -> Result<(), String> {
        let signer = object.text_at(&["spec", "signerName"]);
        if !request::SIGNERS.contains(&signer) {
            return Ok(());
        }
        let usages: Vec<&str> = object["spec"].items("usages").iter().filter_map(Value::as_str).collect();
        let judged = Request::signed(object).and_then(|request| request.judged_by(signer, &usages).map(|()| request));
        let mut signed = object.clone();
        match judged {
            Ok(request) => {
                let asked = object["spec"].int("expirationSeconds").and_then(|s| u64::try_from(s).ok());
                let most = self.signing.lifetime;
                let lifetime = asked.map_or(most, |s| Duration::from_secs(s).clamp(SHORTEST.min(most), most));
                let pem = issue::sign(&request, &usages, lifetime, &self.signing.authority, self.now())?;
                signed["status"]["certificate"] = STANDARD.encode(pem).into();
            }
            Err(why) => add_condition(&mut signed, "Failed", "SignerValidationFailure", &why),
        }
        self.call(Method::PUT, &format!("{PATH}/{}/status", Meta::of(object).name()), &signed).await.map(drop)
    }

    /// Approves what a node asks for itself, if the requester may have that without being asked.
    async fn approve(&self, object: &Value) -> Result<(), String> {
        if object.text_at(&["spec", "signerName"]) != KUBELET_CLIENT {
            return Ok(());
        }
        let usages: Vec<&str> = object["spec"].items("usages").iter().filter_map(Value::as_str).collect();
        let Ok(request) = Request::signed(object) else { return Ok(()) };
        if request.judged_by(KUBELET_CLIENT, &usages).is_err() {
            return Ok(());
        }
        let itself = object.text_at(&["spec", "username"]) == request.common_name;
        let kinds = [
            ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."),
            ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."),
        ];
        for (kind, message) in kinds.into_iter().filter(|(kind, _)| itself || *kind == "nodeclient") {
            if self.may(object, kind).await? {
                let mut approved = object.clone();
                add_condition(&mut approved, "Approved", "AutoApproved", message);
                let path = format!("{PATH}/{}/approval", Meta::of(object).name());
                return self.call(Method::PUT, &path, &approved).await.map(drop);
            }
        }
        Ok(())
    }

    async fn may(&self, object: &Value, kind: &str) -> Result<bool, String> {
        let spec = &object["spec"];
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": spec.text("username"),
                "uid": spec.text("uid"),
                "groups": spec.items("groups"),
                "extra": spec.object("extra").cloned().unwrap_or_else(|| json!({})),
                "resourceAttributes": {
                    "group": "certificates.k8s.io", "version": "*", "resource": "certificatesigningrequests",
                    "subresource": kind, "verb": "create",
                },
            },
        });
        let answer = self.call(Method::POST, "/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await?;
        Ok(answer["status"].flag("allowed") == Some(true))
    }

    /// A request in the controller's own name. That somebody else was faster is no failure.
    async fn call(&self, method: Method, path: &str, body: &Value) -> Result<Value, String> {
        let (code, answer) = self.server.exchange(&IDENTITY, method, path, body).await;
        if code.is_success() || matches!(code.as_u16(), 404 | 409) {
            Ok(answer)
        } else {
            Err(answer.text("message").to_owned())
        }
    }
}

fn conditions(object: &Value) -> &[Value] {
    object.object("status").map(|status| status.items("conditions")).unwrap_or_default()
}

fn has(object: &Value, kind: &str) -> bool {
    conditions(object).iter().any(|condition| condition.text("type") == kind)
}

fn add_condition(object: &mut Value, kind: &str, reason: &str, message: &str) {
    let mut all = conditions(object).to_vec();
    all.push(json!({"type": kind, "status": "True", "reason": reason, "message": message}));
    object["status"]["conditions"] = all.into();
}

/// When a request has served its purpose.
fn ends(object: &Value) -> Option<SystemTime> {
    let issued = object.text_at(&["status", "certificate"]);
    let after = |text: &str, stays: Duration| Time::parse(text).ok().map(|time| system_time(time) + stays);
    if conditions(object).is_empty() {
        return after(object.text_at(&["metadata", "creationTimestamp"]), UNDONE_STAYS);
    }
    let of = |condition: &Value| {
        let stays = match condition.text("type") {
            "Denied" | "Failed" => DONE_STAYS,
            "Approved" if issued.is_empty() => UNDONE_STAYS,
            "Approved" => DONE_STAYS,
            _ => return None,
        };
        after(condition.text("lastUpdateTime"), stays)
    };
    conditions(object).iter().filter_map(of).chain(not_after(issued)).min()
}

/// When an issued certificate ends.
fn not_after(certificate: &str) -> Option<SystemTime> {
    let der = CertificateDer::from_pem_slice(&STANDARD.decode(certificate).ok()?).ok()?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(certificate.validity().not_after.timestamp().try_into().ok()?))
}

fn system_time(time: Time) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(time.unix_seconds()).unwrap_or_default())
}

#[cfg(test)]
mod tests;
