//! A server that knows tokens: asked with a TokenReview, and believed for a while.

use std::{path::PathBuf, time::Duration};

use async_trait::async_trait;
use object_model::value::Fields;
use serde_json::{Value, json};

use super::{
    Denied, Error,
    tokens::{Known, TokenAuthenticator},
};
use crate::{
    context::{Annotations, User},
    outbound::{Client, Peer},
};

const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct Settings {
    /// A kubeconfig that names the server.
    pub kubeconfig: PathBuf,
}

/// Verdicts are remembered by [`super::tokens::Tokens`], like all others.
pub struct Webhook(Client);

impl Webhook {
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        Ok(Self(Client::new(&Peer::from_kubeconfig(&settings.kubeconfig)?, TIMEOUT)?))
    }
}

#[async_trait]
impl TokenAuthenticator for Webhook {
    async fn token(&self, token: &str, wanted: &[String], _: &Annotations) -> Result<Option<Known>, Denied> {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": wanted},
        });
        let answer = self.0.post_json("", review.to_string()).await.map_err(|e| Denied(e.to_string()))?;
        if !answer.code.is_success() {
            return Err(Denied(format!("the token webhook answered {}", answer.code)));
        }
        let answered: Value = serde_json::from_slice(&answer.body)
            .map_err(|e| Denied(format!("the token webhook answered badly: {e}")))?;
        let status = answered.field("status").unwrap_or(&Value::Null);
        if status.flag("authenticated") != Some(true) {
            let why = status.text("error");
            return if why.is_empty() { Ok(None) } else { Err(Denied::new(why)) };
        }
        let texts = |value: &Value, field: &str| -> Vec<String> {
            value.items(field).iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let info = status.field("user").unwrap_or(&Value::Null);
        let extra = info.field("extra").unwrap_or(&Value::Null);
        let user = User {
            name: info.text("username").to_owned(),
            uid: info.text("uid").to_owned(),
            groups: texts(info, "groups"),
            extra: info.entries("extra").map(|(key, _)| (key.clone(), texts(extra, key))).collect(),
        };
        // One that does not know audiences speaks for this server.
        let audiences = Some(texts(status, "audiences")).filter(|told| !told.is_empty());
        Ok(Some(Known { audiences, ..Known::plain(user) }))
    }
}
