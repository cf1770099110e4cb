//! How cells are written: what many kinds have in common.
//!
//! Objects have been checked when they get here; what is absent reads as the zero value.

use object_model::meta::{Meta, TextMap};
use object_model::selector::LabelSelector;
use object_model::time::{Duration, Time};
use object_model::value::Fields;
use serde_json::Value;

/// The value at a path such as `spec.replicas`, unless it is null.
pub fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, name| value.get(name)).filter(|value| !value.is_null())
}

/// Text, or `""`.
pub fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    text_or(object, path, "")
}

/// Text, or something else if there is none.
pub fn text_or<'a>(object: &'a Value, path: &str, absent: &'a str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or(absent)
}

/// Text, or something else if there is none or it is empty.
pub fn filled_or<'a>(text: &'a str, empty: &'a str) -> &'a str {
    if text.is_empty() { empty } else { text }
}

pub fn int(object: &Value, path: &str) -> i64 {
    at(object, path).and_then(Value::as_i64).unwrap_or_default()
}

pub fn flag(object: &Value, path: &str) -> bool {
    at(object, path).and_then(Value::as_bool).unwrap_or_default()
}

pub fn items<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// How many items or entries there are.
pub fn count(object: &Value, path: &str) -> usize {
    match at(object, path) {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(entries)) => entries.len(),
        _ => 0,
    }
}

/// A quantity; nothing is `0`.
pub fn quantity<'a>(object: &'a Value, path: &str) -> &'a str {
    text_or(object, path, "0")
}

/// A list of texts.
pub fn joined(object: &Value, path: &str) -> String {
    let texts: Vec<&str> = items(object, path).iter().filter_map(Value::as_str).collect();
    texts.join(",")
}

pub fn name(object: &Value) -> Value {
    Meta::of(object).name().into()
}

/// How long ago the object was made.
pub fn age(object: &Value, now: Time) -> Value {
    since(object, "metadata.creationTimestamp", now).into()
}

/// How long ago a moment was.
pub fn since(object: &Value, path: &str, now: Time) -> String {
    time(object, path).map_or_else(|| "<unknown>".to_owned(), |time| human(now.since(time)))
}

/// A moment with or without microseconds.
pub fn time(object: &Value, path: &str) -> Option<Time> {
    Time::parse(at(object, path)?.as_str()?).ok().filter(|time| !time.is_zero())
}

/// A duration in two or three digits, the more exact the shorter it is. Clocks may be a second apart.
pub fn human(duration: Duration) -> String {
    let seconds = duration.seconds();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    match () {
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two_units(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two_units(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two_units(days, "d", hours % 24, "h"),
        () if years < 2 => format!("{days}d"),
        () if years < 8 => two_units(years, "y", days % 365, "d"),
        () => format!("{years}y"),
    }
}

fn two_units(large: i64, unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{small_unit}") }
}

/// Labels as `a=b,c=d`.
pub fn labels(object: &Value, path: &str) -> String {
    let pairs: Vec<String> =
        TextMap::of(at(object, path)).iter().map(|(key, value)| format!("{key}={value}")).collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// A `LabelSelector`; one that is absent selects nothing, but looks like one that selects everything.
pub fn selector(object: &Value, path: &str) -> String {
    match at(object, path).map(LabelSelector::from_object) {
        None => "<none>".to_owned(),
        Some(Err(_)) => "<error>".to_owned(),
        Some(Ok(selector)) if selector.is_everything() => "<none>".to_owned(),
        Some(Ok(selector)) => selector.to_string(),
    }
}

/// The containers of a pod template, their names and their images.
pub fn containers(object: &Value, path: &str) -> [Value; 2] {
    let all = |field: &str| {
        let texts: Vec<&str> = items(object, path).iter().map(|container| container.text(field)).collect();
        texts.join(",").into()
    };
    [all("name"), all("image")]
}

/// The first few of many.
pub fn first_of(all: &[String], shown: usize, separator: &str) -> String {
    match all.get(..shown) {
        Some(first) if all.len() > shown => format!("{} + {} more...", first.join(separator), all.len() - shown),
        _ => all.join(separator),
    }
}

/// The first condition of a type.
pub fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    items(object, "status.conditions").iter().find(|condition| condition.text("type") == name)
}

/// Is the first condition of a type `True`?
pub fn is_true(object: &Value, name: &str) -> bool {
    condition(object, name).is_some_and(|condition| condition.text("status") == "True")
}

pub fn is_deleting(object: &Value) -> bool {
    Meta::of(object).is_deleting()
}
