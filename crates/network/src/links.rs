//! The edge to the kernel's links, addresses and routes.

use nlink::netlink::{Connection, Route};

use crate::Error;

/// How the names of all our links begin.
pub(crate) const PREFIX: &str = "ferry";

/// A socket to the network namespace that the calling thread is in.
pub(crate) fn open() -> Result<Connection<Route>, Error> {
    Connection::<Route>::new().map_err(failed("cannot reach the kernel's links and routes"))
}

/// What was there already is as good.
pub(crate) fn there_now(done: nlink::netlink::Result<()>) -> nlink::netlink::Result<()> {
    done.or_else(|error| if error.is_already_exists() { Ok(()) } else { Err(error) })
}

pub(crate) fn failed(what: &'static str) -> impl Fn(nlink::netlink::Error) -> Error {
    move |error| Error(format!("{what}: {error}"))
}

/// The same in every process and every version: names of links and numbers of lists are made from it (FNV-1a).
pub(crate) fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
