//! The places in the chain where policies and webhooks come in.
//!
//! This version has no engine for them: their objects are stored, and nobody calls them. That must not go unnoticed, so
//! whoever writes one is warned. `docs/design/admission.md` says what an engine finds at these places.

use async_trait::async_trait;
use object_model::status::Status;
use serde_json::Value;

use super::{Attributes, Plugin, Request};

const GROUP: &str = "admissionregistration.k8s.io";

/// One such place, and the resources that rule it.
pub struct Place {
    name: &'static str,
    resources: &'static [&'static str],
}

impl Place {
    pub const MUTATING_POLICY: Place = Place {
        name: "MutatingAdmissionPolicy",
        resources: &["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"],
    };
    pub const MUTATING_WEBHOOK: Place =
        Place { name: "MutatingAdmissionWebhook", resources: &["mutatingwebhookconfigurations"] };
    pub const VALIDATING_POLICY: Place = Place {
        name: "ValidatingAdmissionPolicy",
        resources: &["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
    };
    pub const VALIDATING_WEBHOOK: Place =
        Place { name: "ValidatingAdmissionWebhook", resources: &["validatingwebhookconfigurations"] };
}

#[async_trait]
impl Plugin for Place {
    fn name(&self) -> &'static str {
        self.name
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        self.resources.iter().any(|resource| request.writes(GROUP, resource, ""))
    }

    async fn validate(&self, attributes: &Attributes<'_>, _: &Value) -> Result<(), Status> {
        let resource = &attributes.target.resource.plural;
        attributes.context.warnings.add(format!("this version of ferry stores {resource} and does not enforce them"));
        Ok(())
    }
}
