//! Whether the server lives and is ready, by named checks.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use hyper::{
    Response, StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
};

use crate::{body::Body, request_info::pairs};

/// Something that must be well: its name, and what is wrong with it if anything is.
pub type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// What Kubernetes calls the check of the store, whichever it is.
const STORE: &str = "etcd";

/// Is this the path of a health check?
pub fn is_asked_by(path: &str) -> bool {
    matches!(path.split('/').nth(1), Some("livez" | "readyz" | "healthz"))
}

#[derive(Default)]
pub struct Health {
    checks: Mutex<Vec<(&'static str, Check)>>,
    draining: AtomicBool,
}

impl Health {
    pub fn add(&self, name: &'static str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner).push((name, Box::new(check)));
    }

    /// How the part with this name is, if it has a check.
    pub fn check(&self, name: &str) -> Option<Result<(), String>> {
        let checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        checks.iter().find(|(known, _)| *known == name).map(|(_, check)| check())
    }

    /// From now on the server is not ready: it is about to stop.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Answers `/livez`, `/readyz`, `/healthz` and their single checks; `None` for other paths. `store` says whether the
    /// store answers.
    pub fn answer(&self, path: &str, query: &str, store: Result<(), String>) -> Option<Response<Body>> {
        let mut parts = path.trim_start_matches('/').splitn(2, '/');
        let endpoint = parts.next().filter(|e| matches!(*e, "livez" | "readyz" | "healthz"))?;
        let single = parts.next().filter(|name| !name.is_empty());
        let excluded: Vec<String> = pairs(query).filter(|(k, _)| k == "exclude").map(|(_, v)| v).collect();
        let verbose = pairs(query).any(|(k, _)| k == "verbose");
        let mut results = self.results(endpoint, store);
        if let Some(name) = single {
            results.retain(|(n, _)| *n == name);
            if results.is_empty() {
                return None;
            }
        }
        let mut text = String::new();
        let mut healthy = true;
        for (name, result) in &results {
            if excluded.iter().any(|e| e == name) {
                text.push_str(&format!("[+]{name} excluded: ok\n"));
            } else if result.is_ok() {
                text.push_str(&format!("[+]{name} ok\n"));
            } else {
                healthy = false;
                text.push_str(&format!("[-]{name} failed: reason withheld\n"));
            }
        }
        for (name, why) in results.iter().filter_map(|(n, r)| r.as_ref().err().map(|e| (n, e))) {
            tracing::warn!(check = name, %why, "{endpoint} check failed");
        }
        let (code, body) = match (healthy, verbose && single.is_none()) {
            (true, false) => (StatusCode::OK, "ok".to_owned()),
            (true, true) => (StatusCode::OK, format!("{text}{endpoint} check passed\n")),
            (false, _) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{text}{endpoint} check failed\n")),
        };
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = code;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        Some(response)
    }

    fn results(&self, endpoint: &str, store: Result<(), String>) -> Vec<(&'static str, Result<(), String>)> {
        let mut results = vec![("ping", Ok(())), (STORE, store)];
        if endpoint != "livez" {
            let checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
            results.extend(checks.iter().map(|(name, check)| (*name, check())));
        }
        if endpoint == "readyz" {
            let draining = self.draining.load(Ordering::Acquire);
            results.push(("shutdown", if draining { Err("the server is stopping".into()) } else { Ok(()) }));
        }
        results
    }
}
