//! Writing and signing a certificate for a request.
//!
//! The key is taken over as it was written; of the subject and the alternative names what is known. Everything else is
//! ours: nothing that the requester put into other attributes or extensions gets in.

use std::time::{Duration, SystemTime};

use base64::{Engine, engine::general_purpose::STANDARD};
use object_model::time::Time;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::{SignatureScheme, sign::SigningKey};
use x509_parser::{
    extensions::ParsedExtension,
    prelude::{FromDer, X509Certificate},
};

use super::{
    der::{self, bits, element, octets, oid, sequence},
    request::Request,
};
use crate::serving::authority::Authority;

/// Clocks differ.
const BACKDATE: Duration = Duration::from_secs(5 * 60);
/// A certificate that lives shorter gets all of its time.
const SHORT: Duration = Duration::from_secs(8 * 3600);

/// A certificate in PEM for what is requested, for `lifetime` from now but not longer than the authority's own.
pub fn sign(
    request: &Request,
    usages: &[&str],
    lifetime: Duration,
    authority: &Authority,
    now: SystemTime,
) -> Result<String, String> {
    let certificate = authority.certificate().map_err(|e| e.to_string())?;
    let (_, issuer) = X509Certificate::from_der(&certificate).map_err(|e| e.to_string())?;
    let end = u64::try_from(issuer.validity().not_after.timestamp()).unwrap_or_default();
    let end = SystemTime::UNIX_EPOCH + Duration::from_secs(end);
    if end <= now {
        return Err("refusing to sign: the authority's own certificate has expired".into());
    }
    let from = now - BACKDATE;
    let until = if lifetime < SHORT { now + lifetime } else { from + lifetime }.min(end);
    let (scheme, algorithm) = algorithm(authority.signing_key())?;
    let mut serial = [0; 16];
    SystemRandom::new().fill(&mut serial).map_err(|_| "there is no randomness for a serial number".to_owned())?;
    let body = sequence(&[
        // Version 3.
        &element(0xa0, &der::integer(&[2])),
        &der::integer(&serial),
        &algorithm,
        issuer.subject().as_raw(),
        &sequence(&[&time(from), &time(until)]),
        &request.subject,
        &request.public_key,
        &element(0xa3, &extensions(request, usages, &issuer)),
    ]);
    let signer = authority.signing_key().choose_scheme(&[scheme]).ok_or("the authority's key does not sign")?;
    let signature = signer.sign(&body).map_err(|e| e.to_string())?;
    Ok(pem(&sequence(&[&body, &algorithm, &bits(0, &signature)])))
}

fn algorithm(key: &dyn SigningKey) -> Result<(SignatureScheme, Vec<u8>), String> {
    let ecdsa = |last: u64| sequence(&[&oid(&[1, 2, 840, 10045, 4, 3, last])]);
    let known = [
        (SignatureScheme::ECDSA_NISTP256_SHA256, ecdsa(2)),
        (SignatureScheme::ECDSA_NISTP384_SHA384, ecdsa(3)),
        (SignatureScheme::RSA_PKCS1_SHA256, sequence(&[&oid(&[1, 2, 840, 113549, 1, 1, 11]), &[5, 0]])),
    ];
    let fits = |(scheme, _): &(SignatureScheme, Vec<u8>)| key.choose_scheme(&[*scheme]).is_some();
    known.into_iter().find(fits).ok_or_else(|| "the authority's key is of a kind that cannot sign".to_owned())
}

fn extensions(request: &Request, usages: &[&str], issuer: &X509Certificate<'_>) -> Vec<u8> {
    let extension = |last: u64, critical: bool, value: &[u8]| {
        let critical = if critical { der::TRUE } else { &[] };
        sequence(&[&oid(&[2, 5, 29, last]), critical, &octets(value)])
    };
    let mut all = Vec::new();
    let has = |usage: &str| usages.contains(&usage);
    let (sign, encipher) = (has("digital signature"), has("key encipherment"));
    if sign || encipher {
        // Of nine bits, the first and the third.
        let flags = if sign { 0x80 } else { 0 } | if encipher { 0x20 } else { 0 };
        all.push(extension(15, true, &bits(if encipher { 5 } else { 7 }, &[flags])));
    }
    let purposes = [("server auth", 1), ("client auth", 2)];
    let purposes: Vec<Vec<u8>> = purposes
        .into_iter()
        .filter(|(usage, _)| has(usage))
        .map(|(_, last)| oid(&[1, 3, 6, 1, 5, 5, 7, 3, last]))
        .collect();
    if !purposes.is_empty() {
        all.push(extension(37, false, &element(0x30, &purposes.concat())));
    }
    // No authority.
    all.push(extension(19, true, &sequence(&[])));
    let own_id = issuer.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
        _ => None,
    });
    if let Some(id) = own_id {
        all.push(extension(35, false, &sequence(&[&element(0x80, id)])));
    }
    if !request.alternative_names.is_empty() {
        // Without a subject the names are all there is.
        all.push(extension(17, request.subject.len() <= 2, &element(0x30, &request.alternative_names)));
    }
    element(0x30, &all.concat())
}

/// Two digits for the year until 2049, and four from then on.
fn time(time: SystemTime) -> Vec<u8> {
    let text: String = Time::from(time).to_seconds().to_string().chars().filter(char::is_ascii_alphanumeric).collect();
    let text = text.replace('T', "");
    if text.starts_with("20") && &text[2..3] < "5" {
        element(0x17, &text.as_bytes()[2..])
    } else {
        element(0x18, text.as_bytes())
    }
}

pub(crate) fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|at| &text[at..text.len().min(at + 64)]).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}
