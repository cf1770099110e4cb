//! The storage engine for clusters: a real etcd, v3 API.
