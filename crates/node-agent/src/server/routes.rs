//! Every path there is, and who answers it.

use std::sync::Arc;

use hyper::{Method, Request, StatusCode, body::Incoming};
use serde_json::json;

use super::{
    Server,
    answer::{self, Answer, not_found, text},
    identity::User,
    logs, metrics, remote,
};

pub(super) async fn answer(server: &Arc<Server>, known: Option<Arc<User>>, mut request: Request<Incoming>) -> Answer {
    let user = match known {
        Some(user) => user,
        None => match server.identities.of_token(request.headers()).await {
            Some(user) => user,
            None => return text(StatusCode::UNAUTHORIZED, "Unauthorized"),
        },
    };
    let path = request.uri().path().to_owned();
    if let Err(why) = server.permissions.check(&user, request.method(), &path).await {
        return text(StatusCode::FORBIDDEN, why);
    }
    let segments: Option<Vec<String>> = path.split('/').skip(1).map(decoded).collect();
    let Some(segments) = segments else { return answer::bad_request("the path is not text") };
    let mut parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    if parts.last() == Some(&"") {
        parts.pop();
    }
    let streams = matches!(*request.method(), Method::GET | Method::POST);
    match (request.method() == Method::GET, parts.as_slice()) {
        (true, ["containerLogs", namespace, pod, container]) => {
            logs::answer(server, namespace, pod, container, request.uri()).await
        }
        (_, ["exec", namespace, pod, container]) if streams => {
            remote::exec(server, (namespace, pod, None, container), &mut request).await
        }
        (_, ["exec", namespace, pod, uid, container]) if streams => {
            remote::exec(server, (namespace, pod, Some(uid), container), &mut request).await
        }
        (_, ["attach", namespace, pod, container]) if streams => {
            remote::attach(server, (namespace, pod, None, container), &mut request).await
        }
        (_, ["attach", namespace, pod, uid, container]) if streams => {
            remote::attach(server, (namespace, pod, Some(uid), container), &mut request).await
        }
        (_, ["portForward", namespace, pod]) if streams => {
            remote::port_forward(server, namespace, pod, None, &mut request)
        }
        (_, ["portForward", namespace, pod, uid]) if streams => {
            remote::port_forward(server, namespace, pod, Some(uid), &mut request)
        }
        (false, ["run", namespace, pod, container]) => {
            remote::run(server, (namespace, pod, None, container), request.uri()).await
        }
        (false, ["run", namespace, pod, uid, container]) => {
            remote::run(server, (namespace, pod, Some(uid), container), request.uri()).await
        }
        (true, ["pods"]) => pods(server),
        (true, ["runningpods"]) => running_pods(server).await,
        (true, ["healthz"] | ["healthz", "ping" | "log" | "syncloop"]) => text(StatusCode::OK, "ok"),
        (true, ["configz"]) => configuration(server),
        (true, ["stats", "summary"]) => server.figures.summary(&server.settings, &*server.host).await,
        (true, ["metrics"]) => metrics::agent(server).await,
        (true, ["metrics", "resource"]) => metrics::resource(server).await,
        (true, ["metrics", "cadvisor"]) => metrics::containers(server).await,
        (_, ["checkpoint", ..]) => not_found("this node makes no checkpoints of containers"),
        _ => not_found("404 page not found\n"),
    }
}

fn decoded(segment: &str) -> Option<String> {
    // In a path, what has a meaning in forms has none.
    let escaped = segment.replace('+', "%2B").replace('&', "%26");
    let form = format!("x={escaped}");
    let value = form_urlencoded::parse(form.as_bytes()).next().map(|(_, value)| value.into_owned());
    value.filter(|value| !value.contains('\u{fffd}') || segment.contains('\u{fffd}'))
}

fn pods(server: &Server) -> Answer {
    let pods: Vec<serde_json::Value> =
        server.host.pods().iter().filter_map(|pod| serde_json::to_value(&**pod).ok()).collect();
    answer::json(&json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods}))
}

/// What runs by the runtime's word, whatever the API says.
async fn running_pods(server: &Server) -> Answer {
    use container_runtime::services::{ContainerFilter, ContainerState};
    let running = ContainerFilter { state: Some(ContainerState::Running), ..ContainerFilter::default() };
    let containers = match server.settings.runtime.list_containers(&running).await {
        Ok(containers) => containers,
        Err(error) => return text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    };
    let mut pods = std::collections::BTreeMap::<String, serde_json::Value>::new();
    for container in containers {
        use crate::configuration::labels;
        let label = |name: &str| container.labels.get(name).cloned().unwrap_or_default();
        let pod = pods.entry(label(labels::POD_UID)).or_insert_with(|| {
            json!({
                "metadata": {
                    "name": label(labels::POD_NAME),
                    "namespace": label(labels::POD_NAMESPACE),
                    "uid": label(labels::POD_UID),
                    "creationTimestamp": null,
                },
                "spec": {"containers": []},
                "status": {},
            })
        });
        if let Some(list) = pod.pointer_mut("/spec/containers").and_then(serde_json::Value::as_array_mut) {
            list.push(json!({"name": container.metadata.name, "image": container.image, "resources": {}}));
        }
    }
    let pods: Vec<_> = pods.into_values().collect();
    answer::json(&json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods}))
}

fn configuration(server: &Server) -> Answer {
    let settings = &server.settings;
    answer::json(&json!({"kubeletconfig": {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "port": settings.port,
        "clusterDomain": settings.cluster_domain,
        "clusterDNS": settings.cluster_dns,
        "maxPods": settings.max_pods,
        "podLogsDir": settings.root.join("logs"),
        "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": true}},
        "authorization": {"mode": "Webhook"},
        "cgroupRoot": "/",
        "failSwapOn": false,
        "makeIPTablesUtilChains": false,
    }}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_decoded() {
        assert_eq!(decoded("a%20b+c%2Fd"), Some("a b+c/d".into()));
        assert_eq!(decoded(""), Some(String::new()));
        assert_eq!(decoded("%ff"), None);
        assert_eq!(decoded("a&b=c"), Some("a&b=c".into()));
    }
}
