//! What is said of expressions that do not compile, word for word.

use super::environment;

fn errors(text: &str) -> String {
    environment().compile(text).err().map(|errors| errors.to_string()).unwrap_or_default()
}

const STARTS: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, \
                      BYTES, IDENTIFIER}";

/// A problem in a text of one line.
fn problem(text: &str, column: usize, message: &str) -> String {
    format!("ERROR: <input>:1:{column}: {message}\n | {text}\n | {}^", ".".repeat(column - 1))
}

#[test]
fn types_that_do_not_fit() {
    for (text, column, message) in [
        ("-x", 2, "undeclared reference to 'x' (in container '')"),
        ("x.y.z", 1, "undeclared reference to 'x' (in container '')"),
        ("f(1)", 2, "undeclared reference to 'f' (in container '')"),
        ("'a'.f()", 6, "undeclared reference to 'f' (in container '')"),
        ("1 + 'a'", 3, "found no matching overload for '_+_' applied to '(int, string)'"),
        ("1 == 1.0", 3, "found no matching overload for '_==_' applied to '(int, double)'"),
        ("1.contains('a')", 11, "found no matching overload for 'contains' applied to 'int.(string)'"),
        ("'a'.contains(1)", 13, "found no matching overload for 'contains' applied to 'string.(int)'"),
        ("size(1)", 5, "found no matching overload for 'size' applied to '(int)'"),
        ("self.metadata.nam", 14, "undefined field 'nam'"),
        ("has(self.spec.nam)", 4, "undefined field 'nam'"),
        ("self.spec.replicas.x", 19, "type 'int' does not support field selection"),
        ("[1, 'a']", 5, "expected type 'int' but found 'string'"),
        ("{'a': 1, 'b': 'c'}", 15, "expected type 'int' but found 'string'"),
        ("1 && true", 1, "expected type 'bool' but found 'int'"),
        ("true || 'a'", 9, "expected type 'bool' but found 'string'"),
        ("1 ? 2 : 3", 3, "found no matching overload for '_?_:_' applied to '(int, int, int)'"),
        ("true ? 1 : 'a'", 6, "found no matching overload for '_?_:_' applied to '(bool, int, string)'"),
        (
            "1.all(x, true)",
            1,
            "expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
        ),
        ("duration('x') > duration('1s')", 10, "invalid duration argument"),
        ("timestamp('2024') == timestamp(0)", 11, "invalid timestamp argument"),
        ("'a'.matches('(')", 13, "invalid matches argument"),
        ("Foo{a: 1}", 4, "undeclared reference to 'Foo' (in container '')"),
        (
            "'%d'.format(['a'])",
            14,
            "error during formatting: decimal clause can only be used on integers, was given string",
        ),
        ("'%s'.format([1, 2])", 12, "too many arguments supplied to string.format (expected 1, got 2)"),
        ("self.spec.replicas in ['a']", 20, "found no matching overload for '@in' applied to '(int, list(string))'"),
        ("jsonpatch.escapeKey('a')", 1, "undeclared reference to 'jsonpatch' (in container '')"),
    ] {
        let found = errors(text);
        let first: String = found.split("\nERROR").next().unwrap_or_default().to_owned();
        assert_eq!(first, problem(text, column, message), "{text}");
    }
}

#[test]
fn several_problems_are_told_in_order() {
    assert_eq!(
        errors("1.5.x/y"),
        format!(
            "{}\n{}",
            problem("1.5.x/y", 4, "type 'double' does not support field selection"),
            problem("1.5.x/y", 7, "undeclared reference to 'y' (in container '')")
        )
    );
}

#[test]
fn texts_that_do_not_parse() {
    let mismatched = |found: &str| format!("Syntax error: mismatched input '{found}' expecting {STARTS}");
    assert_eq!(errors(""), format!("ERROR: <input>:1:0: {}", mismatched("<EOF>")));
    for (text, column, message) in [
        ("Invalid_Name!", 13, "Syntax error: extraneous input '!' expecting <EOF>".to_owned()),
        ("1 2 3", 3, "Syntax error: mismatched input '2' expecting <EOF>".to_owned()),
        ("self.true == 1", 6, "Syntax error: mismatched input 'true' expecting IDENTIFIER".to_owned()),
        ("{a}", 3, "Syntax error: mismatched input '}' expecting ':'".to_owned()),
        ("(1", 3, "Syntax error: missing ')' at '<EOF>'".to_owned()),
        ("var", 1, "reserved identifier: var".to_owned()),
        ("99999999999999999999", 1, "invalid int literal".to_owned()),
        ("1.99e90000009", 1, "invalid double literal".to_owned()),
        ("has(1)", 5, "invalid argument to has() macro".to_owned()),
        ("[1].map(a.b, true)", 10, "argument is not an identifier".to_owned()),
        ("[1].all(1, v, true)", 9, "argument must be a simple name".to_owned()),
        ("[1].all(v, v, true)", 12, "duplicate variable name: v".to_owned()),
        ("1 +", 4, mismatched("<EOF>")),
    ] {
        assert_eq!(errors(text), problem(text, column, &message), "{text}");
    }
    let unknown = problem("1 + $", 5, "Syntax error: token recognition error at: '$'");
    assert_eq!(errors("1 + $"), format!("{unknown}\n{}", problem("1 + $", 6, &mismatched("<EOF>"))));
    assert_eq!(
        errors("in"),
        format!("{}\n{}", problem("in", 1, &mismatched("in")), problem("in", 3, &mismatched("<EOF>")))
    );
}

#[test]
fn places_count_characters_and_lines() {
    assert_eq!(
        errors("1 == 1 &&\n  'é' == x"),
        "ERROR: <input>:2:10: undeclared reference to 'x' (in container '')\n |   'é' == x\n | ...\u{ff0e}.....^"
    );
}
