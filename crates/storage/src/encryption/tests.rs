use bytes::Bytes;
use proptest::prelude::*;

use super::{keys::MARK, *};

const CIPHERS: [Cipher; 3] = [Cipher::AesGcm, Cipher::AesCbc, Cipher::Secretbox];

fn key(cipher: Cipher, name: &str, byte: u8) -> Key {
    Key::new(cipher, name, &[byte; 32]).expect("a valid key")
}

fn gcm(name: &str, byte: u8) -> Form {
    Form::Sealed(key(Cipher::AesGcm, name, byte))
}

fn rules(prefix: &str, forms: Vec<Form>) -> Rules {
    Rules::new(vec![Rule { prefixes: vec![prefix.to_owned()], forms }])
}

fn reason(answer: Result<Bytes, Error>) -> String {
    match answer {
        Err(Error::Unreadable { key, reason }) => {
            assert!(key.starts_with("/secrets/"));
            reason
        }
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_is_sealed_opens(value: Vec<u8>, path in "/(secrets|others)/[a-z]{1,8}", cipher in prop::sample::select(&CIPHERS)) {
        let rules = rules("/secrets/", vec![Form::Sealed(key(cipher, "k1", 1))]);
        let out = rules.written(&path, value.clone().into()).expect("sealed");
        prop_assert!(rules.is_due(&path, &out));
        if path.starts_with("/secrets/") {
            let header = format!("k8s:enc:{cipher}:v1:k1:");
            prop_assert!(out.starts_with(header.as_bytes()));
            prop_assert!(value.len() < 8 || !out[header.len()..].windows(value.len()).any(|window| window == value));
        }
        prop_assert_eq!(rules.opened(&path, out).expect("opened"), value);
    }

    #[test]
    fn what_was_changed_is_refused(
        value: Vec<u8>,
        at: prop::sample::Index,
        flip in 1u8..,
        cipher in prop::sample::select(&[Cipher::AesGcm, Cipher::Secretbox][..]),
    ) {
        let rules = rules("/secrets/", vec![Form::Sealed(key(cipher, "k1", 1)), Form::Sealed(key(cipher, "k2", 2))]);
        let mut changed = rules.written("/secrets/a", value.into()).expect("sealed").to_vec();
        let at = at.index(changed.len());
        changed[at] ^= flip;
        reason(rules.opened("/secrets/a", changed.clone().into()));
        changed.truncate(at);
        reason(rules.opened("/secrets/a", changed.into()));
    }

    #[test]
    fn what_was_moved_is_refused(value: Vec<u8>, from in "/secrets/[ab]{1,3}", to in "/secrets/[ab]{1,3}") {
        let rules = rules("/secrets/", vec![gcm("k1", 1)]);
        let sealed = rules.written(&from, value.clone().into()).expect("sealed");
        let opened = rules.opened(&to, sealed);
        if from == to {
            prop_assert_eq!(opened.expect("opened"), value);
        } else {
            reason(opened);
        }
    }

    #[test]
    fn bytes_from_anywhere_do_no_harm(bytes: Vec<u8>, cipher in prop::sample::select(&CIPHERS)) {
        let key = key(cipher, "k1", 1);
        let header = key.header().to_owned();
        let rules = rules("/secrets/", vec![Form::Sealed(key)]);
        let _ = rules.opened("/secrets/a", [header.as_bytes(), &bytes].concat().into());
        let _ = rules.opened("/secrets/a", [MARK, &bytes].concat().into());
    }
}

/// What others computed: NaCl's published vector, and AES-CBC as NIST's SP 800-38A has it, with its padding.
#[test]
fn the_forms_are_those_of_others() {
    let hex = |text: &str| -> Vec<u8> {
        (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hex")).collect()
    };
    let secret = hex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389");
    let secretbox = Key::new(Cipher::Secretbox, "k", &secret).expect("a key");
    let body = hex(concat!(
        "69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37",
        "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186ac0dfc17c98dce87",
        "b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae90224368517acfeabd6bb3732bc0e9",
        "da99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74e355a5",
    ));
    let opened = secretbox.open("", &body).expect("it opens");
    assert_eq!(opened.len(), 131);
    assert!(opened.starts_with(&hex("be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffc")));

    let secret = hex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4");
    let cbc = Key::new(Cipher::AesCbc, "k", &secret).expect("a key");
    let vector = hex("000102030405060708090a0b0c0d0e0f");
    let text = hex("6bc1bee22e409f96e93d7e117393172a");
    let sealed = keys::cbc_seal(&secret, &vector, &text).expect("sealed");
    assert_eq!(sealed[..16], hex("f58c4c04d6e5f1ba779eabfb5f7bfbd6"));
    assert_eq!(cbc.open("", &[vector, sealed].concat()).expect("it opens"), text);
}

#[test]
fn the_same_value_is_never_sealed_twice_alike() {
    for cipher in CIPHERS {
        let rules = rules("/", vec![Form::Sealed(key(cipher, "k1", 1))]);
        let seal = || rules.written("/a", "same".into()).expect("sealed");
        assert_ne!(seal(), seal());
    }
}

#[test]
fn the_first_form_writes_and_all_read() {
    let before = rules("/secrets/", vec![gcm("k1", 1)]);
    let now = rules("/secrets/", vec![gcm("k2", 2), gcm("k1", 1), Form::Plain]);
    let old = before.written("/secrets/a", "old".into()).expect("sealed");
    assert!(!now.is_due("/secrets/a", &old) && !now.is_due("/secrets/a", b"plain"));
    assert_eq!(now.opened("/secrets/a", old.clone()), Ok("old".into()));
    assert_eq!(now.opened("/secrets/a", "plain".into()), Ok("plain".into()));
    let new = now.written("/secrets/a", "new".into()).expect("sealed");
    assert!(new.starts_with(b"k8s:enc:aesgcm:v1:k2:"));
    // Sealed values open also where nothing is sealed any more.
    let elsewhere = rules("/others/", vec![gcm("k1", 1)]);
    assert_eq!(elsewhere.opened("/secrets/a", old.clone()), Ok("old".into()));
    assert!(!elsewhere.is_due("/secrets/a", &old));
    // Turned off: plain is written, sealed is read.
    let off = rules("/secrets/", vec![Form::Plain, gcm("k1", 1)]);
    assert_eq!(off.written("/secrets/a", "x".into()), Ok("x".into()));
    assert_eq!(off.opened("/secrets/a", old), Ok("old".into()));

    let missing = reason(before.opened("/secrets/a", new.clone()));
    assert!(
        missing.contains("\"k2\"") && missing.contains("aesgcm:k1") && missing.contains("add that key"),
        "{missing}"
    );
    let other_bytes = reason(rules("/secrets/", vec![gcm("k2", 9)]).opened("/secrets/a", new));
    assert!(other_bytes.contains("does not open under the aesgcm key \"k2\""), "{other_bytes}");
}

#[test]
fn the_first_rule_decides() {
    let rule = |prefix: &str, forms| Rule { prefixes: vec![prefix.to_owned()], forms };
    let rules = Rules::new(vec![
        rule("/core/secrets/", vec![gcm("k1", 1)]),
        rule("/core/events/", vec![Form::Plain]),
        rule("/", vec![gcm("k2", 2)]),
    ]);
    let written = |path: &str| rules.written(path, "x".into()).expect("written");
    assert!(written("/core/secrets/a").starts_with(b"k8s:enc:aesgcm:v1:k1:"));
    assert_eq!(written("/core/events/a"), "x");
    assert!(written("/apps/deployments/a").starts_with(b"k8s:enc:aesgcm:v1:k2:"));
}

#[test]
fn refusals_say_what_to_do() {
    let rules = rules("/secrets/", vec![gcm("k1", 1)]);
    assert!(reason(rules.opened("/secrets/a", "plain".into())).contains("rewritten"));
    assert_eq!(rules.opened("/others/a", "plain".into()), Ok("plain".into()));
    assert!(reason(rules.opened("/secrets/a", "k8s:enc:kms:v2:x:".into())).contains("\"kms\" v2"));
    assert!(reason(rules.opened("/secrets/a", "k8s:enc:aesgcm:v1:k1".into())).contains("not configured"));
    assert!(reason(rules.opened("/secrets/a", "k8s:enc:aesgcm:v1:k1:short".into())).contains("backup"));
    let disguised = rules.written("/others/a", "k8s:enc:aesgcm:v1:k1:x".into());
    assert!(matches!(disguised, Err(Error::Invalid(_))), "{disguised:?}");
}

#[test]
fn unusable_keys_are_refused() {
    for name in ["", "a:b"] {
        assert_eq!(Key::new(Cipher::AesGcm, name, &[0; 32]).err(), Some(KeyError::Name(name.into())));
    }
    for (cipher, lengths) in
        [(Cipher::AesGcm, &[16, 32][..]), (Cipher::AesCbc, &[16, 24, 32]), (Cipher::Secretbox, &[32])]
    {
        for length in 0..40 {
            assert_eq!(Key::new(cipher, "k", &vec![0; length]).is_ok(), lengths.contains(&length), "{cipher} {length}");
        }
    }
    assert!(!format!("{:?}", key(Cipher::AesGcm, "a", 77)).contains("77"), "keys are not shown");
}
