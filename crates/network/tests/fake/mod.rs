//! A cluster's API as far as the network needs it: lists, watches, and writes of single objects. In memory.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use controller_runtime::{Informers, transport};
use futures::{StreamExt, stream, stream::BoxStream};
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

type Body = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

#[derive(Clone)]
pub struct Cluster {
    state: Arc<Mutex<State>>,
    revision: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    /// By resource, namespace and name.
    objects: BTreeMap<(String, String, String), Value>,
    /// Everything that happened: the resource, and the event.
    log: Vec<(String, Value)>,
}

impl Cluster {
    pub fn new() -> Self {
        Self { state: Arc::default(), revision: watch::Sender::new(0) }
    }

    pub fn client(&self) -> kube::Client {
        let cluster = self.clone();
        transport::in_process(move |request| std::future::ready(cluster.answer(request)), "test").unwrap()
    }

    pub fn informers(&self, stop: &CancellationToken) -> Informers {
        Informers::new(self.client(), stop.clone())
    }

    /// Makes or replaces an object; its resource is a word such as `services`.
    pub fn put(&self, resource: &str, mut object: Value) -> Value {
        let mut state = self.state.lock().unwrap();
        let revision = state.log.len() as u64 + 1;
        object["metadata"]["resourceVersion"] = revision.to_string().into();
        let key = key(resource, &object);
        object["metadata"]["uid"] = format!("{}-{}", key.1, key.2).into();
        let kind = if state.objects.insert(key, object.clone()).is_some() { "MODIFIED" } else { "ADDED" };
        state.log.push((resource.to_owned(), json!({"type": kind, "object": object})));
        self.revision.send_replace(revision);
        object
    }

    pub fn delete(&self, resource: &str, namespace: &str, name: &str) {
        let mut state = self.state.lock().unwrap();
        let gone = state.objects.remove(&(resource.to_owned(), namespace.to_owned(), name.to_owned()));
        let revision = state.log.len() as u64 + 1;
        let mut gone = gone.expect("it was there");
        gone["metadata"]["resourceVersion"] = revision.to_string().into();
        state.log.push((resource.to_owned(), json!({"type": "DELETED", "object": gone})));
        self.revision.send_replace(revision);
    }

    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        self.state.lock().unwrap().objects.get(&key).cloned()
    }

    fn answer(&self, request: Request<Bytes>) -> Response<Body> {
        let path: Vec<&str> = request.uri().path().split('/').filter(|part| !part.is_empty()).collect();
        let rest = if path[0] == "api" { &path[2..] } else { &path[3..] };
        let (namespace, resource, name) = match rest {
            ["namespaces", namespace, resource, name] => (*namespace, *resource, Some(*name)),
            ["namespaces", namespace, resource] => (*namespace, *resource, None),
            [resource] => ("", *resource, None),
            other => panic!("the fake does not know {other:?}"),
        };
        let query = request.uri().query().unwrap_or_default();
        match (request.method(), name) {
            (&Method::GET, None) if query.contains("watch=true") => self.watch(resource, query),
            (&Method::GET, None) => whole(200, &self.list(resource)),
            (&Method::GET, Some(name)) => match self.get(resource, namespace, name) {
                Some(object) => whole(200, &object),
                None => {
                    let message = format!("{resource} {name} not found");
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
                        "reason": "NotFound", "message": message, "metadata": {}});
                    whole(404, &status)
                }
            },
            (&Method::DELETE, Some(name)) => {
                self.delete(resource, namespace, name);
                whole(200, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success", "metadata": {}}))
            }
            (&Method::POST | &Method::PUT, _) => {
                whole(200, &self.put(resource, serde_json::from_slice(request.body()).unwrap()))
            }
            other => panic!("the fake does not know {other:?}"),
        }
    }

    fn list(&self, resource: &str) -> Value {
        let state = self.state.lock().unwrap();
        let items: Vec<&Value> =
            state.objects.iter().filter(|((of, ..), _)| of == resource).map(|(_, object)| object).collect();
        json!({"metadata": {"resourceVersion": state.log.len().to_string()}, "items": items})
    }

    fn watch(&self, resource: &str, query: &str) -> Response<Body> {
        let from = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion=")).unwrap();
        let (from, cluster, resource) = (from.parse::<usize>().unwrap(), self.clone(), resource.to_owned());
        let events = stream::unfold((from, self.revision.subscribe()), move |(next, mut revision)| {
            let (cluster, resource) = (cluster.clone(), resource.clone());
            async move {
                revision.wait_for(|revision| *revision as usize > next).await.ok()?;
                let (of, event) = cluster.state.lock().unwrap().log[next].clone();
                let line = if of == resource { format!("{event}\n") } else { String::new() };
                Some((Ok(Frame::data(Bytes::from(line))), (next + 1, revision)))
            }
        });
        Response::new(StreamBody::new(events.boxed()))
    }
}

fn key(resource: &str, object: &Value) -> (String, String, String) {
    let of = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (resource.to_owned(), of("namespace"), of("name"))
}

fn whole(status: u16, value: &Value) -> Response<Body> {
    let bytes = Bytes::from(value.to_string());
    let mut response = Response::new(StreamBody::new(stream::iter([Ok(Frame::data(bytes))]).boxed()));
    *response.status_mut() = status.try_into().unwrap();
    response
}

/// A Service of type ClusterIP with a TCP and a UDP port 80 that lead to 8080; `more` is merged into its spec.
pub fn service(name: &str, address: &str, more: Value) -> Value {
    let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": name},
        "spec": {"clusterIP": address, "clusterIPs": [address], "type": "ClusterIP", "ports": [
            {"name": "tcp", "protocol": "TCP", "port": 80, "targetPort": 8080},
            {"name": "udp", "protocol": "UDP", "port": 80, "targetPort": 8080}]}});
    for (field, value) in more.as_object().into_iter().flatten() {
        service["spec"][field] = value.clone();
    }
    service
}

/// The EndpointSlice of such a Service.
pub fn slice(service: &str, endpoints: Value) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": "default", "name": format!("{service}-1"),
            "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "tcp", "protocol": "TCP", "port": 8080}, {"name": "udp", "protocol": "UDP", "port": 8080}],
        "endpoints": endpoints})
}

/// A ready endpoint on a node.
pub fn endpoint(address: impl ToString, node: &str) -> Value {
    json!({"addresses": [address.to_string()], "nodeName": node,
        "conditions": {"ready": true, "serving": true, "terminating": false}})
}
