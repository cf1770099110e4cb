//! Sets of tolerations, and which of them are part of which.

use object_model::value::Fields;
use serde_json::Value;

/// Both sets as one, without those that another covers. Of equal ones the first is kept.
pub fn merge(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    let mut merged: Vec<Value> = Vec::new();
    for (i, toleration) in all.iter().enumerate() {
        let later = all.iter().skip(i + 1).any(|other| other != toleration && covers(other, toleration));
        if !later && !merged.iter().any(|other| covers(other, toleration)) {
            merged.push((*toleration).clone());
        }
    }
    merged
}

/// Does the one tolerate everything that the other does?
pub fn covers(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let same = |field| wide.text(field) == narrow.text(field);
    let any_key = wide.text("key").is_empty() && wide.text("operator") == "Exists";
    if !same("key") && !any_key || !same("effect") && !wide.text("effect").is_empty() {
        return false;
    }
    if wide.text("effect") == "NoExecute"
        && let Some(most) = wide.int("tolerationSeconds")
        && narrow.int("tolerationSeconds").is_none_or(|seconds| seconds > most)
    {
        return false;
    }
    match wide.text("operator") {
        "" | "Equal" => narrow.text("operator") == "Equal" && same("value"),
        "Exists" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{covers, merge};

    fn toleration(key: &str, operator: &str, value: &str, effect: &str, seconds: Option<i64>) -> Value {
        let mut toleration = json!({"operator": operator});
        for (name, text) in [("key", key), ("value", value), ("effect", effect)] {
            if !text.is_empty() {
                toleration[name] = text.into();
            }
        }
        if let Some(seconds) = seconds {
            toleration["tolerationSeconds"] = seconds.into();
        }
        toleration
    }

    #[test]
    fn wide_ones_cover_narrow_ones() {
        let all = toleration("", "Exists", "", "", None);
        let foo = toleration("foo", "Exists", "", "", None);
        let foo_bar = toleration("foo", "Equal", "bar", "", None);
        let foo_bar_now = toleration("foo", "Equal", "bar", "NoSchedule", None);
        let short = toleration("foo", "Exists", "", "NoExecute", Some(10));
        let long = toleration("foo", "Exists", "", "NoExecute", Some(60));
        let ever = toleration("foo", "Exists", "", "NoExecute", None);
        for (wide, narrow) in [
            (&all, &foo),
            (&foo, &foo_bar),
            (&foo_bar, &foo_bar_now),
            (&foo, &foo_bar_now),
            (&long, &short),
            (&ever, &long),
        ] {
            assert!(covers(wide, narrow), "{wide} covers {narrow}");
            assert!(!covers(narrow, wide), "{narrow} does not cover {wide}");
        }
    }

    #[test]
    fn merging_drops_what_is_covered() {
        let foo = toleration("foo", "Exists", "", "", None);
        let foo_bar = toleration("foo", "Equal", "bar", "", None);
        let faz = toleration("faz", "Exists", "", "NoSchedule", None);
        let merged = merge(&[foo_bar.clone(), faz.clone()], &[foo.clone(), faz.clone()]);
        assert_eq!(merged, [faz.clone(), foo.clone()]);
        assert_eq!(merge(std::slice::from_ref(&foo), &[foo_bar]), [foo]);
        assert_eq!(merge(&[], &[]), Vec::<Value>::new());
    }
}
