//! DenyServiceExternalIPs: no Service takes an address that others may use. By flag.

use async_trait::async_trait;
use object_model::{status::Status, value::Fields};
use serde_json::Value;

use super::{Attributes, Plugin, Request};

pub struct DenyServiceExternalIps;

#[async_trait]
impl Plugin for DenyServiceExternalIps {
    fn name(&self) -> &'static str {
        "DenyServiceExternalIPs"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.writes("", "services", "")
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
        let addresses =
            |service: &Value| service.field("spec").map(|s| s.items("externalIPs").to_vec()).unwrap_or_default();
        let old = attributes.old.map(addresses).unwrap_or_default();
        if addresses(object).iter().all(|address| old.contains(address)) {
            return Ok(());
        }
        Err(attributes.forbidden(object, "Use of external IPs is denied by admission control"))
    }
}
