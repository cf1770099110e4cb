//! The answer of a request that gives no object: Kubernetes' `Status`, and one constructor for each way to fail.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::field::Errors;
use crate::go_text::quote;
use crate::identity::{GroupKind, GroupResource};

/// Why a request failed, in one word for programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Reason(Cow<'static, str>);

macro_rules! reasons {
    ($($constant:ident = $text:literal),* $(,)?) => {
        impl Reason {
            $(pub const $constant: Reason = Reason(Cow::Borrowed($text));)*
        }
    };
}

reasons! {
    UNKNOWN = "",
    UNAUTHORIZED = "Unauthorized",
    FORBIDDEN = "Forbidden",
    NOT_FOUND = "NotFound",
    ALREADY_EXISTS = "AlreadyExists",
    CONFLICT = "Conflict",
    GONE = "Gone",
    INVALID = "Invalid",
    SERVER_TIMEOUT = "ServerTimeout",
    STORE_READ_ERROR = "StorageReadError",
    TIMEOUT = "Timeout",
    TOO_MANY_REQUESTS = "TooManyRequests",
    BAD_REQUEST = "BadRequest",
    METHOD_NOT_ALLOWED = "MethodNotAllowed",
    NOT_ACCEPTABLE = "NotAcceptable",
    REQUEST_ENTITY_TOO_LARGE = "RequestEntityTooLarge",
    UNSUPPORTED_MEDIA_TYPE = "UnsupportedMediaType",
    INTERNAL_ERROR = "InternalError",
    EXPIRED = "Expired",
    SERVICE_UNAVAILABLE = "ServiceUnavailable",
}

impl Reason {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn is_unknown(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Words for [`Cause::reason`] beside those of field errors.
pub mod cause {
    pub const UNEXPECTED_SERVER_RESPONSE: &str = "UnexpectedServerResponse";
    pub const FIELD_MANAGER_CONFLICT: &str = "FieldManagerConflict";
    pub const RESOURCE_VERSION_TOO_LARGE: &str = "ResourceVersionTooLarge";
    pub const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";
}

/// A `Status` object of `v1`. Its fields serialize in the order that kube-apiserver writes them in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    pub kind: Cow<'static, str>,
    pub api_version: Cow<'static, str>,
    pub metadata: ListMeta,
    /// `Success` or `Failure`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub status: Cow<'static, str>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "Reason::is_unknown")]
    pub reason: Reason,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<Details>>,
    /// The HTTP code.
    #[serde(skip_serializing_if = "is_zero")]
    pub code: i32,
}

/// Metadata of lists and statuses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListMeta {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub r#continue: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<i64>,
}

/// What the request was about, and each thing that is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The resource, or in `Invalid` the kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cause {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: Cow<'static, str>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

impl Details {
    fn of(resource: &GroupResource, name: &str) -> Self {
        Self {
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            name: name.to_owned(),
            ..Self::default()
        }
    }

    fn retry(seconds: i32) -> Self {
        Self { retry_after_seconds: seconds, ..Self::default() }
    }
}

impl Status {
    /// A deletion that left no object, and other things that went well.
    pub fn success(details: Option<Details>) -> Self {
        Self {
            kind: Cow::Borrowed("Status"),
            api_version: Cow::Borrowed("v1"),
            status: Cow::Borrowed("Success"),
            details: details.map(Box::new),
            ..Self::default()
        }
    }

    /// Any failure; prefer the constructors below.
    pub fn failure(code: i32, reason: Reason, message: impl Into<String>, details: Option<Details>) -> Self {
        Self {
            kind: Cow::Borrowed("Status"),
            api_version: Cow::Borrowed("v1"),
            status: Cow::Borrowed("Failure"),
            message: message.into(),
            reason,
            details: details.map(Box::new),
            code,
            ..Self::default()
        }
    }

    pub fn is_success(&self) -> bool {
        self.status == "Success"
    }

    pub fn is(&self, reason: Reason) -> bool {
        self.reason == reason
    }

    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        let message = format!("{resource} {} not found", quote(name));
        Self::failure(404, Reason::NOT_FOUND, message, Some(Details::of(resource, name)))
    }

    /// A path that leads nowhere.
    pub fn path_not_found() -> Self {
        let message = "the server could not find the requested resource";
        Self::failure(404, Reason::NOT_FOUND, message, Some(Details::default()))
    }

    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        let message = format!("{resource} {} already exists", quote(name));
        Self::failure(409, Reason::ALREADY_EXISTS, message, Some(Details::of(resource, name)))
    }

    /// Every name tried for a `generateName` was taken.
    pub fn generate_name_conflict(resource: &GroupResource, name: &str, retry_after_seconds: i32) -> Self {
        let message = format!(
            "{resource} {} already exists, the server was not able to generate a unique name for the object",
            quote(name)
        );
        let details = Details { retry_after_seconds, ..Details::of(resource, name) };
        Self::failure(409, Reason::ALREADY_EXISTS, message, Some(details))
    }

    pub fn unauthorized(message: &str) -> Self {
        let message = if message.is_empty() { "not authorized" } else { message };
        Self::failure(401, Reason::UNAUTHORIZED, message, None)
    }

    pub fn forbidden(resource: &GroupResource, name: &str, why: impl fmt::Display) -> Self {
        let message = match (resource.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (false, true) => format!("{resource} is forbidden: {why}"),
            (false, false) => format!("{resource} {} is forbidden: {why}", quote(name)),
        };
        Self::failure(403, Reason::FORBIDDEN, message, Some(Details::of(resource, name)))
    }

    pub fn conflict(resource: &GroupResource, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {why}", quote(name));
        Self::failure(409, Reason::CONFLICT, message, Some(Details::of(resource, name)))
    }

    /// Server-side apply met fields of other managers.
    pub fn apply_conflict(causes: Vec<Cause>, message: impl Into<String>) -> Self {
        Self::failure(409, Reason::CONFLICT, message, Some(Details { causes, ..Details::default() }))
    }

    pub fn gone(message: impl Into<String>) -> Self {
        Self::failure(410, Reason::GONE, message, None)
    }

    /// A resource version or continue token that is too old.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, Reason::EXPIRED, message, None)
    }

    /// All that is wrong with an object, each thing as a cause with its field.
    pub fn invalid(kind: &GroupKind, name: &str, errors: &Errors) -> Self {
        let causes = errors
            .iter()
            .map(|error| Cause {
                reason: Cow::Borrowed(error.kind.reason()),
                message: error.body(),
                field: error.field.clone(),
            })
            .collect();
        let message = match errors.is_empty() {
            true => format!("{kind} {} is invalid", quote(name)),
            false => format!("{kind} {} is invalid: {errors}", quote(name)),
        };
        let details = Details {
            group: kind.group.to_string(),
            kind: kind.kind.to_string(),
            name: name.to_owned(),
            causes,
            ..Details::default()
        };
        Self::failure(422, Reason::INVALID, message, Some(details))
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, Reason::BAD_REQUEST, message, None)
    }

    /// The server's own limits: the message says only that. See [`Status::too_many_requests_because`].
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: i32) -> Self {
        Self::failure(429, Reason::TOO_MANY_REQUESTS, message, Some(Details::retry(retry_after_seconds)))
    }

    pub fn too_many_requests_because(why: impl fmt::Display) -> Self {
        Self::failure(429, Reason::TOO_MANY_REQUESTS, format!("Too many requests: {why}"), None)
    }

    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::failure(503, Reason::SERVICE_UNAVAILABLE, message, None)
    }

    /// The resource knows no such verb.
    /// The path exists, but not with this method.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::failure(405, Reason::METHOD_NOT_ALLOWED, message, Some(Details::default()))
    }

    /// Nothing was done; trying again may help.
    pub fn server_timeout(resource: &GroupResource, operation: &str, retry_after_seconds: i32) -> Self {
        let message = format!(
            "The {operation} operation against {resource} could not be completed at this time, please try again."
        );
        let details = Details { retry_after_seconds, ..Details::of(resource, operation) };
        Self::failure(500, Reason::SERVER_TIMEOUT, message, Some(details))
    }

    /// Time ran out; it may still be done.
    pub fn timeout(message: impl fmt::Display, retry_after_seconds: i32) -> Self {
        Self::failure(504, Reason::TIMEOUT, format!("Timeout: {message}"), Some(Details::retry(retry_after_seconds)))
    }

    /// A resource version from the future.
    pub fn too_large_resource_version(asked: u64, current: u64, retry_after_seconds: i32) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let mut status = Self::timeout(message, retry_after_seconds);
        if let Some(details) = &mut status.details {
            details.causes.push(Cause {
                reason: Cow::Borrowed(cause::RESOURCE_VERSION_TOO_LARGE),
                message: "Too large resource version".to_owned(),
                field: String::new(),
            });
        }
        status
    }

    pub fn internal(why: impl fmt::Display) -> Self {
        let cause = Cause { message: why.to_string(), ..Cause::default() };
        let details = Details { causes: vec![cause], ..Details::default() };
        Self::failure(500, Reason::INTERNAL_ERROR, format!("Internal error occurred: {why}"), Some(details))
    }

    pub fn request_entity_too_large(why: impl fmt::Display) -> Self {
        Self::failure(413, Reason::REQUEST_ENTITY_TOO_LARGE, format!("Request entity too large: {why}"), None)
    }

    /// No media type of `Accept` can be given.
    pub fn not_acceptable(offered: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", offered.join(", "));
        Self::failure(406, Reason::NOT_ACCEPTABLE, message, None)
    }

    /// The same where `Accept` asks for a conversion, such as a table.
    pub fn not_acceptable_conversion(target: &str, offered: &[&str]) -> Self {
        let offered = offered.join(", ");
        let message = format!("only the following media types are accepted when converting to {target}: {offered}");
        Self::failure(406, Reason::NOT_ACCEPTABLE, message, None)
    }

    pub fn unsupported_media_type(known: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            known.join(", ")
        );
        Self::failure(415, Reason::UNSUPPORTED_MEDIA_TYPE, message, None)
    }

    /// A failure of which only the HTTP code is known. `server_message` is what the other side said, if anything.
    pub fn generic(code: i32, verb: &str, resource: &GroupResource, name: &str, server_message: &str) -> Self {
        let (reason, message) = generic_words(code, verb, server_message);
        let verb = verb.to_lowercase();
        let message = match (resource.is_empty(), name.is_empty()) {
            (true, _) => message,
            (false, true) => format!("{message} ({verb} {resource})"),
            (false, false) => format!("{message} ({verb} {resource} {name})"),
        };
        Self::failure(code, reason, message, Some(Details::of(resource, name)))
    }
}

fn generic_words(code: i32, verb: &str, server_message: &str) -> (Reason, String) {
    let (reason, words) = match code {
        409 if verb == "POST" => (Reason::ALREADY_EXISTS, "the server reported a conflict"),
        409 => (Reason::CONFLICT, "the server reported a conflict"),
        404 => (Reason::NOT_FOUND, "the server could not find the requested resource"),
        400 => (Reason::BAD_REQUEST, "the server rejected our request for an unknown reason"),
        401 => (Reason::UNAUTHORIZED, "the server has asked for the client to provide credentials"),
        403 => (Reason::FORBIDDEN, server_message),
        406 if server_message.is_empty() || server_message == "unknown" => {
            (Reason::NOT_ACCEPTABLE, "the server was unable to respond with a content type that the client supports")
        }
        406 => (Reason::NOT_ACCEPTABLE, server_message),
        415 => (Reason::UNSUPPORTED_MEDIA_TYPE, server_message),
        405 => (Reason::METHOD_NOT_ALLOWED, "the server does not allow this method on the requested resource"),
        422 => (Reason::INVALID, "the server rejected our request due to an error in our request"),
        503 => (Reason::SERVICE_UNAVAILABLE, "the server is currently unable to handle the request"),
        504 => (
            Reason::TIMEOUT,
            "the server was unable to return a response in the time allotted, but may still be processing the request",
        ),
        429 => {
            (Reason::TOO_MANY_REQUESTS, "the server has received too many requests and has asked us to try again later")
        }
        500.. => {
            let said = quote(server_message);
            let words = format!("an error on the server ({said}) has prevented the request from succeeding");
            return (Reason::INTERNAL_ERROR, words);
        }
        _ => {
            let words = format!("the server responded with the status code {code} but did not return more information");
            return (Reason::UNKNOWN, words);
        }
    };
    (reason, words.to_owned())
}

#[cfg(test)]
mod tests;
