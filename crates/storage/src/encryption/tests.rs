use proptest::prelude::*;

use super::*;

fn key(name: &str, byte: u8) -> Key {
    Key::new(name, &[byte; 32]).expect("a valid key")
}

fn rules(keys: Vec<Key>, prefixes: &[&str]) -> Rules {
    let prefixes = prefixes.iter().map(|&prefix| prefix.to_owned()).collect();
    Rules { keys: Keyring::new(keys).expect("keys"), prefixes, refuse_plain_text: false }
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
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_sealed_opens(value: Vec<u8>, path in "/(secrets|others)/[a-z]{1,8}", marked: bool) {
        let rules = rules(vec![key("k1", 1)], &["/secrets/"]);
        let value = if marked { [MARK, &value].concat() } else { value };
        let out = rules.outgoing(&path, value.clone().into()).expect("sealed");
        if path.starts_with("/secrets/") || marked {
            prop_assert!(out.starts_with(b"ferry:enc:aesgcm:v1:k1:"));
            prop_assert_eq!(out.len(), value.len() + rules.keys.overhead());
            prop_assert!(value.len() < 8 || !out[23..].windows(value.len()).any(|window| window == value));
        }
        prop_assert_eq!(rules.value(&path, out).expect("opened"), value);
    }

    #[test]
    fn what_was_changed_is_refused(value: Vec<u8>, at: prop::sample::Index, flip in 1u8..) {
        let rules = rules(vec![key("k1", 1), key("k2", 2)], &["/secrets/"]);
        let sealed = rules.outgoing("/secrets/a", value.into()).expect("sealed");
        let mut changed = sealed.to_vec();
        let at = at.index(changed.len());
        changed[at] ^= flip;
        // A changed mark makes it plain text, which is accepted only while plain text is.
        let strict = Rules { refuse_plain_text: true, ..rules };
        reason(strict.value("/secrets/a", changed.clone().into()));
        changed.truncate(at);
        reason(strict.value("/secrets/a", changed.into()));
    }

    #[test]
    fn what_was_moved_is_refused(value: Vec<u8>, from in "/secrets/[ab]{1,3}", to in "/secrets/[ab]{1,3}") {
        let rules = rules(vec![key("k1", 1)], &["/secrets/"]);
        let sealed = rules.outgoing(&from, value.clone().into()).expect("sealed");
        let opened = rules.value(&to, sealed);
        if from == to {
            prop_assert_eq!(opened.expect("opened"), value);
        } else {
            reason(opened);
        }
    }
}

#[test]
fn the_same_value_is_never_sealed_twice_alike() {
    let rules = rules(vec![key("k1", 1)], &["/"]);
    let seal = || rules.outgoing("/a", "same".into()).expect("sealed");
    assert_ne!(seal(), seal());
}

#[test]
fn older_keys_and_plain_text_are_read() {
    let before = rules(vec![key("k1", 1)], &["/secrets/"]);
    let now = rules(vec![key("k2", 2), key("k1", 1)], &["/secrets/"]);
    let old = before.outgoing("/secrets/a", "old".into()).expect("sealed");
    assert_eq!(now.value("/secrets/a", old.clone()), Ok("old".into()));
    let new = now.outgoing("/secrets/a", "new".into()).expect("sealed");
    assert!(new.starts_with(b"ferry:enc:aesgcm:v1:k2:"));
    assert_eq!(now.value("/secrets/a", "plain".into()), Ok("plain".into()));
    // Sealed values open also where nothing is sealed any more.
    assert_eq!(rules(vec![key("k1", 1)], &[]).value("/secrets/a", old), Ok("old".into()));

    let missing = reason(before.value("/secrets/a", new.clone()));
    assert!(missing.contains("\"k2\"") && missing.contains("there are: k1") && missing.contains("add that key"));
    let other_bytes = reason(rules(vec![key("k2", 9)], &["/secrets/"]).value("/secrets/a", new));
    assert!(other_bytes.contains("does not open under the key \"k2\""), "{other_bytes}");
}

#[test]
fn refusals_say_what_to_do() {
    let strict = Rules { refuse_plain_text: true, ..rules(vec![key("k1", 1)], &["/secrets/"]) };
    assert!(reason(strict.value("/secrets/a", "plain".into())).contains("rewrite"));
    assert_eq!(strict.value("/others/a", "plain".into()), Ok("plain".into()));
    assert!(reason(strict.value("/secrets/a", "ferry:enc:aesgcm:v2:k1:x".into())).contains("newer"));
    assert!(reason(strict.value("/secrets/a", "ferry:enc:aesgcm:v1:k1".into())).contains("names no key"));
    assert!(reason(strict.value("/secrets/a", "ferry:enc:aesgcm:v1:k1:short".into())).contains("backup"));
}

#[test]
fn unusable_keys_are_refused() {
    for name in ["", "a:b", "a b", "ä", &"x".repeat(64)] {
        assert_eq!(Key::new(name, &[0; 32]).err(), Some(KeyError::Name(name.into())));
    }
    assert_eq!(Key::new("k", &[0; 16]).err(), Some(KeyError::Length { name: "k".into(), bytes: 16 }));
    assert_eq!(Keyring::new(vec![]).err(), Some(KeyError::None));
    assert_eq!(Keyring::new(vec![key("a", 1), key("b", 2), key("a", 3)]).err(), Some(KeyError::Twice("a".into())));
    assert!(!format!("{:?}", key("a", 77)).contains("77"), "keys are not shown");
}
