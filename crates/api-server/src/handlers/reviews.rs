//! POST of a question: a review is decoded, admitted and checked like an object, and answered instead of stored.
//!
//! Each kind is one arm of [`answer`]. It gets the question and gives it back with its `status`; some kinds answer with an
//! object of their own instead.

mod access;

use hyper::{Request, Response, StatusCode};
use object_model::{status::Status, value::Fields};
use serde_json::{Map, Value, json};

use super::{
    Call,
    body::{self, MediaType},
    decode::{self, Strictness},
    not_served, read, respond, write,
};
use crate::{
    authentication::authenticated,
    body::{Body, RequestBody},
    context::User,
    negotiation::Content,
    options::{Write, WriteOptions},
    ownership,
};

pub async fn create(call: &Call<'_>, request: Request<RequestBody>) -> Result<Response<Body>, Status> {
    let (encoding, _) = read::negotiate_for(Content::Answer, call, request.headers(), None)?;
    let options = WriteOptions::read(&call.query, Write::Create)?;
    let media = MediaType::of(request.headers())?;
    let bytes = body::read(request.into_body()).await?;
    let strictness = Strictness::new(&options, &call.context.warnings);
    let mut review = decode::object(&call.resource, media, &bytes, &strictness)?;
    write::wipe_system_fields(&mut review);
    let (target, registry) = (call.target(), &call.server.registry);
    let (manager, now) = (call.field_manager(&options.field_manager), registry.clock.seconds().to_string());
    let review = ownership::on_update(&target, None, review, manager, &now);
    let review = registry.ask(&target, call.resource.strategy, call.context, review, &options).await?;
    let answer = answer(call, review, &now).await?;
    let bytes = serde_json::to_vec(&answer).unwrap_or_default();
    Ok(respond::answer(StatusCode::CREATED, encoding, bytes.into()))
}

/// The answer to a question that is well formed.
async fn answer(call: &Call<'_>, review: Value, now: &str) -> Result<Value, Status> {
    match (&*call.resource.group, &*call.resource.kind) {
        ("authorization.k8s.io", "SelfSubjectAccessReview") => Ok(access::of_asker(call, review).await),
        ("authorization.k8s.io", "SelfSubjectRulesReview") => access::rules_of_asker(call, &review),
        ("authorization.k8s.io", _) => Ok(access::of_subject(call, review).await),
        ("authentication.k8s.io", "TokenReview") => whose_token(call, review).await,
        ("authentication.k8s.io", "SelfSubjectReview") => Ok(who_am_i(&call.context.user, now)),
        _ => Err(not_served(call)),
    }
}

/// A token that is nobody's is an answer too.
async fn whose_token(call: &Call<'_>, mut review: Value) -> Result<Value, Status> {
    let token = review.text_at(&["spec", "token"]);
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let tokens = &call.server.authentication.tokens;
    let mut wanted: Vec<String> = texts(review["spec"].items("audiences"));
    if wanted.is_empty() {
        wanted.clone_from(&tokens.audiences);
    }
    review["status"] = match tokens.judge(token, &wanted, &call.context.audit).await {
        Ok((known, audiences)) => {
            json!({"authenticated": true, "user": user_info(&authenticated(known.user)), "audiences": audiences})
        }
        Err(why) => json!({"user": {}, "error": why.to_string()}),
    };
    Ok(review)
}

fn texts(values: &[Value]) -> Vec<String> {
    values.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn who_am_i(user: &User, now: &str) -> Value {
    json!({
        "kind": "SelfSubjectReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"creationTimestamp": now},
        "status": {"userInfo": user_info(user)},
    })
}

/// A user as reviews show it.
fn user_info(user: &User) -> Value {
    let mut info = Map::new();
    if !user.name.is_empty() {
        info.insert("username".into(), user.name.as_str().into());
    }
    if !user.uid.is_empty() {
        info.insert("uid".into(), user.uid.as_str().into());
    }
    if !user.groups.is_empty() {
        info.insert("groups".into(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        let extra: Map<String, Value> = user.extra.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
        info.insert("extra".into(), extra.into());
    }
    info.into()
}
