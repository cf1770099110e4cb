//! Expressions made to hurt: none takes long, much memory or the process down.

use proptest::prelude::*;

use super::{environment, evaluate};

fn fails_with(text: &str, words: &str) {
    let error = evaluate(text).expect_err("must fail");
    assert!(error.contains(words), "{}…", error.chars().take(300).collect::<String>());
}

#[test]
fn nesting_and_size_are_bounded() {
    let nested = |open: &str, close: &str, depth: usize| format!("{}1{}", open.repeat(depth), close.repeat(depth));
    fails_with(&nested("(", ")", 5_000), "recursion limit exceeded: 250");
    fails_with(&nested("[", "]", 5_000), "recursion limit exceeded: 250");
    fails_with(&nested("{1:", "}", 5_000), "recursion limit exceeded: 250");
    fails_with(&nested("f(", ")", 5_000), "recursion limit exceeded: 250");
    fails_with(&vec!["1"; 5_000].join("+"), "max recursion depth exceeded");
    fails_with(&vec!["a"; 5_000].join("."), "max recursion depth exceeded");
    fails_with(&format!("a{}", "[1]".repeat(5_000)), "max recursion depth exceeded");
    fails_with(&"true ? 1 : ".repeat(5_000), "recursion limit exceeded: 250");
    fails_with(&"a".repeat(100_001), "expression code point size exceeds limit: size: 100001, limit 100000");
    fails_with(&format!("optional.of(1){}", ".optMap(x, x)".repeat(60)), "expression size limit exceeded");
    fails_with(&"&&".repeat(20_000), "Syntax error");
    fails_with(&"'".repeat(33_333), "Syntax error");
    // Deep, but not too deep: on a small stack, since servers have such.
    let deep = [nested("(", ")", 240), nested("[", "]", 240), "!".repeat(9_000) + "true", "-".repeat(9_000) + "1"];
    let small = std::thread::Builder::new().stack_size(1536 << 10);
    let worker = small.spawn(move || deep.iter().all(|text| evaluate(text).is_ok())).expect("starts");
    assert!(worker.join().expect("no overflow"));
}

#[test]
fn long_chains_of_terms_are_fine() {
    assert_eq!(evaluate(&vec!["true"; 10_000].join("&&")), Ok(true.into()));
    assert_eq!(evaluate(&vec!["false"; 10_000].join("||")), Ok(false.into()));
}

#[test]
fn shared_parts_do_not_explode() {
    let doubled = |depth: usize| format!("[[1]]{}", ".map(x, [x, x])".repeat(depth));
    // Two copies that share nothing, each of 2^40 elements to look at.
    fails_with(&format!("{0} == {0}", doubled(40)), "cost limit exceeded");
    fails_with(&format!("'%s'.format({})", doubled(40)), "cost limit exceeded");
    fails_with(&format!("dyn({}).flatten(50)", doubled(40)), "cost limit exceeded");
    fails_with(&format!("[[1]]{}", ".map(x, {x: x})".repeat(60)), "type is too large");
}

#[test]
fn what_is_built_is_bounded() {
    let long = "a".repeat(20_000);
    fails_with(&format!("'{long}'.replace('', '{long}').size()"), "cost limit exceeded");
    fails_with("lists.range(100000000).size()", "cost limit exceeded");
    fails_with(&format!("lists.range(90000).map(x, '{long}').join().size()"), "cost limit exceeded");
    fails_with("'a'.matches('((a{1,1000}){1,1000}){1,1000}')", "invalid matches argument");
    fails_with("'%.99999f'.format([1.0])", "precision");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_compiles_or_is_refused(text in ".{0,60}") {
        let _ = environment().compile(&text);
    }

    #[test]
    fn any_tokens_compile_or_are_refused(
        tokens in proptest::collection::vec(proptest::sample::select(TOKENS.to_vec()), 0..25)
    ) {
        let text = tokens.join(" ");
        if environment().compile(&text).is_ok() {
            let _ = evaluate(&text);
        }
    }
}

const TOKENS: &[&str] = &[
    "1",
    "2u",
    "1.5",
    "'a'",
    "b'x'",
    "true",
    "null",
    "[",
    "]",
    "{",
    "}",
    "(",
    ")",
    ".",
    ",",
    ":",
    "?",
    "+",
    "-",
    "*",
    "/",
    "%",
    "!",
    "==",
    "<",
    "in",
    "&&",
    "||",
    "object",
    "self",
    ".spec",
    ".map(x,",
    ".all(x,",
    "x",
    "has(",
    "size(",
    ".size()",
    "[0]",
    ".?",
    "[?",
    "optional.of(",
    ".optMap(y,",
    "y",
    "duration('1s')",
    "timestamp(0)",
    "'\\",
    "\"",
    "quantity('1')",
    ".orValue(",
    "[1, 2]",
    "{'a': 1}",
    "dyn(",
];
