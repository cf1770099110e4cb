use proptest::prelude::*;

use super::*;

#[track_caller]
fn matches(pattern: &str, yes: &[&str], no: &[&str]) {
    let p = Pattern::new(pattern);
    for text in yes {
        assert_eq!(p.is_match(text), Ok(true), "{pattern} should match {text:?}");
    }
    for text in no {
        assert_eq!(p.is_match(text), Ok(false), "{pattern} should not match {text:?}");
    }
}

#[track_caller]
fn refused(pattern: &str, message: &str) {
    assert_eq!(Pattern::check(pattern).map_err(|e| e.to_string()), Err(message.to_owned()), "{pattern}");
}

#[test]
fn perl_classes_are_ascii() {
    matches(r"^\d+$", &["123"], &["٣", ""]);
    matches(r"^\w$", &["a", "_", "9"], &["é", "-"]);
    matches(r"^\s$", &[" ", "\t", "\n"], &["\u{a0}", "\u{b}"]);
    matches(r"^[\w.-]+$", &["a.b-c_9"], &["a b", "é"]);
    matches(r"^[^\d]$", &["a", "٣"], &["7"]);
    matches(r"^\W$", &["é", "-"], &["a"]);
    matches(r"^[\S]+$", &["aé"], &["a b"]);
    matches(r"\bfoo\b", &["a foo b"], &["afoo"]);
    matches(r"a\Bb", &["ab"], &["a b"]);
}

#[test]
fn classes_have_no_set_operations() {
    matches(r"^[[]$", &["["], &["]"]);
    matches(r"^[]a]+$", &["]a"], &["["]);
    matches(r"^[a&&b]+$", &["a&b"], &["c"]);
    matches(r"^[+--]+$", &["+,-"], &["."]);
    matches(r"^[a-c-e]+$", &["abc-e"], &["d"]);
    matches(r"^[~-]$", &["~", "-"], &["a"]);
    matches(r"^[[:alpha:]_]+$", &["a_B"], &["1"]);
    matches(r"^[[:^alpha:]]+$", &["1-"], &["a"]);
    matches(r"^[\]\-]$", &["]", "-"], &["\\"]);
}

#[test]
fn braces_that_are_no_repetition_are_text() {
    matches(r"^a{,2}$", &["a{,2}"], &["a", "aa"]);
    matches(r"^{$", &["{"], &["}"]);
    matches(r"^a{2}$", &["aa"], &["a"]);
    matches(r"^a{x}$", &["a{x}"], &["a"]);
    matches(r"^\$\{[a-z]+}$", &["${var}"], &["$var"]);
}

#[test]
fn escapes() {
    matches(r"^\Qa.b*\E+$", &["a.b*", "a.b**"], &["aXb"]);
    matches(r"^\101\x42\x{43}$", &["ABC"], &[]);
    matches(r"^\<\>\/\:\%$", &["<>/:%"], &[]);
    matches(r"^\p{Greek}\pL\P{L}\p{^L}$", &["αa11"], &["aa11"]);
    matches(r"\Aab\z", &["ab"], &["ab\n"]);
    matches(r"^ab$", &["ab"], &["ab\n"]);
    matches(r"(?i)^straße$", &["STRAßE"], &[]);
    matches(r"^(?P<name>a)(?<other>b)(?:c)$", &["abc"], &[]);
    matches(r"(?s)^.$", &["\n"], &[]);
    matches(r"^.$", &["é", "日"], &["\n"]);
}

#[test]
fn refused_in_the_words_of_go() {
    refused("+", "error parsing regexp: missing argument to repetition operator: `+`");
    refused("a**", "error parsing regexp: invalid nested repetition operator: `**`");
    refused("a(b", "error parsing regexp: missing closing ): `a(b`");
    refused("a)b", "error parsing regexp: unexpected ): `a)b`");
    refused("[a", "error parsing regexp: missing closing ]: `[a`");
    refused("[z-a]", "error parsing regexp: invalid character class range: `z-a`");
    refused(r"\1", r"error parsing regexp: invalid escape sequence: `\1`");
    refused(r"\y", r"error parsing regexp: invalid escape sequence: `\y`");
    refused(r"(?=a)", "error parsing regexp: invalid or unsupported Perl syntax: `(?=`");
    refused(r"(?x)a", "error parsing regexp: invalid or unsupported Perl syntax: `(?x`");
    refused(r"a{1001}", "error parsing regexp: invalid repeat count: `{1001}`");
    refused(r"a{2,1}", "error parsing regexp: invalid repeat count: `{2,1}`");
    refused(r"a\", "error parsing regexp: trailing backslash at end of expression: ``");
    refused(r"\p{Nope}", r"error parsing regexp: invalid character class range: `\p{Nope}`");
}

#[test]
fn bombs_are_refused_quickly() {
    assert!(Pattern::check("((a{100}){100}){100}").is_err());
    assert!(Pattern::check(&format!("{}a{}", "(".repeat(5000), ")".repeat(5000))).is_err());
    assert!(Pattern::check(&"(\\pL{1000})".repeat(50)).is_err());
    assert!(Pattern::check(&"[".repeat(100_000)).is_err());
    matches("^(a+)+$", &["aaaa"], &[&format!("{}b", "a".repeat(100_000))]);
}

/// Pieces of expressions, right and wrong.
const PIECES: [&str; 62] = [
    "a",
    "A",
    "0",
    "_",
    "-",
    "é",
    "[",
    "]",
    "[^",
    "[a-c]",
    "[[:alpha:]]",
    "[[:^digit:]]",
    "\\d",
    "\\D",
    "\\w",
    "\\W",
    "\\s",
    "\\S",
    "\\b",
    "\\B",
    "^",
    "$",
    ".",
    "(",
    "(?:",
    "(?i)",
    "(?P<n>",
    "(?=",
    ")",
    "|",
    "*",
    "+",
    "?",
    "{2}",
    "{,2}",
    "{1,3}",
    "{2,}",
    "{",
    "}",
    "\\pL",
    "\\p{Greek}",
    "\\P{Lu}",
    "\\p{^L}",
    "\\Q",
    "\\E",
    "\\x41",
    "\\x{e9}",
    "\\101",
    "\\1",
    "\\.",
    "\\z",
    "&&",
    "--",
    "~~",
    "\\",
    "<",
    "\\<",
    "{1001}",
    "[a-\\d]",
    "[\\w-]",
    "#",
    " ",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8000))]

    /// Whatever the translation lets through, the crate understands.
    #[test]
    fn what_is_translated_compiles(pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 1..7), text in ".{0,5}") {
        let source = pieces.concat();
        if let Ok(translated) = translate(&source) {
            prop_assert!(Regex::new(&translated).is_ok(), "{} became {}", source, translated);
            prop_assert!(Pattern::new(&source).is_match(&text).is_ok());
        }
    }

    #[test]
    fn any_text_is_a_pattern_or_refused(source in ".{0,12}", text in ".{0,5}") {
        let _ = Pattern::new(&source).is_match(&text);
    }
}
