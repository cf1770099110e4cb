//! One audit event, as Kubernetes writes it.

use std::{collections::BTreeMap, fmt::Write, sync::Arc};

use object_model::{go_text::quote, time::Time};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::policy::{Level, Stage};
use crate::context::User;

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    pub kind: &'static str,
    pub api_version: &'static str,
    pub level: Level,
    #[serde(rename = "auditID")]
    pub audit_id: String,
    pub stage: Stage,
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    pub verb: &'static str,
    #[serde(serialize_with = "user")]
    pub user: Option<Arc<User>>,
    #[serde(serialize_with = "user", skip_serializing_if = "Option::is_none")]
    pub impersonated_user: Option<Arc<User>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authentication_metadata: Option<AuthenticationMetadata>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    pub source_ips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_ref: Option<ObjectReference>,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub response_status: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub request_object: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub response_object: Value,
    #[serde(serialize_with = "micro")]
    pub request_received_timestamp: Time,
    #[serde(serialize_with = "micro")]
    pub stage_timestamp: Time,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// How the user came to be who it is.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthenticationMetadata {
    /// The verb that let it act as somebody else, for some requests only.
    pub impersonation_constraint: String,
}

/// What a request was about.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

/// A user as reviews and events show it.
#[derive(Serialize)]
struct UserInfo<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: BTreeMap<&'a str, &'a [String]>,
}

fn user<S: Serializer>(user: &Option<Arc<User>>, to: S) -> Result<S::Ok, S::Error> {
    let none = User::default();
    let user = user.as_deref().unwrap_or(&none);
    let extra = user.extra.iter().map(|(key, values)| (key.as_str(), values.as_slice())).collect();
    UserInfo { username: &user.name, uid: &user.uid, groups: &user.groups, extra }.serialize(to)
}

fn micro<S: Serializer>(time: &Time, to: S) -> Result<S::Ok, S::Error> {
    time.micro().serialize(to)
}

impl Event {
    /// One line of text, as before there was JSON.
    pub fn legacy(&self) -> String {
        let or = |text: &str, otherwise: &str| quote(if text.is_empty() { otherwise } else { text });
        let groups = |user: Option<&Arc<User>>, otherwise: &str| {
            let groups: Vec<String> = user.into_iter().flat_map(|u| &u.groups).map(|g| quote(g)).collect();
            or(&groups.join(","), otherwise)
        };
        let name = |user: Option<&Arc<User>>| user.map_or(String::new(), |u| u.name.clone());
        let namespace = self.object_ref.as_ref().map_or("", |r| &r.namespace);
        let code = self.response_status.get("code").and_then(Value::as_i64);
        let mut line = format!("{} AUDIT:", self.request_received_timestamp.micro());
        for (key, value) in [
            ("id", quote(&self.audit_id)),
            ("stage", quote(&format!("{:?}", self.stage))),
            ("ip", or(self.source_ips.first().map_or("", |ip| ip), "<unknown>")),
            ("method", quote(self.verb)),
            ("user", or(&name(self.user.as_ref()), "<none>")),
            ("groups", groups(self.user.as_ref(), "<none>")),
            ("as", or(&name(self.impersonated_user.as_ref()), "<self>")),
            ("asgroups", groups(self.impersonated_user.as_ref(), "<lookup>")),
            ("user-agent", quote(&self.user_agent)),
            ("namespace", or(namespace, "<none>")),
            ("uri", quote(&self.request_uri)),
            ("response", code.map_or("\"<deferred>\"".into(), |code| format!("\"{code}\""))),
        ] {
            let _ = write!(line, " {key}={value}");
        }
        line
    }
}
