//! The default storage engine: an embedded, crash-safe store on redb.
