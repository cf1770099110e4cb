//! `componentstatuses`: how the parts of the control plane are. Never stored: each is asked when somebody looks.

use std::{collections::VecDeque, sync::Arc};

use bytes::BytesMut;
use hyper::{HeaderMap, Response, StatusCode};
use object_model::{identity::GroupResource, status::Status};
use serde_json::{Value, json};
use storage::Revision;

use super::{
    Call, read,
    respond::{self, Encoded},
};
use crate::{
    Server,
    body::Body,
    options::ListOptions,
    registry::{Items, List, Selection},
    watch_cache::{Entry, body_of, encode_stored},
};

const VERSION: &str = "v1";
/// The parts that say how they are by a health check of the same name, if they run in this process.
const CHECKED: [&str; 2] = ["controller-manager", "scheduler"];
/// What Kubernetes calls the store.
const STORE: &str = "etcd-0";

pub async fn get(call: &Call<'_>, headers: &HeaderMap) -> Result<Response<Body>, Status> {
    let options = ListOptions::read(&call.query)?;
    let (encoding, writer) = read::negotiate(call, headers, options.include_object.as_deref())?;
    let name = call.info.name.as_str();
    let found = all(call.server).await.into_iter().find(|entry| &*entry.name == name);
    let entry = found.ok_or_else(|| Status::not_found(&GroupResource::new("", "componentstatus"), name))?;
    let mut out = BytesMut::new();
    writer.object(Encoded { api_version: VERSION, body: &entry.body }, &mut out);
    Ok(respond::answer(StatusCode::OK, encoding, out.freeze()))
}

pub async fn list(call: &Call<'_>, headers: &HeaderMap) -> Result<Response<Body>, Status> {
    let options = ListOptions::read(&call.query)?;
    let (_, writer) = read::negotiate(call, headers, options.include_object.as_deref())?;
    let selection = Selection::new(&call.target(), &options)?;
    let entries: VecDeque<_> = all(call.server).await.into_iter().filter(|entry| selection.selects(entry)).collect();
    let list = List { revision: Revision(0), items: Items::Page(entries), r#continue: None, remaining: None };
    read::answer_list(writer, list).await
}

async fn all(server: &Server) -> Vec<Arc<Entry>> {
    let store = server.check_store().await;
    let checked = CHECKED.map(|name| {
        let result = server.health.check(name).unwrap_or_else(|| Err("it does not run in this server".to_owned()));
        entry(name, result)
    });
    checked.into_iter().chain([entry(STORE, store)]).map(Arc::new).collect()
}

fn entry(name: &str, result: Result<(), String>) -> Entry {
    let (status, message) = match &result {
        Ok(()) => ("True", "ok"),
        Err(why) => ("False", why.as_str()),
    };
    let object: Value = json!({
        "apiVersion": VERSION, "kind": "ComponentStatus", "metadata": {"name": name},
        "conditions": [{"type": "Healthy", "status": status, "message": message}],
    });
    Entry {
        namespace: Box::default(),
        name: name.into(),
        revision: Revision(0),
        api_version: VERSION.into(),
        body: body_of(&encode_stored(&object), None),
        labels: Box::default(),
        fields: Box::default(),
    }
}
