//! CertificateApproval, CertificateSigning and ClusterTrustBundleAttest: whoever approves, signs or vouches for a signer must
//! be allowed to by that signer's name. CertificateSubjectRestriction: nobody becomes a master by asking for a certificate.

use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;
use object_model::{status::Status, value::Fields};
use serde_json::Value;

use super::{Attributes, Operation, Plugin, Request};
use crate::{
    authorization::{self, Authorization, MASTERS},
    certificates::request::{self, API_CLIENT},
};

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";

/// One of the rights that are given by the name of a signer.
pub struct SignerRight {
    right: Right,
    authorization: Arc<Authorization>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Right {
    Approve,
    Sign,
    Attest,
}

impl SignerRight {
    pub fn approve(authorization: &Arc<Authorization>) -> Self {
        Self { right: Right::Approve, authorization: authorization.clone() }
    }

    pub fn sign(authorization: &Arc<Authorization>) -> Self {
        Self { right: Right::Sign, authorization: authorization.clone() }
    }

    pub fn attest(authorization: &Arc<Authorization>) -> Self {
        Self { right: Right::Attest, authorization: authorization.clone() }
    }

    /// May the requester do this for the signer, by its name or by its domain?
    async fn is_held(&self, attributes: &Attributes<'_>, verb: &str, signer: &str) -> bool {
        let domain = signer.split_once('/').map_or(signer, |(domain, _)| domain);
        for name in [signer.to_owned(), format!("{domain}/*")] {
            let user = &attributes.context.user;
            let question = authorization::Attributes {
                name: Cow::Owned(name),
                ..authorization::Attributes::of_resource(user, verb, GROUP, "signers")
            };
            if self.authorization.decide(&question).await.is_allowed() {
                return true;
            }
        }
        false
    }
}

#[async_trait]
impl Plugin for SignerRight {
    fn name(&self) -> &'static str {
        match self.right {
            Right::Approve => "CertificateApproval",
            Right::Sign => "CertificateSigning",
            Right::Attest => "ClusterTrustBundleAttest",
        }
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        match self.right {
            Right::Approve => request.updates(GROUP, REQUESTS, "approval"),
            Right::Sign => request.updates(GROUP, REQUESTS, "status"),
            Right::Attest => request.writes(GROUP, "clustertrustbundles", ""),
        }
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
        // A request keeps its signer, whatever the update says; a bundle cannot change it.
        let judged = attributes.old.unwrap_or(object);
        let signer = judged.text_at(&["spec", "signerName"]);
        let same = |path: &[&str]| attributes.old.is_some_and(|old| old.at(path) == object.at(path));
        let (verb, words) = match self.right {
            Right::Approve => ("approve", "approve requests with"),
            Right::Sign if same(&["status", "certificate"]) && same(&["status", "conditions"]) => return Ok(()),
            Right::Sign => ("sign", "sign requests with"),
            Right::Attest if signer.is_empty() || same(&["spec"]) => return Ok(()),
            Right::Attest => ("attest", "attest for"),
        };
        if self.is_held(attributes, verb, signer).await {
            return Ok(());
        }
        Err(attributes.forbidden(object, format!("user not permitted to {words} signerName {signer:?}")))
    }
}

pub struct CertificateSubjectRestriction;

#[async_trait]
impl Plugin for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.operation == Operation::Create && request.is_of(GROUP, REQUESTS, "")
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
        if object.text_at(&["spec", "signerName"]) != API_CLIENT {
            return Ok(());
        }
        match request::Request::read(object) {
            Err(why) => Err(attributes.forbidden(object, format!("failed to parse CSR: {why}"))),
            Ok(asked) if asked.organizations.iter().any(|group| group == MASTERS) => {
                let why = format!("use of {API_CLIENT} signer with {MASTERS} group is not allowed");
                Err(attributes.forbidden(object, why))
            }
            Ok(_) => Ok(()),
        }
    }
}
