//! The agent of a node: takes the pods that are bound to it from the API to the container runtime, and tells how they are.
//!
//! Kubernetes calls this the kubelet. It speaks to a runtime through the two traits of `container_runtime::services` and to
//! the API through a `kube` client with the node's identity; it does not know which runtime, nor where the API server is.
//!
//! | module | what |
//! |---|---|
//! | [`settings`] | what an agent is told at its start |
//! | `agent` | brings the parts together |
//! | `node` | the node itself: registration, status, lease |
//! | `pods` | one worker for each pod, from its admission to its end |
//! | `eviction` | what goes when the node runs short: images that nobody uses, then pods |
//! | `probes` | whether containers have started, are alive, are ready |
//! | `status` | what is told of a pod: a pure function, and who writes it |
//! | [`volumes`] | the folders of a pod's volumes, and what is mounted where |
//! | [`objects`] | the ConfigMaps and Secrets that the node's pods refer to |
//! | [`configuration`] | from a pod's words to those of CRI: sandbox, container, environment, security |
//! | [`server`] | logs, exec, attach, port-forward, figures over TLS |
//! | [`tls`] | by which certificates the server and its clients know each other |
//!
//! Invariants: a pod's worker is the only one that touches its sandbox, containers and volumes; changes come as events of
//! the API, the runtime, a probe or a timer, never by looking in turns; a pod's phase never goes back.

mod agent;
pub mod configuration;
mod eviction;
#[cfg(test)]
mod fakes;
mod node;
pub mod objects;
mod pods;
mod probes;
pub mod server;
pub mod settings;
mod status;
pub mod tls;
pub mod volumes;

pub use agent::run;
pub use settings::Settings;
