//! certificates.k8s.io: asking a signer for a certificate.

pub mod certificate_signing_request;

const GROUP: &str = "certificates.k8s.io";
