//! What every controller stands on: how it reaches the API, what it knows of the cluster, when it works on what.
//!
//! Kubernetes has this in client-go (informers, work queue, leader election, event recorder). The way of a change:
//! an [`Informer`] follows all objects of a kind and keeps them with indexes; its handlers only put keys into a
//! [`WorkQueue`]; workers of [`run`] hand one key at a time to [`Controller::reconcile`], which compares what is with
//! what should be and writes the difference. Before a key is worked on again its own writes have been seen
//! ([`OwnWrites`]), so that a slow cache never creates anything twice.
//!
//! This crate does not know the API server. [`transport`] makes the same `kube` client from a kubeconfig, from the files of
//! a pod, or from any function that answers requests in this process; whoever wires a process together (`ferry`,
//! `testing`) gives that function and with it the identity. All three take the same road through the server.

pub mod adoption;
pub mod clock;
pub mod events;
pub mod informer;
mod key;
pub mod leader;
mod own_writes;
mod queue;
mod runner;
pub mod transport;
mod watch_loop;

pub use clock::{Clock, SystemClock};
pub use informer::{Change, Informer, Informers};
pub use key::{Key, revision};
pub use own_writes::OwnWrites;
pub use queue::{Item, Stats, WorkQueue};
pub use runner::{Controller, Error, Next, refuses_new_objects, run};
