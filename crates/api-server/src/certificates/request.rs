//! What somebody asks a certificate for: the signing request inside of a CertificateSigningRequest, and what the signers of
//! Kubernetes demand of it.
//!
//! Everybody who judges or signs a request reads it here. Two readers that disagree about what it says would let somebody
//! pass one of them with a harmless request, and have another one signed.

use api::validation::pem;
use base64::{Engine, engine::general_purpose::STANDARD};
use object_model::value::Fields;
use serde_json::Value;
use x509_parser::{
    certification_request::X509CertificationRequest,
    extensions::{GeneralName, ParsedExtension},
    oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME, Oid},
    prelude::FromDer,
    x509::X509Name,
};

use super::der::{element, oid, sequence};

pub const API_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
pub const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// The signers of this server.
pub const SIGNERS: [&str; 3] = [API_CLIENT, KUBELET_CLIENT, KUBELET_SERVING];

/// What a certificate may say of its subject, below 2.5.4: country, organization, unit, locality, province, street, postal
/// code, common name, serial number. Others could mean anything to whom the certificate is shown: one of them is the uid
/// of the user, which nobody may choose.
const WRITTEN: [u64; 9] = [6, 10, 11, 7, 8, 9, 17, 3, 5];

/// A signing request.
#[derive(Debug, Default)]
pub struct Request {
    /// In DER, of the attributes in [`WRITTEN`] only.
    pub subject: Vec<u8>,
    pub public_key: Vec<u8>,
    /// The names it is for, of the kinds that are known, each in DER.
    pub alternative_names: Vec<u8>,
    pub common_name: String,
    pub organizations: Vec<String>,
    dns: usize,
    emails: usize,
    addresses: usize,
    uris: usize,
}

impl Request {
    /// From the object that carries it, for who only wants to know what is asked for.
    pub fn read(object: &Value) -> Result<Self, String> {
        Self::of(&parsed(&der(object)?)?)
    }

    /// The same, if it is signed by the key it is for.
    pub fn signed(object: &Value) -> Result<Self, String> {
        let der = der(object)?;
        let request = parsed(&der)?;
        request.verify_signature().map_err(|_| "the request is not signed by the key it is for".to_owned())?;
        Self::of(&request)
    }

    fn of(request: &X509CertificationRequest<'_>) -> Result<Self, String> {
        let info = &request.certification_request_info;
        let mut read = Self {
            subject: subject(&info.subject)?,
            public_key: info.subject_pki.raw.to_vec(),
            // The last one counts, as for who comes with the certificate.
            common_name: texts(&info.subject, &OID_X509_COMMON_NAME)?.pop().unwrap_or_default(),
            organizations: texts(&info.subject, &OID_X509_ORGANIZATION_NAME)?,
            ..Self::default()
        };
        for attribute in info.iter_attributes() {
            let x509_parser::cri_attributes::ParsedCriAttribute::ExtensionRequest(asked) = attribute.parsed_attribute()
            else {
                continue;
            };
            for extension in &asked.extensions {
                if let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() {
                    names.general_names.iter().try_for_each(|name| read.add(name))?;
                }
            }
        }
        Ok(read)
    }

    fn add(&mut self, name: &GeneralName<'_>) -> Result<(), String> {
        let (count, tag, content) = match name {
            GeneralName::RFC822Name(name) => (&mut self.emails, 0x81, name.as_bytes()),
            GeneralName::DNSName(name) => (&mut self.dns, 0x82, name.as_bytes()),
            GeneralName::URI(name) => (&mut self.uris, 0x86, name.as_bytes()),
            // Go reads no certificate in which one has another length.
            GeneralName::IPAddress(address) if ![4, 16].contains(&address.len()) => {
                return Err(format!("x509: cannot parse IP address of length {}", address.len()));
            }
            GeneralName::IPAddress(address) => (&mut self.addresses, 0x87, *address),
            _ => return Ok(()),
        };
        *count += 1;
        self.alternative_names.extend(element(tag, content));
        Ok(())
    }

    /// What is wrong with it for one of the [`SIGNERS`].
    pub fn judged_by(&self, signer: &str, usages: &[&str]) -> Result<(), String> {
        match signer {
            API_CLIENT => client_usages(usages),
            KUBELET_CLIENT => self.is_for_node(usages, "client auth"),
            KUBELET_SERVING => self.is_for_node(usages, "server auth"),
            other => Err(format!("nobody here signs for {other:?}")),
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

/// The one block of the PEM, itself in base64. What comes with a second one could look different to whoever approves it.
fn der(object: &Value) -> Result<Vec<u8>, String> {
    let bytes = STANDARD.decode(object.text_at(&["spec", "request"])).map_err(|e| e.to_string())?;
    let text = String::from_utf8(bytes).map_err(|e| e.to_string())?;
    if text.matches("-----BEGIN").count() > 1 {
        return Err("there must be one PEM block only".to_owned());
    }
    match pem::blocks(&text).next() {
        Some(block) if block.label == "CERTIFICATE REQUEST" => Ok(block.der),
        _ => Err("PEM block type must be CERTIFICATE REQUEST".to_owned()),
    }
}

fn parsed(der: &[u8]) -> Result<X509CertificationRequest<'_>, String> {
    match X509CertificationRequest::from_der(der) {
        Ok(([], request)) => Ok(request),
        Ok(_) => Err("asn1: syntax error: trailing data".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// All attributes of this kind. One that cannot be read is not left out: others may be able to.
fn texts(subject: &X509Name<'_>, kind: &Oid<'_>) -> Result<Vec<String>, String> {
    let unreadable = |_| format!("the subject has a text that cannot be read ({kind})");
    subject.iter_by_oid(kind).map(|attribute| attribute.as_str().map(str::to_owned).map_err(unreadable)).collect()
}

/// The subject with what may be written of it.
fn subject(asked: &X509Name<'_>) -> Result<Vec<u8>, String> {
    let mut attributes = Vec::new();
    for last in WRITTEN {
        let kind = Oid::from(&[2, 5, 4, last]).map_err(|_| "not an object identifier".to_owned())?;
        for text in texts(asked, &kind)? {
            let attribute = sequence(&[&oid(&[2, 5, 4, last]), &element(0x0c, text.as_bytes())]);
            attributes.extend(element(0x31, &attribute));
        }
    }
    Ok(element(0x30, &attributes))
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
