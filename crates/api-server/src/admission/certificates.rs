//! CertificateApproval, CertificateSigning and ClusterTrustBundleAttest: whoever approves, signs or vouches for a signer must
//! be allowed to by that signer's name. CertificateSubjectRestriction: nobody becomes a master by asking for a certificate.

use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use object_model::{status::Status, value::Fields};
use serde_json::Value;
use x509_parser::{
    certification_request::X509CertificationRequest, oid_registry::OID_X509_ORGANIZATION_NAME, pem::parse_x509_pem,
    prelude::FromDer,
};

use super::{Attributes, Operation, Plugin, Request};
use crate::authorization::{self, Authorization, MASTERS};

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

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
        if object.text_at(&["spec", "signerName"]) != CLIENT_SIGNER {
            return Ok(());
        }
        match organizations(object.text_at(&["spec", "request"])) {
            Err(why) => Err(attributes.forbidden(object, format!("failed to parse CSR: {why}"))),
            Ok(groups) if groups.iter().any(|group| group == MASTERS) => {
                let why = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
                Err(attributes.forbidden(object, why))
            }
            Ok(_) => Ok(()),
        }
    }
}

/// The organizations in the subject of a request: PEM, in base64 as objects have bytes.
fn organizations(request: &str) -> Result<Vec<String>, String> {
    let wrong = "PEM block type must be CERTIFICATE REQUEST";
    let bytes = STANDARD.decode(request).map_err(|error| error.to_string())?;
    let (_, pem) = parse_x509_pem(&bytes).map_err(|_| wrong.to_owned())?;
    if pem.label != "CERTIFICATE REQUEST" {
        return Err(wrong.to_owned());
    }
    let (_, parsed) = X509CertificationRequest::from_der(&pem.contents).map_err(|error| error.to_string())?;
    let subject = &parsed.certification_request_info.subject;
    let names = subject.iter_by_oid(&OID_X509_ORGANIZATION_NAME);
    Ok(names.filter_map(|name| name.as_str().ok()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::organizations;

    #[test]
    fn the_groups_of_a_request_are_read() {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "jane");
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        let key = KeyPair::generate().expect("a key");
        let pem = params.serialize_request(&key).and_then(|request| request.pem()).expect("a request");
        assert_eq!(organizations(&STANDARD.encode(pem)), Ok(vec!["system:masters".to_owned()]));
        assert_eq!(organizations("bm90IHBlbQ=="), Err("PEM block type must be CERTIFICATE REQUEST".to_owned()));
    }
}
