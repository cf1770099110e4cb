//! The whole filter chain: what happens to every request, in the order in which it is written here.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use hyper::{
    Method, Request, Response,
    header::{self, HeaderValue},
};
use object_model::status::Status;

use crate::{
    Server,
    audit::{self, Record},
    authentication::Identity,
    authorization::Attributes,
    body::{Body, RequestBody},
    context::{Annotations, RequestContext, TakenSeats, User},
    fairness::Sorted,
    filters::{compression, impersonation, warnings},
    handlers::{self, respond},
    request_info::{RequestInfo, pairs},
    serving::turns,
};

/// How long a request may take that is neither a watch nor a stream, unless its client has less time.
const DEADLINE: Duration = Duration::from_secs(60);

/// How long the seats of a request are kept while its answer is sent. Somebody who does not take it occupies nobody.
pub(crate) const SENT_WITHIN: Duration = Duration::from_millis(500);

/// Answers one request, whatever it is.
pub async fn handle(server: Arc<Server>, peer: Identity, request: Request<RequestBody>) -> Response<Body> {
    let gzip = compression::accepted(request.headers());
    let head = request.method() == Method::HEAD;
    let accept = request.headers().get(header::ACCEPT).cloned();
    let id = audit::id(request.headers());
    // A panic is one client's bad luck, not everybody's.
    let answer = AssertUnwindSafe(identified(server, id.clone(), peer, request)).catch_unwind().await;
    let mut response = answer.unwrap_or_else(|_| {
        tracing::error!("a request handler panicked");
        respond::status(&Status::internal("apiserver panic'd"))
    });
    audit::tell(&id, response.headers_mut());
    let response = respond::settle_status(accept.as_ref().and_then(|v| v.to_str().ok()), response);
    match (head, gzip) {
        // Over HTTP/2 nobody else leaves the body out.
        (true, _) => respond::head_only(response),
        (false, true) => compression::compress(response),
        (false, false) => response,
    }
}

/// Who is it, and what is recorded of it?
async fn identified(
    server: Arc<Server>,
    id: Arc<str>,
    peer: Identity,
    request: Request<RequestBody>,
) -> Response<Body> {
    let info = RequestInfo::read(request.method(), request.uri().path(), request.uri().query().unwrap_or_default());
    let started = server.metrics.started(&info, &server.catalogue.served());
    let remarks = Annotations::default();
    let user = server.authentication.authenticate(&peer, &info.path, request.headers(), &remarks).await;
    let mut record = match &server.audit {
        Some(auditor) => auditor.begin(&id, &peer, user.as_ref().ok(), &info, &request),
        None => None,
    };
    if let Some(record) = &mut record {
        record.remark(&remarks);
    }
    let answer = match user {
        Ok(user) => in_turn(&server, record.as_mut(), user, &info, request).await,
        Err(status) => Err(status),
    };
    let response = answer.unwrap_or_else(|status| respond::status(&status));
    started.answered(response.status());
    let response = response.map(|body| body.guarded(started));
    match record {
        Some(record) => record.answered(response).await,
        None => response,
    }
}

/// Whom does it speak for, and is it their turn?
async fn in_turn(
    server: &Arc<Server>,
    mut record: Option<&mut Record>,
    user: Arc<User>,
    info: &RequestInfo,
    mut request: Request<RequestBody>,
) -> Result<Response<Body>, Status> {
    if let Some(record) = &mut record {
        record.received().await?;
    }
    server.authentication.forget(request.headers_mut());
    let user = match impersonation::take(request.headers_mut())? {
        Some(wanted) => {
            let attributes = Attributes::of_request(&user, info, request.uri().query().unwrap_or_default());
            let acting = impersonation::act_as(&server.authorization, &attributes, &wanted).await?;
            if let Some(record) = &mut record {
                record.impersonates(&acting);
            }
            acting.user
        }
        None => user,
    };
    turns::identified(&user);
    // Streams last as long as both ends want, and would keep their seats.
    let unlimited = info.is_long_running() && info.verb != "watch";
    let (sorted, entered) = match unlimited {
        true => (Sorted::default(), Ok(None)),
        false => {
            let served = server.catalogue.served();
            let query = request.uri().query().unwrap_or_default();
            server.fairness.admit(&served, &user, info, query).await
        }
    };
    let mut response = match entered {
        Ok(ticket) => {
            let answer = answered(server, record, user, info, request, TakenSeats::new(ticket)).await;
            answer.unwrap_or_else(|status| respond::status(&status))
        }
        Err(refusal) => refusal,
    };
    sorted.tell(response.headers_mut());
    Ok(response)
}

/// May they, and what is the answer?
async fn answered(
    server: &Arc<Server>,
    mut record: Option<&mut Record>,
    user: Arc<User>,
    info: &RequestInfo,
    request: Request<RequestBody>,
    seats: TakenSeats,
) -> Result<Response<Body>, Status> {
    let attributes = Attributes::of_request(&user, info, request.uri().query().unwrap_or_default());
    let decision = server.authorization.decide(&attributes).await;
    if let Some(record) = &mut record {
        decision.annotations().into_iter().for_each(|(key, value)| record.annotate(key, value));
    }
    decision.permit(&attributes)?;
    let context = RequestContext {
        user,
        user_agent: text(request.headers().get(header::USER_AGENT)).into(),
        seats: seats.clone(),
        ..RequestContext::default()
    };
    let (warnings, remarks) = (context.warnings.clone(), context.audit.clone());

    let deadline = deadline(info, request.uri().query().unwrap_or_default())?;
    let handled = async {
        // Whoever is slow to send a body must not keep a seat for longer, recorded or not.
        let request = match &mut record {
            Some(record) => record.read_body(request).await?,
            None => request,
        };
        handlers::handle(server, &context, info, request).await
    };
    let result = match deadline {
        None => handled.await,
        Some(within) => tokio::time::timeout(within, handled).await.unwrap_or_else(|_| Err(too_slow())),
    };
    let mut response = result.unwrap_or_else(|status| respond::status(&status));
    if let Some(record) = record {
        record.remark(&remarks);
    }
    warnings::tell(&warnings, response.headers_mut());
    // A long list is made while it is sent.
    if matches!(response.body(), Body::List(_) | Body::Chunks(_)) {
        seats.give_back_after(SENT_WITHIN);
    }
    Ok(response.map(|body| body.guarded(seats)))
}

/// How long a request may take, if there is a limit.
fn deadline(info: &RequestInfo, query: &str) -> Result<Option<Duration>, Status> {
    if info.is_long_running() {
        return Ok(None);
    }
    let asked = pairs(query).find(|(key, value)| key == "timeout" && !value.is_empty());
    let Some((_, text)) = asked else { return Ok(Some(DEADLINE)) };
    let asked = object_model::time::Duration::parse(&text)
        .map_err(|why| Status::bad_request(format!("invalid timeout specified in the request URL - {why}")))?
        .to_std();
    Ok(Some(if asked.is_zero() { DEADLINE } else { asked.min(DEADLINE) }))
}

fn too_slow() -> Status {
    Status::timeout("request did not complete within the allotted timeout", 0)
}

fn text(value: Option<&HeaderValue>) -> &str {
    value.and_then(|v| v.to_str().ok()).unwrap_or_default()
}
