//! Times with seconds and microseconds, and durations, as Kubernetes writes them.
