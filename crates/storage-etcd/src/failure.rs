//! What a failed call means: whether to try again, and what to tell the caller.
//!
//! etcd answers with a gRPC code and a fixed text; the code alone does not tell these cases apart.

use std::error::Error as _;

use storage::Error;
use tonic::{Code, ConnectError, Status};

const NO_LEADER: &str = "etcdserver: no leader";
const TOO_MANY_REQUESTS: &str = "etcdserver: too many requests";
const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";
const FUTURE: &str = "etcdserver: mvcc: required revision is a future revision";
const LEASE_NOT_FOUND: &str = "etcdserver: requested lease not found";
const AUTH_NOT_ENABLED: &str = "etcdserver: authentication is not enabled";
const TOKEN_IS_STALE: [&str; 3] = [
    "etcdserver: invalid auth token",
    "etcdserver: revision of auth store is old",
    // No token was sent, as authentication was not enabled when we asked for one.
    "etcdserver: user name is empty",
];

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The request was not executed and may be sent again.
    NotExecuted,
    /// The request was not executed because our token is too old.
    StaleToken,
    /// The request may have been executed, or still will be.
    Unknown,
    /// etcd's answer. Sending it again would not change it.
    Refused,
}

pub(crate) fn verdict(status: &Status) -> Verdict {
    let message = status.message();
    if TOKEN_IS_STALE.contains(&message) {
        return Verdict::StaleToken;
    }
    // etcd checks for a leader (`hasleader`) and for its load before it proposes a request to the others.
    if never_sent(status) || message == NO_LEADER || message == TOO_MANY_REQUESTS {
        return Verdict::NotExecuted;
    }
    match status.code() {
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Unauthenticated => Verdict::Refused,
        _ => Verdict::Unknown,
    }
}

/// Whether there was no connection to send the request on.
fn never_sent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

pub(crate) fn is_compacted(status: &Status) -> bool {
    status.message() == COMPACTED
}

pub(crate) fn is_future(status: &Status) -> bool {
    status.message() == FUTURE
}

pub(crate) fn is_lease_not_found(status: &Status) -> bool {
    status.message() == LEASE_NOT_FOUND
}

pub(crate) fn is_auth_not_enabled(status: &Status) -> bool {
    status.message() == AUTH_NOT_ENABLED
}

/// The answer to the caller, for everything that has no better one.
pub(crate) fn error(status: &Status) -> Error {
    let message = status.message();
    if message.contains("request is too large") || message.contains("received message larger than max") {
        return Error::Invalid(
            "etcd refuses a request of this size: start etcd with --max-request-bytes=2097152 or more".into(),
        );
    }
    if message.contains("too many operations in txn request") {
        return Error::Invalid(
            "etcd refuses this many compares or changes at once (128, unless started with --max-txn-ops)".into(),
        );
    }
    if message.contains("database space exceeded") {
        return Error::Unavailable(
            "etcd's space quota is used up: compact and defragment it, raise --quota-backend-bytes, then disarm the \
             alarm with `etcdctl alarm disarm`"
                .into(),
        );
    }
    Error::Unavailable(format!("etcd: {}", describe(status)))
}

/// The status in words, with the cause that transport errors hide in their source.
pub(crate) fn describe(status: &Status) -> String {
    let mut text = status.message().to_owned();
    if text.is_empty() {
        text = status.code().description().to_owned();
    }
    let mut cause = status.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_surely_was_not_executed_is_sent_again() {
        let cases = [
            (Status::unavailable(NO_LEADER), Verdict::NotExecuted),
            (Status::resource_exhausted(TOO_MANY_REQUESTS), Verdict::NotExecuted),
            (Status::from_error(Box::new(ConnectError("refused".into()))), Verdict::NotExecuted),
            (Status::unauthenticated("etcdserver: invalid auth token"), Verdict::StaleToken),
            (Status::invalid_argument("etcdserver: user name is empty"), Verdict::StaleToken),
            (Status::unavailable("etcdserver: request timed out"), Verdict::Unknown),
            (Status::unavailable("etcdserver: leader changed"), Verdict::Unknown),
            (Status::unknown("raft proposal dropped"), Verdict::Unknown),
            (Status::cancelled("operation was canceled"), Verdict::Unknown),
            (Status::out_of_range(COMPACTED), Verdict::Refused),
            (Status::permission_denied("etcdserver: permission denied"), Verdict::Refused),
        ];
        for (status, expected) in cases {
            assert_eq!(verdict(&status), expected, "{status:?}");
        }
    }

    #[test]
    fn errors_say_what_to_do() {
        let told = |status| error(&status).to_string();
        assert!(told(Status::invalid_argument("etcdserver: request is too large")).contains("--max-request-bytes"));
        assert!(told(Status::resource_exhausted("etcdserver: mvcc: database space exceeded")).contains("disarm"));
        assert!(told(Status::from_error(Box::new(ConnectError("refused".into())))).contains("refused"));
    }
}
