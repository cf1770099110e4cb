use rcgen::{CertificateParams, CustomExtension, DistinguishedName, DnType, KeyPair, SanType};
use rustls::{RootCertStore, pki_types::UnixTime, server::WebPkiClientVerifier};

use super::{
    der::{element, sequence},
    *,
};
use crate::authentication::client_certificate::Presented;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn asked(name: &str, organisation: &str, dns: &[&str]) -> Value {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, organisation);
    params.distinguished_name.push(DnType::CommonName, name);
    params.subject_alt_names = dns.iter().map(|name| SanType::DnsName((*name).try_into().unwrap())).collect();
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    json!({"spec": {"request": STANDARD.encode(pem)}})
}

fn read(name: &str, organisation: &str, dns: &[&str]) -> Request {
    Request::signed(&asked(name, organisation, dns)).unwrap()
}

#[test]
fn signed_certificates_are_good() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::open(folder.path()).unwrap();
    let request = read("system:node:n", "system:nodes", &["n.example"]);
    let usages = ["client auth", "digital signature", "key encipherment"];
    let pem = issue::sign(&request, &usages, DAY, &authority, SystemTime::now()).unwrap();
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    verifier.verify_client_cert(&certificate, &[], UnixTime::now()).unwrap();
    assert_eq!(Presented::read(std::slice::from_ref(&certificate)).unwrap().common_name(), "system:node:n");
    let (_, read) = X509Certificate::from_der(&certificate).unwrap();
    assert!(read.validity().is_valid() && !read.is_ca());
    assert!(read.subject_alternative_name().unwrap().is_some());
    let usage = read.key_usage().unwrap().unwrap().value;
    assert!(usage.digital_signature() && usage.key_encipherment() && !usage.key_cert_sign());
    let lives = read.validity().not_after.timestamp() - read.validity().not_before.timestamp();
    assert_eq!(lives, DAY.as_secs().cast_signed());
}

/// Whoever asks chooses a name and groups, which are judged, and nothing else that the server would believe.
#[test]
fn only_known_attributes_and_names_are_signed() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::open(folder.path()).unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let (uid, unit) = (DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]), DnType::OrganizationalUnitName);
    for (kind, text) in [
        (uid, "somebody else"),
        (DnType::CommonName, "ädä"),
        (unit, "unit"),
        (DnType::OrganizationName, "dev"),
        (DnType::CountryName, "DE"),
    ] {
        params.distinguished_name.push(kind, text);
    }
    let other = (vec![1, 3, 6, 1, 4, 1, 311, 20, 2, 3], rcgen::OtherNameValue::Utf8String("root@example".into()));
    params.subject_alt_names = vec![
        SanType::OtherName(other),
        SanType::DnsName("n.example".try_into().unwrap()),
        SanType::Rfc822Name("ada@example".try_into().unwrap()),
        SanType::URI("spiffe://example/ada".try_into().unwrap()),
        SanType::IpAddress([10, 0, 0, 1].into()),
    ];
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    let request = Request::signed(&json!({"spec": {"request": STANDARD.encode(pem)}})).unwrap();
    let pem = issue::sign(&request, &["client auth"], DAY, &authority, SystemTime::now()).unwrap();
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let (_, read) = X509Certificate::from_der(&certificate).unwrap();
    assert_eq!(read.subject().to_string(), "C=DE, O=dev, OU=unit, CN=ädä");
    let names = read.subject_alternative_name().unwrap().unwrap().value;
    let names: Vec<String> = names.general_names.iter().map(ToString::to_string).collect();
    assert_eq!(
        names,
        ["DNSName(n.example)", "RFC822Name(ada@example)", "URI(spiffe://example/ada)", "IPAddress(0a:00:00:01)"]
    );
}

#[test]
fn signers_are_particular() {
    let node = read("system:node:n", "system:nodes", &[]);
    let serving = read("system:node:n", "system:nodes", &["n"]);
    let usages = |purpose: &'static str| [purpose, "digital signature", "key encipherment"];
    let refused = |request: &Request, signer: &str, usages: &[&str]| request.judged_by(signer, usages).unwrap_err();
    assert_eq!(node.judged_by(KUBELET_CLIENT, &usages("client auth")), Ok(()));
    assert_eq!(node.judged_by(KUBELET_CLIENT, &usages("client auth")[..2]), Ok(()));
    assert_eq!(serving.judged_by(request::KUBELET_SERVING, &usages("server auth")), Ok(()));
    assert!(refused(&serving, KUBELET_CLIENT, &usages("client auth")).contains("DNS subjectAltNames are not allowed"));
    assert!(refused(&node, request::KUBELET_SERVING, &usages("server auth")).contains("is required"));
    assert!(refused(&node, KUBELET_CLIENT, &usages("server auth")).contains("usages did not match"));
    let other = read("system:node:n", "system:masters", &[]);
    assert!(refused(&other, KUBELET_CLIENT, &usages("client auth")).contains("organization is not system:nodes"));
    let other = read("ada", "system:nodes", &[]);
    assert!(refused(&other, KUBELET_CLIENT, &usages("client auth")).contains("does not begin with system:node:"));
    assert!(refused(&other, request::API_CLIENT, &["server auth"]).contains("invalid usage"));
    assert!(refused(&other, request::API_CLIENT, &["digital signature"]).contains("missing required usage"));
    assert!(!request::SIGNERS.contains(&"kubernetes.io/legacy-unknown"));
    let mut changed = asked("ada", "x", &[]);
    let pem = pem(&changed);
    let der = rustls::pki_types::CertificateSigningRequestDer::from_pem_slice(pem.as_bytes()).unwrap();
    let mut der = der.to_vec();
    let at = der.windows(3).position(|bytes| bytes == b"ada").unwrap();
    der[at..at + 3].copy_from_slice(b"bob");
    let pem =
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n", STANDARD.encode(der));
    changed["spec"]["request"] = STANDARD.encode(pem).into();
    assert!(Request::signed(&changed).unwrap_err().contains("not signed by the key"));
}

fn pem(object: &Value) -> String {
    String::from_utf8(STANDARD.decode(object.text_at(&["spec", "request"])).unwrap()).unwrap()
}

/// Readers of PEM differ in what ends a line: nothing must be signed that somebody else reads as something else.
#[test]
fn a_request_says_one_thing() {
    let (harmless, evil) = (pem(&asked("ada", "dev", &[])), pem(&asked("eve", "system:masters", &[])));
    for text in [format!("{harmless}{evil}"), format!("x\r{evil}{harmless}"), format!("x {evil}\n{harmless}")] {
        let object = json!({"spec": {"request": STANDARD.encode(text)}});
        assert_eq!(Request::read(&object).unwrap_err(), "there must be one PEM block only");
        assert!(Request::signed(&object).is_err());
    }
    assert_eq!(Request::read(&asked("eve", "system:masters", &[])).unwrap().organizations, ["system:masters"]);
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let wide = rcgen::string::BmpString::try_from("system:masters").unwrap();
    params.distinguished_name.push(DnType::OrganizationName, rcgen::DnValue::BmpString(wide));
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    let object = json!({"spec": {"request": STANDARD.encode(pem)}});
    assert!(Request::read(&object).unwrap_err().contains("cannot be read"));
}

/// Nobody who reads certificates with Go's library could read the one that would be signed.
#[test]
fn addresses_have_the_length_of_one() {
    for (bytes, good) in [(0, false), (3, false), (4, true), (5, false), (16, true), (32, false)] {
        let address = element(0x87, &vec![10; bytes]);
        let names = CustomExtension::from_oid_content(&[2, 5, 29, 17], sequence(&[&address]));
        let mut params = CertificateParams::default();
        params.custom_extensions = vec![names];
        let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let read = Request::signed(&json!({"spec": {"request": STANDARD.encode(pem)}}));
        match read {
            Ok(_) => assert!(good, "{bytes}"),
            Err(why) => assert!(!good && why.contains(&format!("IP address of length {bytes}")), "{why}"),
        }
    }
}

#[test]
fn requests_end() {
    let at = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let mut request = json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"}});
    assert_eq!(ends(&request), Some(at(24 * 3600)));
    let condition = |kind: &str| json!({"conditions": [{"type": kind, "lastUpdateTime": "1970-01-01T01:00:00Z"}]});
    for (kind, end) in [("Denied", 2), ("Failed", 2), ("Approved", 25)] {
        request["status"] = condition(kind);
        assert_eq!(ends(&request), Some(at(end * 3600)), "{kind}");
    }
    request["status"]["certificate"] = "Zm9v".into();
    assert_eq!(ends(&request), Some(at(2 * 3600)));
}
