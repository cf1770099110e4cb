//! Sets of tolerations, and which of them are part of which.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use object_model::value::Fields;
use serde_json::Value;

/// Both sets as one, without those that another covers. Of equal ones the first is kept.
pub fn merge(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    let mut later = Set::default();
    let mut kept: Vec<&Value> = Vec::new();
    for toleration in all.into_iter().rev() {
        if !later.another_covers(toleration) {
            kept.push(toleration);
        }
        later.add(toleration);
    }
    let mut merged = Set::default();
    let mut list = Vec::new();
    for toleration in kept.into_iter().rev() {
        if !merged.covers(toleration) {
            merged.add(toleration);
            list.push(toleration.clone());
        }
    }
    list
}

/// Key, effect and value (none for any) of what is tolerated. Tolerations of one sort differ in how long they hold.
type Sort<'v> = (&'v str, &'v str, Option<&'v str>);

/// Tolerations, to be asked whether one of them covers another. There may be tens of thousands, so they are not compared each
/// with each: of those of a sort, only the widest can cover what the others do not.
#[derive(Default)]
pub struct Set<'v> {
    /// The two widest of each sort: one of them is not the one that is asked for.
    widest: HashMap<Sort<'v>, Vec<&'v Value>>,
    known: HashSet<String>,
}

impl<'v> Set<'v> {
    pub fn add(&mut self, toleration: &'v Value) {
        let value = match toleration.text("operator") {
            "" | "Equal" => Some(toleration.text("value")),
            _ => None,
        };
        let sort = (toleration.text("key"), toleration.text("effect"), value);
        let widest = self.widest.entry(sort).or_default();
        if self.known.insert(toleration.to_string()) {
            widest.push(toleration);
            widest.sort_by_key(|toleration| {
                let seconds = toleration.int("tolerationSeconds");
                Reverse((toleration.text("operator") == "Exists", seconds.is_none(), seconds))
            });
            widest.truncate(2);
        }
    }

    /// Is everything tolerated that this one does?
    pub fn covers(&self, toleration: &Value) -> bool {
        self.known.contains(&toleration.to_string()) || self.another_covers(toleration)
    }

    /// The same, by one that is not equal to it.
    fn another_covers(&self, toleration: &Value) -> bool {
        let (key, value) = (toleration.text("key"), toleration.text("value"));
        [toleration.text("effect"), ""].into_iter().any(|effect| {
            let wider = [(key, effect, Some(value)), (key, effect, None), ("", effect, None)];
            let mut wider = wider.iter().filter_map(|sort| self.widest.get(sort)).flatten();
            wider.any(|other| *other != toleration && covers(other, toleration))
        })
    }
}

/// Does the one tolerate everything that the other does?
fn covers(wide: &Value, narrow: &Value) -> bool {
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

    /// Each compared with each.
    fn merged_by_pairs(all: &[Value]) -> Vec<Value> {
        let mut merged: Vec<Value> = Vec::new();
        for (i, toleration) in all.iter().enumerate() {
            let later = all[i + 1..].iter().any(|other| other != toleration && covers(other, toleration));
            if !later && !merged.iter().any(|other| covers(other, toleration)) {
                merged.push(toleration.clone());
            }
        }
        merged
    }

    #[test]
    fn many_are_merged_as_few_are() {
        let mut sorts = Vec::new();
        for key in ["", "a", "b"] {
            for (operator, value) in [("Exists", ""), ("Equal", "x"), ("Equal", ""), ("", "x"), ("Gt", "1")] {
                for (effect, seconds) in [
                    ("", None),
                    ("NoSchedule", None),
                    ("NoExecute", None),
                    ("NoExecute", Some(1)),
                    ("NoExecute", Some(2)),
                ] {
                    sorts.push(toleration(key, operator, value, effect, seconds));
                }
            }
        }
        for seed in 0..2000_usize {
            let some = |n: usize| sorts[(seed * 7919 + n * n * 104_729 + n * seed * 31) % sorts.len()].clone();
            let all: Vec<Value> = (0..2 + seed % 9).map(some).collect();
            let (first, second) = all.split_at(seed % 3);
            assert_eq!(merge(first, second), merged_by_pairs(&all), "{all:?}");
        }
        let many: Vec<Value> =
            (0..50_000).map(|n| toleration(&n.to_string(), "Exists", "", "NoExecute", Some(n))).collect();
        assert_eq!(merge(&many, &many[..10]), many);
        let longer: Vec<Value> = (0..50_000).map(|n| toleration("a", "Exists", "", "NoExecute", Some(n))).collect();
        assert_eq!(merge(&longer, &[]), longer[49_999..]);
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
