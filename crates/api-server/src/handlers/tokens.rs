//! `serviceaccounts/NAME/token`: a token for a service account, bound to what it is for.

use hyper::{Request, Response, StatusCode};
use object_model::{
    field::{Errors, Path},
    identity::{GroupKind, GroupResource, GroupVersionKind},
    meta::{Meta, MetaMut},
    status::Status,
    time::Time,
    value::Fields,
};
use serde_json::{Value, json};

use super::{
    Call,
    body::{self, MediaType},
    decode::{self, Strictness},
    respond,
};
use crate::{
    authentication::service_accounts::{Reference, Wanted},
    body::{Body, RequestBody},
    catalogue::Target,
    negotiation::{Content, Negotiated},
    options::{Write, WriteOptions},
};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";

pub async fn create(call: &Call<'_>, request: Request<RequestBody>) -> Result<Response<Body>, Status> {
    let accept = request.headers().get(hyper::header::ACCEPT).and_then(|value| value.to_str().ok());
    let encoding = Negotiated::read(accept, Content::Answer)?.encoding;
    let options = WriteOptions::read(&call.query, Write::Create)?;
    let media = MediaType::of(request.headers())?;
    let bytes = body::read(request.into_body()).await?;
    let strictness = Strictness::new(&options, &call.context.warnings);
    let asked = decode::plain(GROUP, "v1", KIND, media, &bytes, &strictness)?;
    let answer = answer(call, asked, &options).await?;
    Ok(respond::answer(StatusCode::CREATED, encoding, serde_json::to_vec(&answer).unwrap_or_default().into()))
}

async fn answer(call: &Call<'_>, mut asked: Value, options: &WriteOptions) -> Result<Value, Status> {
    let Some(strategy) = api::kinds::find_asked(GROUP, KIND) else { return Err(Status::path_not_found()) };
    let accounts = &call.server.authentication.service_accounts;
    let target = Target { subresource: "", ..call.target() };
    check_names(&target, &asked)?;
    let account = call.server.registry.get(&target, "").await?.object("ServiceAccount");
    let account = Reference::of(&account);
    let uid = Meta::of(&asked).uid();
    if !uid.is_empty() && uid != account.uid {
        let why = format!(
            "the UID in the token request ({uid}) does not match the UID of the service account ({})",
            account.uid
        );
        return Err(Status::conflict(&GroupResource::new(GROUP, KIND), target.name, why));
    }
    fill_in(&mut asked, &target, &account, call);
    (strategy.defaults)(&mut asked);
    let mut asked = call.server.registry.ask(&call.target(), strategy, call.context, asked, options).await?;
    // Admission must see which audiences were asked for.
    if asked["spec"].items("audiences").is_empty() {
        asked["spec"]["audiences"] = json!(accounts.audiences);
    }

    let audiences = asked["spec"].items("audiences").iter().filter_map(Value::as_str).map(str::to_owned);
    let namespace = target.namespace.to_owned();
    let mut wanted = Wanted { namespace, account, audiences: audiences.collect(), ..Wanted::default() };
    if let Some(reference) = asked["spec"].object("boundObjectRef") {
        bind(call, reference, &mut wanted).await?;
    }
    let seconds = asked["spec"].int("expirationSeconds").unwrap_or_default();
    wanted.seconds = accounts.max_seconds.map_or(seconds, |most| most.min(seconds));
    if wanted.seconds < seconds {
        let shortened = wanted.seconds;
        let warning = format!("requested expiration of {seconds} seconds shortened to {shortened} seconds");
        call.context.warnings.add(warning);
        asked["spec"]["expirationSeconds"] = shortened.into();
    }
    let issued = accounts.issue(&wanted).map_err(|e| Status::internal(format!("failed to generate token: {e}")))?;
    call.context.audit.add("authentication.kubernetes.io/issued-credential-id", &issued.credential_id);
    let end = Time::from_unix(call.server.registry.clock.seconds().unix_seconds() + wanted.seconds, 0);
    asked["status"] = json!({"token": issued.token, "expirationTimestamp": end.to_string()});
    Ok(asked)
}

/// What the body says of itself must be what the path says.
fn check_names(target: &Target<'_>, asked: &Value) -> Result<(), Status> {
    let meta = Meta::of(asked);
    for (field, given, wanted) in
        [("name", meta.name(), target.name), ("namespace", meta.namespace(), target.namespace)]
    {
        if !given.is_empty() && given != wanted {
            let (mut errors, root) = (Errors::new(), Path::root());
            let why = format!("must match the service account {field} if specified");
            errors.invalid(&root.child("metadata").child(field), given, why);
            return Err(Status::invalid(&GroupKind::new(GROUP, KIND), target.name, &errors));
        }
    }
    Ok(())
}

/// The request becomes one for this service account, made now.
fn fill_in(asked: &mut Value, target: &Target<'_>, account: &Reference, call: &Call<'_>) {
    asked["apiVersion"] = format!("{GROUP}/v1").into();
    asked["kind"] = KIND.into();
    if !asked["spec"].is_object() {
        asked["spec"] = json!({});
    }
    if let Some(fields) = asked.as_object_mut() {
        fields.remove("status");
        let mut meta = MetaMut::of(fields);
        meta.set_name(target.name);
        meta.set_namespace(target.namespace);
        meta.set_uid(&account.uid);
        meta.set_creation_timestamp(Some(call.server.registry.clock.seconds()));
    }
}

/// Binds the token to an object, which must exist and be the one that is meant.
async fn bind(call: &Call<'_>, reference: &Value, wanted: &mut Wanted) -> Result<(), Status> {
    let (kind, name) = (reference.text("kind"), reference.text("name"));
    let found = match (reference.text("apiVersion"), kind) {
        ("v1", "Pod") => {
            let pod = find(call, "pods", &wanted.namespace, name).await?;
            if pod.text_at(&["spec", "serviceAccountName"]) != wanted.account.name {
                return Err(Status::bad_request(format!(
                    "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                    wanted.account.name
                )));
            }
            let node = pod.text_at(&["spec", "nodeName"]);
            if !node.is_empty() {
                // A node that is gone is still told by its name.
                let found = find(call, "nodes", "", node).await.map(|node| Reference::of(&node));
                wanted.node = Some(found.unwrap_or_else(|_| Reference { name: node.to_owned(), uid: String::new() }));
            }
            wanted.pod.insert(Reference::of(&pod)).uid.clone()
        }
        ("v1", "Node") => wanted.node.insert(Reference::of(&find(call, "nodes", "", name).await?)).uid.clone(),
        ("v1", "Secret") => {
            let secret = find(call, "secrets", &wanted.namespace, name).await?;
            wanted.secret.insert(Reference::of(&secret)).uid.clone()
        }
        (api_version, kind) => {
            let of = GroupVersionKind::parse(api_version, kind).map_err(|e| Status::bad_request(e.to_string()))?;
            return Err(Status::bad_request(format!("cannot bind token to object of type {of}")));
        }
    };
    let uid = reference.text("uid");
    if !uid.is_empty() && uid != found {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted \
             and then recreated"
        );
        return Err(Status::conflict(&GroupResource::new("", kind), name, why));
    }
    Ok(())
}

async fn find(call: &Call<'_>, plural: &str, namespace: &str, name: &str) -> Result<Value, Status> {
    let served = call.server.catalogue.served();
    let Some(resource) = served.find("", "v1", plural) else { return Err(Status::path_not_found()) };
    let target = Target { resource, subresource: "", namespace, name };
    Ok(call.server.registry.get(&target, "").await?.object(&resource.kind))
}
