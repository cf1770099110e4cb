use proptest::prelude::*;
use regex::Regex;

use super::*;

#[test]
fn messages_are_those_of_kubernetes() {
    let cases: &[(Vec<String>, &[&str])] = &[
        (dns_label("a.b"), &["must not contain dots"]),
        (
            dns_label("A"),
            &[
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            ],
        ),
        (dns_label(&"a".repeat(64)), &["must be no more than 63 characters"]),
        (
            dns_subdomain("A"),
            &[
                r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ],
        ),
        (
            qualified_name("/"),
            &[
                "prefix part must be non-empty",
                "name part must be non-empty",
                "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            ],
        ),
        (
            qualified_name("a/b/c"),
            &[
                "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
            ],
        ),
        (label_value(&"a".repeat(64)), &["must be no more than 63 bytes"]),
        (port_name("-"), &["must contain at least one letter (a-z)", "must not begin or end with a hyphen"]),
        (port_number(0), &["must be between 1 and 65535, inclusive"]),
        (config_map_key(".."), &["must not be '..'"]),
        (config_map_key("..a"), &["must not start with '..'"]),
        (name_is_path_segment("..", false), &["may not be '..'"]),
        (name_is_path_segment("a/%", false), &["may not contain '/'", "may not contain '%'"]),
        (name_is_dns_label("web-", true), &[]),
        (decimal_integer("-0"), &["must be a valid decimal integer in canonical form"]),
    ];
    for (given, wanted) in cases {
        assert_eq!(given, wanted);
    }
}

#[test]
fn fields_with_domains() {
    let root = Path::root();
    let mut errors = Errors::new();
    fully_qualified_name(&root, "a.b.c", &mut errors);
    domain_prefixed_key(&root, "a.io/b", &mut errors);
    domain_prefixed_path(&root, "a.io/b/c", &mut errors);
    fully_qualified_domain_name(&root, "a.io.", &mut errors);
    assert!(errors.is_empty());
    fully_qualified_name(&root, "a.b", &mut errors);
    domain_prefixed_key(&root, "b", &mut errors);
    domain_prefixed_path(&root, "a.io/", &mut errors);
    fully_qualified_domain_name(&root, "a", &mut errors);
    fully_qualified_domain_name(&root, "", &mut errors);
    assert_eq!(errors.len(), 5);
}

#[test]
fn generated_names() {
    let name = generate_name("web-");
    assert_eq!(name.len(), 9);
    assert!(name.starts_with("web-") && name[4..].bytes().all(|b| ALPHABET.contains(&b)));
    assert_eq!(generate_name(&"x".repeat(100)).len(), 63);
    assert!(generate_name(&"é".repeat(100)).len() <= 63);
    let many: std::collections::HashSet<String> = (0..1000).map(|_| generate_name("")).collect();
    assert!(many.len() > 990, "random suffixes repeat");
    assert_eq!(random_suffix(30).len(), 30);
}

/// The hand-written checks against the expressions that the messages quote.
fn agrees(rule: fn(&str) -> Vec<String>, expression: &str, text: &str, max: usize) -> Result<(), TestCaseError> {
    let regex = Regex::new(&format!(r"\A(?:{expression})\z")).unwrap();
    prop_assert_eq!(rule(text).is_empty(), regex.is_match(text) && text.len() <= max, "{:?}", text);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]
    #[test]
    fn checks_agree_with_the_expressions_they_quote(text in "[-aZ0_.%*é\n]{0,6}|[a-z0-9.-]{0,70}|[a-z.]{250,256}") {
        agrees(dns_subdomain, SUBDOMAIN, &text, 253)?;
        agrees(dns1035_label, LABEL_1035, &text, 63)?;
        agrees(dns_label, LABEL, &text, 63)?;
        agrees(dns_subdomain_caseless, &format!("(?i-u:{SUBDOMAIN})"), &text, 253)?;
        agrees(dns_subdomain_with_underscore, r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*", &text, 253)?;
        agrees(wildcard_dns_subdomain, &format!(r"\*\.{SUBDOMAIN}"), &text, 253)?;
        agrees(qualified_name, QUALIFIED, &text, 63)?;
        agrees(label_value, &format!("({QUALIFIED})?"), &text, 63)?;
        agrees(c_identifier, "[A-Za-z_][A-Za-z0-9_]*", &text, usize::MAX)?;
        agrees(percent, "[0-9]+%", &text, usize::MAX)?;
        agrees(http_header_name, "[-A-Za-z0-9]+", &text, usize::MAX)?;
        agrees(decimal_integer, "0|-?[1-9][0-9]*", &text, usize::MAX)?;
        if !text.starts_with('.') {
            agrees(config_map_key, "[-._a-zA-Z0-9]+", &text, 253)?;
            agrees(env_var_name, "[-._a-zA-Z][-._a-zA-Z0-9]*", &text, usize::MAX)?;
        }
        let _ = name_is_dns_label(&text, true);
    }
}
