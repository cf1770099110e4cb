//! Events sent to a collector in batches, with patience when it does not answer.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::json;

use super::{backend::Sink, event::Event};
use crate::outbound::{Client, Error, Peer};

const TIMEOUT: Duration = Duration::from_secs(30);
/// How often one batch is tried, with pauses that grow by half.
const TRIES: u32 = 5;
const GROWTH: f64 = 1.5;

pub struct Webhook {
    client: Client,
    /// The first pause.
    pause: Duration,
}

impl Webhook {
    pub fn new(peer: &Peer, pause: Duration) -> Result<Self, Error> {
        Ok(Self { client: Client::new(peer, TIMEOUT)?, pause })
    }
}

#[async_trait]
impl Sink for Webhook {
    fn name(&self) -> &'static str {
        "webhook"
    }

    async fn write(&mut self, events: &[Arc<Event>]) -> Result<(), String> {
        let items: Vec<&Event> = events.iter().map(|event| &**event).collect();
        let list = json!({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "metadata": {}, "items": items});
        let body = bytes::Bytes::from(list.to_string());
        let mut pause = self.pause;
        for left in (0..TRIES).rev() {
            let (problem, hopeless) = match self.client.post_json("", body.clone()).await {
                Ok(answer) if answer.code.is_success() => return Ok(()),
                // It has understood and does not want it.
                Ok(answer) => {
                    let asked_later = answer.code.as_u16() == 429 || answer.code.is_server_error();
                    (format!("it answered {}", answer.code), !asked_later)
                }
                Err(error) => (error.to_string(), false),
            };
            if left == 0 || hopeless {
                return Err(problem);
            }
            tracing::warn!(%problem, "the audit webhook will be tried again");
            tokio::time::sleep(pause).await;
            pause = pause.mul_f64(GROWTH);
        }
        Ok(())
    }
}
