use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn selects(selector: &str, labels: &BTreeMap<String, String>) -> bool {
    LabelSelector::parse(selector).unwrap().matches(|key| labels.get(key).map(String::as_str))
}

#[test]
fn text_selectors_select() {
    let web = labels(&[("app", "web"), ("tier", "2")]);
    for selector in [
        "",
        "app",
        "app=web",
        "app==web",
        "app!=api",
        "app in (web,api)",
        "app notin (api)",
        "!canary",
        "tier>1",
        "tier<3",
        "x!=1",
        "a notin (b)",
        "app in (web),!y",
    ] {
        assert!(selects(selector, &web), "{selector}");
    }
    for selector in
        ["app=api", "!app", "canary", "tier>2", "tier<2", "app in (api)", "app notin (web)", "app=", "x>1", "x in ()"]
    {
        assert!(!selects(selector, &web), "{selector}");
    }
    assert!(selects("in in (notin)", &labels(&[("in", "notin")])));
    assert!(selects("x in (,a)", &labels(&[("x", "")])));
}

#[test]
fn text_selectors_are_refused_in_kubernetes_words() {
    for (selector, message) in [
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ] {
        assert_eq!(LabelSelector::parse(selector).unwrap_err().to_string(), message, "{selector}");
    }
    assert!(LabelSelector::parse("a=-b").is_err());
    assert!(LabelSelector::parse("-a").is_err());
}

#[test]
fn objects_are_read_as_selectors() {
    let selector = json!({
        "matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["b", "a"]}, {"key": "x", "operator": "Exists"}],
    });
    let selector = LabelSelector::from_object(&selector).unwrap();
    assert_eq!(selector.to_string(), "app=web,tier notin (a,b),x");
    let bad = json!({"matchExpressions": [{"key": "a", "operator": "Is"}]});
    assert_eq!(
        LabelSelector::from_object(&bad).unwrap_err().to_string(),
        "\"Is\" is not a valid label selector operator"
    );
}

#[test]
fn field_selectors() {
    let selector = FieldSelector::parse("spec.nodeName=a,metadata.name!=b\\,c").unwrap();
    assert_eq!(selector.exact("spec.nodeName"), Some("a"));
    assert_eq!(selector.exact("metadata.name"), None);
    assert_eq!(selector.to_string(), "metadata.name!=b\\,c,spec.nodeName=a");
    let fields = |name: &str| if name == "spec.nodeName" { "a" } else { "" };
    assert!(selector.matches(fields));
    assert!(!FieldSelector::parse("x=1").unwrap().matches(fields));
    assert!(FieldSelector::parse("x==").unwrap().matches(fields));
    let error = FieldSelector::parse("nonsense").unwrap_err().to_string();
    assert_eq!(error, "invalid selector: 'nonsense'; can't understand 'nonsense'");
    assert!(FieldSelector::parse("a=b\\x").is_err());
    assert!(FieldSelector::parse("a=b=c").is_err());
}

#[test]
fn fields_a_kind_does_not_know() {
    let selector = FieldSelector::parse("metadata.name=a,spec.x=b").unwrap();
    assert_eq!(
        selector.check(|_| false, false).unwrap_err().to_string(),
        "\"spec.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    );
    let error = selector.check(|field| field == "spec.nodeName", true).unwrap_err();
    assert_eq!(error.to_string(), "field label not supported: spec.x");
    assert_eq!(selector.check(|field| field == "spec.x", true), Ok(()));
}

#[test]
fn odd_field_selectors() {
    assert!(FieldSelector::parse("=,!=,==,").unwrap().is_everything());
    assert_eq!(
        FieldSelector::parse("a=b=c").unwrap_err().to_string(),
        "invalid field selector: unescaped character in value: 61"
    );
}

#[test]
fn labels_that_must_have_one_value() {
    let selector = LabelSelector::parse("a=x,b in (y),c in (y,z),d!=w,e==v").unwrap();
    let exact: Vec<_> = ["a", "b", "c", "d", "e", "f"].iter().map(|label| selector.exact(label)).collect();
    assert_eq!(exact, [Some("x"), Some("y"), None, None, Some("v"), None]);
    let bad = json!({"matchExpressions": [{"key": "a", "operator": "In"}]});
    assert_eq!(
        LabelSelector::from_object(&bad).unwrap_err().to_string(),
        "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"
    );
}

/// A requirement as data, and what it means said another way.
#[derive(Clone, Debug)]
struct Model {
    key: String,
    operator: usize,
    values: Vec<String>,
}

impl Model {
    fn text(&self) -> String {
        let Model { key, operator, values } = self;
        let first = &values[0];
        match operator {
            0 => format!("{key} = {first}"),
            1 => format!("{key}!={first}"),
            2 => format!("{key} in ({})", values.join(", ")),
            3 => format!("{key}  notin( {} )", values.join(",")),
            4 => key.clone(),
            5 => format!("! {key}"),
            6 => format!("{key}>{}", first.len()),
            _ => format!("{key}<{}", first.len()),
        }
    }

    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let number = value.and_then(|v| v.parse::<i64>().ok());
        let bound = self.values[0].len() as i64;
        match self.operator {
            0 => value == Some(&self.values[0]),
            1 => value != Some(&self.values[0]),
            2 => self.values.iter().any(|v| Some(v) == value),
            3 => self.values.iter().all(|v| Some(v) != value),
            4 => value.is_some(),
            5 => value.is_none(),
            6 => number.is_some_and(|n| n > bound),
            _ => number.is_some_and(|n| n < bound),
        }
    }
}

fn model() -> impl Strategy<Value = Model> {
    ("[abc]", 0usize..8, prop::collection::vec("[a-c0-3]{0,2}", 1..4)).prop_map(|(key, operator, values)| Model {
        key,
        operator,
        values,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn selectors_mean_what_their_model_means(
        models in prop::collection::vec(model(), 0..4),
        labels in prop::collection::btree_map("[abc]", "[a-c0-3]{0,2}", 0..4),
    ) {
        let text = models.iter().map(Model::text).collect::<Vec<_>>().join(" , ");
        let selector = LabelSelector::parse(&text).unwrap();
        let expected = models.iter().all(|m| m.holds(&labels));
        prop_assert_eq!(selector.matches(|key| labels.get(key).map(String::as_str)), expected, "{}", text);
        // What it prints reads back as the same selector.
        prop_assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
    }

    #[test]
    fn field_selectors_read_back(terms in prop::collection::vec(("[a-z.]{1,8}", "[a-z,=\\\\]{0,6}", any::<bool>()), 0..5)) {
        let selector = FieldSelector::parse(&terms.iter().map(|(field, value, equal)| {
            let value = value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            format!("{field}{}{value}", if *equal { "=" } else { "!=" })
        }).collect::<Vec<_>>().join(",")).unwrap();
        prop_assert_eq!(selector.terms().len(), terms.len());
        let again = FieldSelector::parse(&selector.to_string()).unwrap();
        for (field, value, equal) in &terms {
            let term = FieldTerm { field: field.as_str().into(), value: value.as_str().into(), equal: *equal };
            prop_assert!(again.terms().contains(&term));
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,40}") {
        let _ = LabelSelector::parse(&text);
        let _ = FieldSelector::parse(&text);
    }
}
