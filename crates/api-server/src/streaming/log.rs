//! The log of a container, streamed as the agent tells it.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    header::{self, HeaderValue},
};
use object_model::{
    identity::GroupResource,
    status::{Reason, Status},
};

use super::{
    connection, exec,
    messages::{Framing, over_websocket},
    options::LogOptions,
    pods, tunnel,
};
use crate::{
    body::{Body, RequestBody},
    handlers::Call,
};

/// How much of an agent's complaint is passed on.
const COMPLAINT_BYTES: usize = 50_000;

pub async fn get(call: &Call<'_>, request: Request<RequestBody>) -> Result<Response<Body>, Status> {
    let name = &call.info.name;
    let options = LogOptions::read(&call.query, name)?;
    let pod = pods::pod(call).await?;
    let container = pods::container(&pod, &options.container)?;
    let Some(agent) = pods::agent(call, &pod).await? else {
        let mut nothing = Response::new(Body::Empty);
        *nothing.status_mut() = StatusCode::NO_CONTENT;
        return Ok(nothing);
    };
    let place = agent.place(exec::agents(call)?, options.insecure);
    let segments = ["containerLogs", &call.info.namespace, name, &container];
    let mut asked = Request::new(RequestBody::Whole(Bytes::new()));
    *asked.uri_mut() = connection::uri(&segments, &options.agent_query())?;
    tunnel::set_host(asked.headers_mut(), &place.authority())?;
    let url = format!("https://{}{}", place.authority(), asked.uri());
    let response = place
        .send(asked)
        .await
        .map_err(|error| Status::failure(500, Reason::UNKNOWN, format!("Get {url:?}: {error}"), None))?;
    if !(200..=206).contains(&response.status().as_u16()) {
        return Err(complaint(name, response).await);
    }
    let mut answer = tunnel::passed(call, response);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    if streaming::upgrade::is_websocket(request.headers()) {
        return over_websocket(request, answer.into_body(), Framing::Chunks, std::future::pending());
    }
    Ok(answer)
}

/// What an agent says that has no log to give.
async fn complaint(pod: &str, response: Response<Incoming>) -> Status {
    let code = i32::from(response.status().as_u16());
    let (mut body, mut text) = (response.into_body(), BytesMut::new());
    while let (true, Some(Ok(frame))) = (text.len() < COMPLAINT_BYTES, body.frame().await) {
        if let Ok(data) = frame.into_data() {
            text.extend_from_slice(&data);
        }
    }
    text.truncate(COMPLAINT_BYTES);
    let text = String::from_utf8_lossy(&text);
    match code {
        500 => Status::internal(text),
        400 => Status::bad_request(text),
        _ => Status::generic(code, "", &GroupResource::new("", "pods/log"), pod, &text),
    }
}
