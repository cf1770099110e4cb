//! The suite that every storage engine passes, against this one.

use std::sync::Arc;

use storage::suite::Fixture;
use storage_embedded::{EmbeddedStore, Options};

async fn open() -> Fixture {
    let folder = tempfile::tempdir().expect("a folder for the store");
    let store = EmbeddedStore::open(Options::new(folder.path().join("store"))).expect("open");
    Fixture::new(Arc::new(store), folder)
}

storage::suite!(open);
