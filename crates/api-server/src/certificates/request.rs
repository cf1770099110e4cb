//! What somebody asks a certificate for: the signing request inside of a CertificateSigningRequest, and what the signers of
//! Kubernetes demand of it.

use base64::{Engine, engine::general_purpose::STANDARD};
use object_model::value::Fields;
use rustls::pki_types::{CertificateSigningRequestDer, pem::PemObject};
use serde_json::Value;
use x509_parser::{
    certification_request::X509CertificationRequest,
    extensions::{GeneralName, ParsedExtension},
    prelude::FromDer,
};

pub const API_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
pub const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

/// A signing request, signed by the key it is for.
#[derive(Debug, Default)]
pub struct Request {
    /// As it was written, to be written again.
    pub subject: Vec<u8>,
    pub public_key: Vec<u8>,
    /// The names it is for, in DER.
    pub alternative_names: Option<Vec<u8>>,
    pub common_name: String,
    organizations: Vec<String>,
    dns: usize,
    emails: usize,
    addresses: usize,
    uris: usize,
}

impl Request {
    /// From the object that carries it.
    pub fn read(object: &Value) -> Result<Self, String> {
        let pem = STANDARD.decode(object.text_at(&["spec", "request"])).map_err(|e| e.to_string())?;
        let der = CertificateSigningRequestDer::from_pem_slice(&pem)
            .map_err(|_| "PEM block type must be CERTIFICATE REQUEST".to_owned())?;
        let (_, request) = X509CertificationRequest::from_der(&der).map_err(|e| e.to_string())?;
        request.verify_signature().map_err(|_| "the request is not signed by the key it is for".to_owned())?;
        let info = &request.certification_request_info;
        let texts = |name: &x509_parser::x509::AttributeTypeAndValue<'_>| name.as_str().ok().map(str::to_owned);
        let mut read = Self {
            subject: info.subject.as_raw().to_vec(),
            public_key: info.subject_pki.raw.to_vec(),
            common_name: info.subject.iter_common_name().filter_map(texts).last().unwrap_or_default(),
            organizations: info.subject.iter_organization().filter_map(texts).collect(),
            ..Self::default()
        };
        for attribute in info.iter_attributes() {
            let x509_parser::cri_attributes::ParsedCriAttribute::ExtensionRequest(asked) = attribute.parsed_attribute()
            else {
                continue;
            };
            for extension in &asked.extensions {
                if let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() {
                    read.alternative_names = Some(extension.value.to_vec());
                    names.general_names.iter().for_each(|name| read.count(name));
                }
            }
        }
        Ok(read)
    }

    fn count(&mut self, name: &GeneralName<'_>) {
        match name {
            GeneralName::DNSName(_) => self.dns += 1,
            GeneralName::RFC822Name(_) => self.emails += 1,
            GeneralName::IPAddress(_) => self.addresses += 1,
            GeneralName::URI(_) => self.uris += 1,
            _ => {}
        }
    }

    /// What is wrong with it for this signer; `None` of the known signers knows it otherwise.
    pub fn judged_by(&self, signer: &str, usages: &[&str]) -> Option<Result<(), String>> {
        match signer {
            API_CLIENT => Some(client_usages(usages)),
            KUBELET_CLIENT => Some(self.is_for_node(usages, "client auth")),
            KUBELET_SERVING => Some(self.is_for_node(usages, "server auth")),
            _ => None,
        }
    }

    fn is_for_node(&self, usages: &[&str], purpose: &str) -> Result<(), String> {
        let serving = purpose == "server auth";
        if self.organizations != ["system:nodes"] {
            return Err("subject organization is not system:nodes".into());
        }
        if serving && self.dns + self.addresses == 0 {
            return Err("DNS or IP subjectAltName is required".into());
        }
        for (count, name, allowed) in [
            (self.dns, "DNS", serving),
            (self.emails, "Email", false),
            (self.addresses, "IP", serving),
            (self.uris, "URI", false),
        ] {
            if count > 0 && !allowed {
                return Err(format!("{name} subjectAltNames are not allowed"));
            }
        }
        if !self.common_name.starts_with("system:node:") {
            return Err("subject common name does not begin with system:node:".into());
        }
        let mut given = usages.to_vec();
        given.sort_unstable();
        given.dedup();
        let mut wanted = ["digital signature", "key encipherment", purpose];
        wanted.sort_unstable();
        // Keys that cannot encipher need not say that they do.
        let fits = wanted.iter().filter(|usage| given.contains(usage) || **usage == "key encipherment").count() == 3
            && given.iter().all(|usage| wanted.contains(usage));
        if fits { Ok(()) } else { Err(format!("usages did not match [{}]", wanted.join(" "))) }
    }
}

fn client_usages(usages: &[&str]) -> Result<(), String> {
    let known = ["client auth", "digital signature", "key encipherment"];
    if let Some(usage) = usages.iter().find(|usage| !known.contains(usage)) {
        return Err(format!("invalid usage for client certificate: {usage}"));
    }
    if usages.contains(&"client auth") {
        Ok(())
    } else {
        Err("missing required usage for client certificate: client auth".into())
    }
}
