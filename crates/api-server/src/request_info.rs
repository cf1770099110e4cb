//! What a request asks for, read from its method, path and query alone.
//!
//! Kubernetes' `RequestInfo`: authorization, fairness, audit and routing all work on it.

use std::borrow::Cow;

use hyper::Method;

/// What a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Below `/api` or `/apis` with a version and a resource; otherwise only `path` and `verb` are meaningful.
    pub is_resource: bool,
    pub path: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for other paths the method in
    /// lower case.
    pub verb: &'static str,
    pub group: String,
    pub version: String,
    pub namespace: String,
    pub resource: String,
    pub subresource: String,
    pub name: String,
    /// What follows the subresource, as for proxies, without a leading slash.
    pub rest: String,
    /// The path begins with `watch/`: the old way to watch, which knows neither subresources nor other methods.
    pub watch_prefix: bool,
}

impl RequestInfo {
    pub fn read(method: &Method, path: &str, query: &str) -> Self {
        let mut info = Self { path: path.to_owned(), verb: method_verb(method), ..Self::default() };
        let raw: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
        let mut parts = match raw.as_slice() {
            ["api", version, rest @ ..] if !version.is_empty() => {
                info.version = (*version).to_owned();
                rest
            }
            ["apis", group, version, rest @ ..] if !group.is_empty() && !version.is_empty() => {
                info.group = (*group).to_owned();
                info.version = (*version).to_owned();
                rest
            }
            _ => return info,
        };
        while let [most @ .., ""] = parts {
            parts = most;
        }
        if let ["watch", rest @ ..] = parts
            && !rest.is_empty()
        {
            (info.watch_prefix, parts) = (true, rest);
        }
        let Some(first) = parts.first() else { return info };
        // Nothing has an empty name; what is proxied may have any path.
        if parts.iter().position(|p| p.is_empty()).is_some_and(|at| at < 5 && !parts[..at].contains(&"proxy")) {
            return info;
        }
        info.is_resource = true;
        if *first == "namespaces" && parts.len() > 1 {
            info.namespace = decoded(parts[1]);
            // `namespaces/NAME[/status|/finalize]` is the namespace itself; all else is inside it.
            if parts.len() > 2 && !matches!(parts[2], "status" | "finalize") {
                parts = &parts[2..];
            }
        }
        info.resource = decoded(parts[0]);
        info.name = parts.get(1).map(|p| decoded(p)).unwrap_or_default();
        info.subresource = parts.get(2).map(|p| decoded(p)).unwrap_or_default();
        if parts.len() > 3 {
            // Proxied paths are passed on as they came, so they are not decoded.
            let skipped: usize = raw.len() - trailing(&raw, parts) + 3;
            info.rest = raw[skipped..].join("/");
        }
        info.verb = resource_verb(method, &info, query);
        info
    }

    /// Watches and streams: they last as long as both ends want.
    pub fn is_long_running(&self) -> bool {
        self.verb == "watch" || matches!(self.subresource.as_str(), "attach" | "exec" | "log" | "portforward" | "proxy")
    }

    /// `group/version`, or the version alone for the core group.
    pub fn api_version(&self) -> Cow<'_, str> {
        if self.group.is_empty() {
            Cow::Borrowed(&self.version)
        } else {
            Cow::Owned(format!("{}/{}", self.group, self.version))
        }
    }
}

/// How many of `raw`'s parts belong to `parts`, trailing empty ones included.
fn trailing(raw: &[&str], parts: &[&str]) -> usize {
    let empty = raw.iter().rev().take_while(|p| p.is_empty()).count();
    parts.len() + empty
}

fn resource_verb(method: &Method, info: &RequestInfo, query: &str) -> &'static str {
    match method_verb(method) {
        // The path says so, whatever the method.
        _ if info.watch_prefix => "watch",
        "get" | "head" if info.name.is_empty() => {
            if asks_to_watch(query) {
                "watch"
            } else {
                "list"
            }
        }
        "head" => "get",
        "post" => "create",
        "put" => "update",
        "delete" if info.name.is_empty() => "deletecollection",
        other => other,
    }
}

fn method_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        Method::CONNECT => "connect",
        Method::TRACE => "trace",
        _ => "",
    }
}

fn asks_to_watch(query: &str) -> bool {
    pairs(query).any(|(key, value)| key == "watch" && !matches!(&*value.to_ascii_lowercase(), "false" | "0"))
}

/// The pairs of a query, decoded.
pub fn pairs(query: &str) -> impl Iterator<Item = (String, String)> + '_ {
    query.split('&').filter(|p| !p.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(&key.replace('+', " ")), decoded(&value.replace('+', " ")))
    })
}

/// Percent decoding; what is not a valid escape stays as it is.
pub fn decoded(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let hex = |at: usize| bytes.get(at).and_then(|b| (*b as char).to_digit(16));
        match (bytes[i], hex(i + 1), hex(i + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                i += 3;
            }
            (byte, ..) => {
                out.push(byte);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &str, target: &str) -> (String, String, String, String, String, String) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let i = RequestInfo::read(&method.parse().unwrap(), path, query);
        (i.verb.into(), i.group, i.namespace, i.resource, i.name, i.subresource)
    }

    fn wanted(all: [&str; 6]) -> (String, String, String, String, String, String) {
        let [a, b, c, d, e, f] = all.map(String::from);
        (a, b, c, d, e, f)
    }

    #[test]
    fn paths_of_resources() {
        for (method, target, want) in [
            ("GET", "/api/v1/namespaces", ["list", "", "", "namespaces", "", ""]),
            ("GET", "/api/v1/namespaces/a", ["get", "", "a", "namespaces", "a", ""]),
            ("PUT", "/api/v1/namespaces/a/finalize", ["update", "", "a", "namespaces", "a", "finalize"]),
            ("GET", "/api/v1/namespaces/a/pods?watch=true", ["watch", "", "a", "pods", "", ""]),
            ("GET", "/api/v1/watch/namespaces/a/pods/p", ["watch", "", "a", "pods", "p", ""]),
            ("DELETE", "/api/v1/watch/namespaces/a/pods/p", ["watch", "", "a", "pods", "p", ""]),
            (
                "DELETE",
                "/apis/apps/v1/namespaces/a/deployments",
                ["deletecollection", "apps", "a", "deployments", "", ""],
            ),
            (
                "PATCH",
                "/apis/apps/v1/namespaces/a/deployments/d/scale",
                ["patch", "apps", "a", "deployments", "d", "scale"],
            ),
            ("POST", "/api/v1/nodes", ["create", "", "", "nodes", "", ""]),
            ("GET", "/api/v1/pods?watch=0", ["list", "", "", "pods", "", ""]),
        ] {
            assert_eq!(read(method, target), wanted(want), "{method} {target}");
        }
    }

    #[test]
    fn proxied_paths_keep_their_tail() {
        let info = RequestInfo::read(&Method::GET, "/api/v1/namespaces/a/pods/p/proxy/x%2Fy/z/", "");
        assert_eq!((info.subresource.as_str(), info.rest.as_str()), ("proxy", "x%2Fy/z/"));
    }

    #[test]
    fn other_paths_are_not_resources() {
        for path in ["/", "/api", "/api/v1", "/apis", "/apis/apps/v1", "/healthz", "/apis/apps"] {
            assert!(!RequestInfo::read(&Method::GET, path, "").is_resource, "{path}");
        }
        for path in ["//api/v1/pods", "/api/v1//pods", "/api/v1/namespaces//pods", "/api/v1/namespaces/a/pods//p"] {
            assert!(!RequestInfo::read(&Method::GET, path, "").is_resource, "{path}");
        }
    }
}
