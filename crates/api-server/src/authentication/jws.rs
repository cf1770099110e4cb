//! Signed tokens in the compact form of JSON Web Signatures (RFC 7515), over ring.
//!
//! A token that was only [parsed](parse) says what it claims, and nothing of it is true yet: [`Unverified::verify`] hands
//! out its claims once a key has vouched for them. The algorithm must fit the key, whatever the token's header says; there
//! is no way to leave the signature out.

use std::sync::Arc;

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use ring::{
    digest::{SHA256, digest},
    rand::SystemRandom,
    signature::{self, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, RsaPublicKeyComponents, UnparsedPublicKey},
};
use rustls::{
    SignatureScheme,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer},
    sign,
};
use serde_json::{Map, Value, json};
use x509_parser::{prelude::FromDer, public_key, x509::SubjectPublicKeyInfo};

pub type Claims = Map<String, Value>;

const P256: &str = "1.2.840.10045.3.1.7";
const P384: &str = "1.3.132.0.34";

/// How a token is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
}

const ALGORITHMS: &[(&str, Algorithm)] = &[
    ("RS256", Algorithm::Rs256),
    ("RS384", Algorithm::Rs384),
    ("RS512", Algorithm::Rs512),
    ("PS256", Algorithm::Ps256),
    ("PS384", Algorithm::Ps384),
    ("PS512", Algorithm::Ps512),
    ("ES256", Algorithm::Es256),
    ("ES384", Algorithm::Es384),
];

impl Algorithm {
    pub fn parse(name: &str) -> Option<Self> {
        ALGORITHMS.iter().find(|(known, _)| *known == name).map(|(_, algorithm)| *algorithm)
    }

    pub fn name(self) -> &'static str {
        ALGORITHMS.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("this kind of key is not supported: RSA from 2048 bits, P-256 and P-384 are")]
    UnsupportedKey,
    #[error("the key cannot be read: {0}")]
    BadKey(String),
    #[error("the token could not be signed")]
    Sign,
}

/// A key that vouches for tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    pub id: String,
    material: Material,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
}

impl PublicKey {
    /// From its DER form. Its id is the hash of that, as Kubernetes names the keys of service accounts.
    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        let bad = |error: String| Error::BadKey(error);
        let (_, info) = SubjectPublicKeyInfo::from_der(der).map_err(|e| bad(e.to_string()))?;
        let curve = info.algorithm.parameters.as_ref().and_then(|p| p.as_oid().ok()).map(|oid| oid.to_id_string());
        let material = match info.parsed().map_err(|e| bad(e.to_string()))? {
            public_key::PublicKey::RSA(key) => {
                Material::Rsa { n: trimmed(key.modulus).to_vec(), e: trimmed(key.exponent).to_vec() }
            }
            public_key::PublicKey::EC(point) => match curve.as_deref() {
                Some(P256) => Material::P256(point.data().to_vec()),
                Some(P384) => Material::P384(point.data().to_vec()),
                _ => return Err(Error::UnsupportedKey),
            },
            _ => return Err(Error::UnsupportedKey),
        };
        Ok(Self { id: URL_SAFE_NO_PAD.encode(digest(&SHA256, der)), material })
    }

    /// From a JSON Web Key (RFC 7517); `None` if it is not one for signatures that are understood.
    pub fn from_jwk(jwk: &Value) -> Option<Self> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        let number = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
        if !matches!(text("use"), None | Some("sig")) {
            return None;
        }
        let point = |size: usize| -> Option<Vec<u8>> {
            let (x, y) = (padded(&number("x")?, size)?, padded(&number("y")?, size)?);
            Some([&[4][..], &x, &y].concat())
        };
        let material = match (text("kty")?, text("crv")) {
            ("RSA", _) => Material::Rsa { n: trimmed(&number("n")?).to_vec(), e: trimmed(&number("e")?).to_vec() },
            ("EC", Some("P-256")) => Material::P256(point(32)?),
            ("EC", Some("P-384")) => Material::P384(point(48)?),
            _ => return None,
        };
        Some(Self { id: text("kid").unwrap_or_default().to_owned(), material })
    }

    pub fn to_jwk(&self) -> Value {
        let encoded = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let (name, id) = (self.algorithm().name(), &self.id);
        match &self.material {
            Material::Rsa { n, e } => {
                json!({"use": "sig", "kty": "RSA", "kid": id, "alg": name, "n": encoded(n), "e": encoded(e)})
            }
            Material::P256(point) | Material::P384(point) => {
                let curve = if matches!(self.material, Material::P256(_)) { "P-256" } else { "P-384" };
                let (x, y) = point.get(1..).unwrap_or_default().split_at(point.len() / 2);
                json!({"use": "sig", "kty": "EC", "kid": id, "crv": curve, "alg": name, "x": encoded(x), "y": encoded(y)})
            }
        }
    }

    /// The algorithm that a key of ours signs with.
    pub fn algorithm(&self) -> Algorithm {
        match self.material {
            Material::Rsa { .. } => Algorithm::Rs256,
            Material::P256(_) => Algorithm::Es256,
            Material::P384(_) => Algorithm::Es384,
        }
    }

    fn verifies(&self, algorithm: Algorithm, message: &[u8], signed: &[u8]) -> bool {
        let rsa = match algorithm {
            Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
            Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
            Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
            Algorithm::Es256 | Algorithm::Es384 => {
                let verified = match (&self.material, algorithm) {
                    (Material::P256(point), Algorithm::Es256) => {
                        UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point).verify(message, signed)
                    }
                    (Material::P384(point), Algorithm::Es384) => {
                        UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point).verify(message, signed)
                    }
                    _ => return false,
                };
                return verified.is_ok();
            }
        };
        match &self.material {
            Material::Rsa { n, e } => RsaPublicKeyComponents { n, e }.verify(rsa, message, signed).is_ok(),
            Material::P256(_) | Material::P384(_) => false,
        }
    }
}

/// A key that signs tokens.
#[derive(Clone, Debug)]
pub struct SigningKey {
    pub public: PublicKey,
    key: Arc<dyn sign::SigningKey>,
}

impl SigningKey {
    pub fn from_der(der: &PrivateKeyDer<'_>) -> Result<Self, Error> {
        let key = rustls::crypto::ring::sign::any_supported_type(der).map_err(|e| Error::BadKey(e.to_string()))?;
        let public: Option<SubjectPublicKeyInfoDer<'_>> = key.public_key();
        let public = PublicKey::from_der(public.as_deref().ok_or(Error::UnsupportedKey)?)?;
        Ok(Self { public, key })
    }

    /// A new key on P-256, as PEM.
    pub fn generate() -> Result<String, Error> {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new())
            .map_err(|_| Error::Sign)?;
        Self::from_der(&PrivatePkcs8KeyDer::from(pkcs8.as_ref()).into())?;
        let text = STANDARD.encode(pkcs8.as_ref());
        let lines: Vec<&str> = (0..text.len()).step_by(64).map(|at| &text[at..text.len().min(at + 64)]).collect();
        Ok(format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n")))
    }

    /// The token that makes these claims.
    pub fn sign(&self, claims: &Value) -> Result<String, Error> {
        let algorithm = self.public.algorithm();
        let (scheme, size) = match algorithm {
            Algorithm::Es256 => (SignatureScheme::ECDSA_NISTP256_SHA256, Some(32)),
            Algorithm::Es384 => (SignatureScheme::ECDSA_NISTP384_SHA384, Some(48)),
            _ => (SignatureScheme::RSA_PKCS1_SHA256, None),
        };
        let header = json!({"alg": algorithm.name(), "kid": self.public.id});
        let encoded = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", encoded(&header), encoded(claims));
        let signer = self.key.choose_scheme(&[scheme]).ok_or(Error::UnsupportedKey)?;
        let mut signed = signer.sign(message.as_bytes()).map_err(|_| Error::Sign)?;
        if let Some(size) = size {
            signed = fixed(&signed, size).ok_or(Error::Sign)?;
        }
        Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signed)))
    }
}

/// A token that nobody has vouched for yet.
#[derive(Debug)]
pub struct Unverified<'a> {
    pub algorithm: Option<Algorithm>,
    /// The id of the key that signed, if the token says so.
    pub key_id: String,
    claims: Claims,
    message: &'a str,
    signature: Vec<u8>,
}

/// Reads a token; `None` if it is not of this form.
pub fn parse(token: &str) -> Option<Unverified<'_>> {
    let (message, signature) = token.rsplit_once('.')?;
    let (header, claims) = message.split_once('.')?;
    let json = |part: &str| serde_json::from_slice::<Claims>(&URL_SAFE_NO_PAD.decode(part).ok()?).ok();
    let (header, claims) = (json(header)?, json(claims)?);
    let text = |name: &str| header.get(name).and_then(Value::as_str).unwrap_or_default();
    // What must be understood and is not makes the token no token.
    if header.contains_key("crit") {
        return None;
    }
    Some(Unverified {
        algorithm: Algorithm::parse(text("alg")),
        key_id: text("kid").to_owned(),
        claims,
        message,
        signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
    })
}

impl Unverified<'_> {
    /// Who says to have issued it: good enough to choose whom to ask, and for nothing else.
    pub fn issuer(&self) -> &str {
        self.claims.get("iss").and_then(Value::as_str).unwrap_or_default()
    }

    /// The claims, if one of the keys signed them. A token that names its key is only tried with keys of that name.
    pub fn verify<'k>(self, keys: impl IntoIterator<Item = &'k PublicKey>) -> Option<Claims> {
        let algorithm = self.algorithm?;
        let named = |key: &&PublicKey| self.key_id.is_empty() || key.id.is_empty() || key.id == self.key_id;
        let mut keys = keys.into_iter().filter(named);
        keys.any(|key| key.verifies(algorithm, self.message.as_bytes(), &self.signature)).then_some(self.claims)
    }
}

/// An ECDSA signature as JSON Web Signatures have it: both numbers side by side, instead of in DER.
fn fixed(der: &[u8], size: usize) -> Option<Vec<u8>> {
    let (body, _) = element(der, 0x30)?;
    let (r, rest) = element(body, 0x02)?;
    let (s, _) = element(rest, 0x02)?;
    Some([padded(trimmed(r), size)?, padded(trimmed(s), size)?].concat())
}

/// The content of the DER element at the start, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (length, from) = match der {
        [found, 0x81, length, ..] if *found == tag => (usize::from(*length), 3),
        [found, length, ..] if *found == tag && *length < 0x80 => (usize::from(*length), 2),
        _ => return None,
    };
    der.get(from..)?.split_at_checked(length)
}

fn trimmed(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

fn padded(number: &[u8], size: usize) -> Option<Vec<u8>> {
    let missing = size.checked_sub(number.len())?;
    Some([&vec![0; missing][..], number].concat())
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::pem::PemObject;

    use super::*;

    fn key() -> SigningKey {
        let pem = SigningKey::generate().unwrap();
        SigningKey::from_der(&PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn signed_and_verified() {
        let key = key();
        // The numbers of a signature are short now and then.
        for i in 0..300 {
            let token = key.sign(&json!({"iss": "x", "n": i})).unwrap();
            let claims = parse(&token).unwrap().verify([&key.public]).unwrap();
            assert_eq!(claims["n"], i);
        }
    }

    #[test]
    fn nothing_is_true_without_its_key() {
        let (ours, other) = (key(), key());
        let token = ours.sign(&json!({"iss": "x", "admin": false})).unwrap();
        assert!(parse(&token).unwrap().verify([&other.public]).is_none());
        let [header, _, signature] = token.split('.').collect::<Vec<_>>().try_into().unwrap();
        let forged = URL_SAFE_NO_PAD.encode(json!({"iss": "x", "admin": true}).to_string());
        assert!(parse(&format!("{header}.{forged}.{signature}")).unwrap().verify([&ours.public]).is_none());
        let none = URL_SAFE_NO_PAD.encode(json!({"alg": "none"}).to_string());
        assert!(parse(&format!("{none}.{forged}.")).unwrap().verify([&ours.public]).is_none());
        let confused = URL_SAFE_NO_PAD.encode(json!({"alg": "RS256"}).to_string());
        assert!(parse(&format!("{confused}.{forged}.{signature}")).unwrap().verify([&ours.public]).is_none());
        let critical = URL_SAFE_NO_PAD.encode(json!({"alg": "ES256", "crit": ["x"]}).to_string());
        assert!(parse(&format!("{critical}.{forged}.{signature}")).is_none());
    }

    #[test]
    fn keys_survive_their_json() {
        let key = key();
        assert_eq!(PublicKey::from_jwk(&key.public.to_jwk()), Some(key.public));
        assert_eq!(
            PublicKey::from_jwk(&json!({"kty": "EC", "crv": "P-256", "use": "enc", "x": "AA", "y": "AA"})),
            None
        );
    }

    /// The example of RFC 7515, appendix A.2: RS256 as others make it.
    #[test]
    fn rsa_of_the_standard() {
        let jwk = json!({"kty": "RSA", "e": "AQAB", "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-\
Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5re\
xMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8\
q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"});
        let token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290\
Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUA\
r7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwus\
C-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
        let claims = parse(token).unwrap().verify([&PublicKey::from_jwk(&jwk).unwrap()]).unwrap();
        assert_eq!(claims["iss"], "joe");
    }
}
