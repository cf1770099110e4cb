//! Images, snapshots, sandboxes and containers, behind the services of the Container Runtime Interface.
//!
//! Kubernetes calls this the CRI runtime (containerd, CRI-O). The node agent knows only the two traits of [`services`];
//! [`Runtime`] is our implementation of them, in the same process. The traits are the seam: a client of another
//! runtime's socket and a server of our own socket stand on them, too.
//!
//! | module | what | owns |
//! |---|---|---|
//! | [`services`] | the traits, with CRI's requests and answers under CRI's field names; events instead of polling | nothing |
//! | [`images`] | content by digest, manifests, import of archives, images made from an executable | `content/`, `images/` |
//! | [`registry`] | fetching images from registries, and sending them there | nothing |
//! | [`snapshots`] | one unpacked folder per chain of layers, shared by every image that has the chain | `snapshots/` |
//! | `sandboxes`, `containers` | what pods and containers are, from CRI's configuration to what the shim is told | `sandboxes/`, `containers/` |
//! | [`carrying`] | the streams of exec, attach and port-forward, to and from a client | nothing |
//! | [`cri`] | the same services on a socket, and a client of it | the socket |
//! | [`shim`] | the one process per pod that holds its namespaces, starts and reaps its processes, writes their logs | the processes |
//! | [`cgroups`] | limits, devices, figures; version 1 and version 2 | groups named by the pod and the container |
//! | [`security`] | capabilities, system call filters, limits of a process | nothing |
//! | [`removal`] | removing folders that programs have filled, however deep | nothing |
//! | `state` | records on disk, written before the thing they tell of is made | every `*.json` |
//!
//! Invariants:
//! - Only the shim forks, enters namespaces or changes its working directory: it is our own executable, started again
//!   with [`shim::dispatch`] at the very top of `main`, and it has one thread.
//! - A container's file system is mounted inside of its own mount namespace only: it goes away with the last process.
//! - Whatever outlives a call is named in a record first. After a crash, recovery reads the records, asks the shims that
//!   answer, and takes down what belongs to those that do not.
//! - Nothing here depends on the API server, the network or the node agent; networks come in through
//!   [`services::PodNetwork`].

pub mod carrying;
pub mod cgroups;
mod containers;
pub mod cri;
pub mod images;
mod locks;
mod processes;
pub mod registry;
pub mod removal;
mod runtime;
mod sandboxes;
pub mod security;
mod service;
pub mod services;
pub mod shim;
pub mod snapshots;
mod state;

pub use runtime::{Runtime, Settings};
pub use service::measure;
