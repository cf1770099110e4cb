//! One handler per verb, and the way from a request to its handler.

pub mod body;
mod component_statuses;
mod decode;
mod delete;
mod eviction;
mod messages;
mod meta_endpoints;
mod pods;
mod read;
pub mod respond;
mod reviews;
mod scale;
mod tokens;
mod watch;
mod write;

use std::sync::Arc;

use hyper::{Method, Request, Response, StatusCode, header};
use object_model::status::{Reason, Status};

use crate::{
    Server,
    authorization::Attributes,
    body::{Body, RequestBody},
    catalogue::{Resource, Target},
    context::RequestContext,
    request_info::RequestInfo,
    streaming,
};

/// A request to a resource, on its way through a handler.
pub(crate) struct Call<'a> {
    pub server: &'a Arc<Server>,
    pub context: &'a RequestContext,
    pub info: &'a RequestInfo,
    pub resource: Arc<Resource>,
    pub query: String,
}

impl Call<'_> {
    pub fn target(&self) -> Target<'_> {
        Target {
            resource: &self.resource,
            subresource: &self.info.subresource,
            // A namespace is not in itself, though its path says so.
            namespace: if self.resource.namespaced { &self.info.namespace } else { "" },
            name: &self.info.name,
        }
    }

    /// Asks whether the user may also do this: a request may turn out to be more than its own verb says.
    pub async fn permit(&self, verb: &str) -> Result<(), Status> {
        let asked = Attributes::of_request(&self.context.user, self.info, &self.query);
        let asked = Attributes { verb, ..asked };
        self.server.authorization.decide(&asked).await.permit(&asked)
    }

    /// The name under which this request owns fields.
    pub fn field_manager<'a>(&'a self, given: &'a str) -> &'a str {
        self.context.field_manager(given)
    }
}

/// Answers a request that may be answered.
pub async fn handle(
    server: &Arc<Server>,
    context: &RequestContext,
    info: &RequestInfo,
    request: Request<RequestBody>,
) -> Result<Response<Body>, Status> {
    if !info.is_resource {
        return meta_endpoints::handle(server, info, request).await;
    }
    let served = server.catalogue.served();
    let Some(resource) = served.find(&info.group, &info.version, &info.resource).cloned() else {
        return Err(Status::path_not_found());
    };
    route(info, request.method(), &resource)?;
    let query = request.uri().query().unwrap_or_default().to_owned();
    let call = Call { server, context, info, resource, query };
    if streaming::serves(&call) {
        return streaming::handle(&call, request).await;
    }
    let verbs = match info.subresource.as_str() {
        "" => &call.resource.verbs,
        name => &call.resource.subresource(name).ok_or_else(Status::path_not_found)?.verbs,
    };
    if !verbs.iter().any(|v| **v == *info.verb) {
        return Err(Status::method_not_allowed());
    }
    match (info.subresource.as_str(), info.verb) {
        ("scale", _) => scale::handle(&call, request).await,
        ("binding", "create") => pods::bind(&call, request).await,
        ("eviction", "create") => eviction::evict(&call, request).await,
        ("token", "create") => tokens::create(&call, request).await,
        (name, _) if !name.is_empty() && call.resource.strategy.update_of(name).is_none() => Err(not_served(&call)),
        ("", "get") if is(&call, "componentstatuses") => component_statuses::get(&call, request.headers()).await,
        ("", "list") if is(&call, "componentstatuses") => component_statuses::list(&call, request.headers()).await,
        ("", "create") if is(&call, "bindings") => pods::bind_by_name(&call, &served, request).await,
        (_, "get") => read::get(&call, request.headers()).await,
        ("", "list") => read::list(&call, request.headers()).await,
        ("", "watch") => watch::watch(&call, request).await,
        ("", "create") if call.resource.is_asked() => reviews::create(&call, request).await,
        ("", "create") => write::create(&call, request).await,
        (_, "update") => write::update(&call, request).await,
        (_, "patch") => write::patch(&call, request).await,
        ("", "delete") => delete::delete(&call, request).await,
        ("", "deletecollection") => delete::collection(&call, request).await,
        _ => Err(Status::path_not_found()),
    }
}

/// Is the resource of the core group this one?
fn is(call: &Call<'_>, plural: &str) -> bool {
    call.resource.group.is_empty() && &*call.resource.plural == plural
}

/// A subresource that exists in Kubernetes and not yet here says so, instead of pretending.
fn not_served(call: &Call<'_>) -> Status {
    let (resource, subresource) = (&call.info.resource, &call.info.subresource);
    let slash = if subresource.is_empty() { "" } else { "/" };
    let message = format!("{resource}{slash}{subresource} is not served by this version of ferry");
    Status::failure(501, Reason::METHOD_NOT_ALLOWED, message, None)
}

/// Is there such a path for the resource, and does it have the method? The verbs of the resource are another matter.
fn route(info: &RequestInfo, method: &Method, resource: &Resource) -> Result<(), Status> {
    let inside = !info.namespace.is_empty();
    // The path of a namespace names it twice over: as what is asked for, and as what is around it.
    let itself = info.group.is_empty() && info.resource == "namespaces" && info.namespace == info.name;
    let misplaced = if resource.namespaced { !inside && !info.name.is_empty() } else { inside && !itself };
    if misplaced || (!info.rest.is_empty() && info.subresource != "proxy") {
        return Err(Status::path_not_found());
    }
    if info.watch_prefix {
        let exists = info.subresource.is_empty() && resource.verbs.iter().any(|verb| &**verb == "watch");
        return match (exists, matches!(*method, Method::GET | Method::HEAD)) {
            (false, _) => Err(Status::path_not_found()),
            (true, false) => Err(Status::method_not_allowed()),
            (true, true) => Ok(()),
        };
    }
    let allowed = match info.verb {
        "create" => info.name.is_empty() || !info.subresource.is_empty(),
        "update" | "patch" => !info.name.is_empty(),
        _ => true,
    };
    let everywhere = resource.namespaced && !inside && !matches!(info.verb, "list" | "watch");
    if everywhere || !allowed { Err(Status::method_not_allowed()) } else { Ok(()) }
}

/// A plain text answer.
fn plain(code: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(text.to_owned()));
    *response.status_mut() = code;
    let value = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, value);
    response
}
