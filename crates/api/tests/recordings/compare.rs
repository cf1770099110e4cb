//! Compares what we come to with what was recorded, apart from what differs by nature.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

pub enum Outcome {
    Same,
    OtherWords(String),
    Different(String),
}

/// The recorded answers have these already replaced.
static WORDS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        (r"kube-api-access-[a-z0-9]{5}", "kube-api-access-<random>"),
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
        (r"\b10\.(0|43|96)\.\d+\.\d+\b", "<service ip>"),
        (r"resourceVersion: \S+|generation: \d+", "<version>"),
    ]
    .into_iter()
    .map(|(pattern, word)| (Regex::new(pattern).expect("a pattern"), word))
    .collect()
});
static TIME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z").expect("a pattern"));

const VOLATILE: [&str; 9] = [
    "uid",
    "creationTimestamp",
    "resourceVersion",
    "deletionTimestamp",
    "selfLink",
    "lastTransitionTime",
    "lastUpdateTime",
    "continue",
    "managedFields",
];

/// What remains of an answer when everything that differs by nature is gone.
pub fn normal(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .filter(|(name, _)| !VOLATILE.contains(&name.as_str()))
                .map(|(name, field)| {
                    let allocated = Value::from("<allocated>");
                    let field = match name.as_str() {
                        "clusterIP" | "healthCheckNodePort" | "nodePort" if *field != "None" && *field != "" => {
                            allocated
                        }
                        "clusterIPs" => field
                            .as_array()
                            .into_iter()
                            .flatten()
                            .map(|ip| if ip == "None" { ip.clone() } else { allocated.clone() })
                            .collect(),
                        _ => normal(field),
                    };
                    (name.clone(), field)
                })
                .collect::<Map<_, _>>(),
        ),
        Value::Array(items) => items.iter().map(normal).collect(),
        Value::String(text) => Value::from(words(text)),
        other => other.clone(),
    }
}

fn words(text: &str) -> String {
    let text = TIME.replace_all(text, |found: &regex::Captures| {
        if found[0][4..].starts_with("-01-01T00:00:00") { found[0].to_owned() } else { "<time>".to_owned() }
    });
    WORDS.iter().fold(text.into_owned(), |text, (pattern, word)| pattern.replace_all(&text, *word).into_owned())
}

pub fn success(want: &Value, got: &Value) -> Outcome {
    match first_difference(&normal(want), &normal(got), "") {
        None => Outcome::Same,
        Some(difference) => Outcome::Different(difference),
    }
}

pub fn failure(want: &Value, got: &Value) -> Outcome {
    let (wanted, found) = (causes(want), causes(got));
    if wanted != found {
        let missing: Vec<_> = wanted.difference(&found).collect();
        let extra: Vec<_> = found.difference(&wanted).collect();
        return Outcome::Different(format!("causes missing {missing:?}, too many {extra:?}"));
    }
    let (want, got) =
        (want["message"].as_str().unwrap_or_default(), words(got["message"].as_str().unwrap_or_default()));
    if want == got { Outcome::Same } else { Outcome::OtherWords(format!("\n  ours {got}\n  its  {want}")) }
}

/// Reasons and fields, without the positions in lists.
fn causes(status: &Value) -> BTreeSet<(String, String)> {
    static INDEX: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\[\d+\]").expect("a pattern"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let causes = status["details"]["causes"].as_array().into_iter().flatten();
    causes.map(|c| (text(&c["reason"]), INDEX.replace_all(&text(&c["field"]), "[]").into_owned())).collect()
}

fn first_difference(want: &Value, got: &Value, path: &str) -> Option<String> {
    let short = |value: &Value| value.to_string().chars().take(160).collect::<String>();
    match (want, got) {
        (Value::Object(a), Value::Object(b)) => {
            let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            names.into_iter().find_map(|name| match (a.get(name), b.get(name)) {
                (Some(a), Some(b)) => first_difference(a, b, &format!("{path}.{name}")),
                (Some(a), None) => Some(format!("{path}.{name}: missing, Kubernetes {}", short(a))),
                (None, Some(b)) => Some(format!("{path}.{name}: present ({}), Kubernetes omits it", short(b))),
                (None, None) => None,
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(i, (a, b))| first_difference(a, b, &format!("{path}[{i}]")))
        }
        _ if want == got || (want.is_number() && want.as_f64() == got.as_f64()) => None,
        _ => Some(format!("{path}: {}, Kubernetes {}", short(got), short(want))),
    }
}
