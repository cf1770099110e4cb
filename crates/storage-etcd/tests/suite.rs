//! The suite of all engines on a real etcd, a fresh one for each case.

use std::sync::Arc;

use storage::suite::Fixture;
use storage_etcd::{
    Etcd, Options,
    testing::{Server, etcd_is_installed},
};

async fn open() -> Option<Fixture> {
    if !etcd_is_installed() {
        return None;
    }
    let server = Server::start(&[]).await.expect("etcd starts");
    let options = Options { prefix: "/ferry".into(), ..Options::new([server.endpoint()]) };
    Some(Fixture::new(Arc::new(Etcd::open(options).expect("valid options")), server))
}

storage::suite!(open);
