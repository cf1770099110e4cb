//! The server: everything it needs to answer, made in one place.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;
use hyper::{Method, Request, Response, StatusCode, body::Incoming, header};
use object_model::status::Status;
use rustls::ServerConfig;
use serde_json::Value;
use storage::{Error, Store};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    Settings,
    admission::{self, resource_quota},
    audit::Auditor,
    authentication::{Authentication, Identity, legacy_tokens},
    authorization::{Authorization, rbac::Rbac},
    body::{Body, RequestBody},
    bootstrap, builtin,
    catalogue::Catalogue,
    chain,
    context::User,
    fairness::Fairness,
    handlers::respond,
    health::Health,
    metrics::Metrics,
    openapi::OpenApi,
    registry::Registry,
    serving::{self, Handler, Peer},
    streaming::{Agents, ClientAddress},
    watch_cache::WatchCache,
};

/// How long a health check waits for the store.
const STORE_ANSWERS_WITHIN: Duration = Duration::from_secs(2);

pub struct Server {
    pub catalogue: Arc<Catalogue>,
    pub registry: Registry,
    pub authentication: Authentication,
    pub authorization: Arc<Authorization>,
    pub health: Health,
    pub metrics: Arc<Metrics>,
    pub openapi: OpenApi,
    pub audit: Option<Arc<Auditor>>,
    pub fairness: Fairness,
    /// The address that clients are told.
    pub address: String,
    /// How the agents of nodes are reached.
    pub agents: Option<Arc<Agents>>,
    /// Watches and streams end when this is cancelled.
    pub drain: CancellationToken,
}

impl Server {
    /// Loads everything from the store and follows it from there. Ready when it returns.
    pub async fn start(store: Arc<dyn Store>, settings: Settings) -> Result<Arc<Self>, Error> {
        let Settings {
            address,
            advertise,
            clock,
            authentication,
            authorization,
            audit,
            agents,
            limits,
            admission,
            counts_quotas,
        } = settings;
        let audit = audit.map(|settings| Auditor::start(settings, clock.clone())).transpose();
        let audit = audit.map_err(|error| Error::Invalid(error.to_string()))?;
        let cache = Arc::new(WatchCache::new(store.clone()));
        let catalogue = Arc::new(Catalogue::new(builtin::groups(&cache)));
        let revision = cache.load().await?;
        let feed = cache.clone();
        tokio::spawn(async move { feed.feed(revision).await });
        let rbac = Rbac::new(&cache);
        let authorization = Arc::new(authorization.judges(&cache, &rbac));
        let admission = admission::all::plugins(&cache, &catalogue, &clock, &authorization, &rbac, &admission);
        let (authentication, uses) = Authentication::new(authentication, &cache, clock.clone())
            .map_err(|error| Error::Invalid(error.to_string()))?;
        let fairness = Fairness::new(&cache, limits);
        let server = Arc::new(Self {
            registry: Registry::new(store, cache, clock, admission),
            catalogue,
            authentication,
            authorization,
            health: Health::default(),
            metrics: Arc::default(),
            openapi: OpenApi::default(),
            audit,
            fairness,
            address,
            agents,
            drain: CancellationToken::new(),
        });
        bootstrap::run(&server, advertise).await.map_err(|status| Error::Invalid(status.message))?;
        tokio::spawn(legacy_tokens::note(Arc::downgrade(&server), uses));
        if counts_quotas {
            tokio::spawn(resource_quota::controller::run(Arc::downgrade(&server)));
        }
        Ok(server)
    }

    /// Answers a request of a component in this process, which takes the same road as everybody's.
    pub async fn call(self: &Arc<Self>, user: Arc<User>, request: Request<RequestBody>) -> Response<Body> {
        chain::handle(self.clone(), Identity::Local(user), request).await
    }

    /// Answers requests for as long as the component in this process lives that acts as `user`.
    pub fn answers_to(
        self: &Arc<Self>,
        user: User,
    ) -> impl Fn(Request<Bytes>) -> BoxFuture<'static, Response<Body>> + Clone + Send + Sync + 'static {
        let (server, user) = (self.clone(), Arc::new(user));
        move |request| {
            let (server, user) = (server.clone(), user.clone());
            Box::pin(async move { server.call(user, request.map(RequestBody::Whole)).await })
        }
    }

    /// The same for a component that sends and reads JSON, and goes by the last part of its name.
    pub async fn exchange(
        self: &Arc<Self>,
        user: &Arc<User>,
        method: Method,
        path: &str,
        body: &Value,
    ) -> (StatusCode, Value) {
        let program = user.name.rsplit(':').next().unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, program)
            .body(RequestBody::Whole(body.to_string().into()));
        let response = match request {
            Ok(request) => self.call(user.clone(), request).await,
            Err(error) => respond::status(&Status::bad_request(error.to_string())),
        };
        let code = response.status();
        let bytes = response.into_body().collect().await;
        (code, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// Does the store answer?
    pub async fn check_store(&self) -> Result<(), String> {
        match tokio::time::timeout(STORE_ANSWERS_WITHIN, self.registry.store.current_revision()).await {
            Ok(answer) => answer.map(drop).map_err(|error| error.to_string()),
            Err(_) => Err("the store does not answer".to_owned()),
        }
    }

    /// Serves a listener as [`serving::serve`] does. It is built here, where what requests wait for is built fast.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        tls: Arc<ServerConfig>,
        stop: CancellationToken,
        grace: Duration,
    ) {
        serving::serve(listener, tls, self, stop, grace).await;
    }

    /// No longer ready, and watches end, so that connections can.
    pub fn drain(&self) {
        self.health.drain();
        self.drain.cancel();
    }
}

impl Handler for Server {
    fn handle(
        self: Arc<Self>,
        peer: Peer,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Body>> + Send + 'static {
        let mut request = request.map(RequestBody::Wire);
        request.extensions_mut().insert(ClientAddress(peer.address));
        chain::handle(self, Identity::Remote(peer), request)
    }
}
