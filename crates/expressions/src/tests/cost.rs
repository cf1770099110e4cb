//! What evaluations cost, and what happens when that is too much.

use super::{environment, with_activation};
use crate::*;

fn cost(text: &str) -> u64 {
    let program = environment().compile(text).unwrap_or_else(|errors| panic!("{text}: {errors}"));
    let mut budget = Budget::new(COST_PER_CALL * 2);
    with_activation(|activation| {
        program.evaluate(activation, &mut budget).unwrap_or_else(|error| panic!("{text}: {error}"));
    });
    COST_PER_CALL * 2 - budget.left()
}

#[test]
fn expressions_cost_what_they_cost_in_kubernetes() {
    for (text, expected) in [
        ("'Hello World!'", 0),
        ("object", 1),
        ("object.spec", 2),
        ("object['spec']", 2),
        ("object['sp' + 'ec']", 3),
        ("has(object.spec)", 1),
        ("has(object.spec.replicas)", 2),
        ("[1, 2, 3]", 0),
        ("[object, object]", 12),
        ("{'a': object}", 31),
        ("true || false", 0),
        ("1 < 2", 1),
        ("1 == 2", 1),
        ("'12345678901234567890' == '123456789012345678901234567890'", 2),
        ("true ? 1 : 2", 0),
        ("(1 > 2 ? 5 : 3) > 1", 2),
        ("size('123')", 1),
        ("2 in [1, 2, 3]", 0),
        ("[1, 2, 3].all(x, true)", 10),
        ("[1, 2, 3, 4, 5].map(x, x)", 66),
        ("[1, 2, 3, 4, 5].filter(x, x % 2 == 0)", 42),
        ("'123'.matches('[0-9]')", 2),
        ("'ABCDEFGHIJ abcdefghij'.lowerAscii()", 3),
        ("strings.quote('ABCDEFGHIJ abcdefghij')", 3),
        ("'abc 123 def 123'.replace('123', '456')", 3),
        ("'abc 123 def 123'.split(' ')", 3),
        ("'abc 123 def 123'.substring(5)", 2),
        ("['aa', 'bb', 'cc', 'd', 'e', 'f', 'g', 'h', 'i', 'j'].join(' ')", 5),
        ("'abc 123 def 123'.find('123')", 2),
        ("authorizer.path('/healthz')", 2),
        ("authorizer.group('apps').resource('deployments').subresource('status').namespace('test').name('backend')", 6),
        (
            "authorizer.group('').resource('pods')\
             .fieldSelector('spec.nodeName=example-node-name.fully.qualified.domain.name.example.com')",
            1821,
        ),
        ("authorizer.path('/healthz').check('get').allowed()", 350_003),
        ("quantity('12Mi')", 1),
        ("quantity('200M') == quantity('200M')", 3),
        ("quantity('50k').add(20).sub(quantity('100k')).asInteger() > 0", 6),
        ("format.named('dns1123Subdomain').value().validate('my-name')", 17),
        ("format.named('dns1123Label').value().validate('my-name')", 10),
        ("sets.contains([1, 2, 3, 4], [2, 3])", 9),
        ("sets.equivalent([1], [1])", 3),
    ] {
        assert_eq!(cost(text), expected, "{text}");
    }
}

#[test]
fn an_evaluation_that_costs_too_much_is_cancelled() {
    for text in [
        "lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))",
        "authorizer.path('/a').check('get').allowed() || authorizer.path('/b').check('get').allowed() || \
         authorizer.path('/c').check('get').allowed()",
        // Not forgiven, though the other side would decide.
        "lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0)) || true",
        "lists.range(1000).exists(x, lists.range(1000).map(y, x + y).size() < 0)",
    ] {
        let program = environment().compile(text).expect("compiles");
        let error = with_activation(|activation| program.evaluate(activation, &mut Budget::default()).err());
        assert_eq!(error, Some(EvaluationError::CostLimit), "{text}");
    }
}

#[test]
fn several_evaluations_share_a_budget() {
    let program = environment().compile("[1, 2, 3].all(x, true)").expect("compiles");
    let mut budget = Budget::new(25);
    let mut run = || with_activation(|activation| program.evaluate(activation, &mut budget).map(|v| v.to_json()));
    assert!(run().is_ok());
    assert!(run().is_ok());
    assert_eq!(run(), Err(EvaluationError::Budget));
    assert_eq!(budget.left(), 0);
}
