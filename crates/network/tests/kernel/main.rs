//! The network against the real kernel, in network namespaces of its own. As root; skipped loudly otherwise.

#[path = "../fake/mod.rs"]
mod fake;
mod hosts;
mod machine;
mod pods;
mod services;
