//! Objects as Kubernetes' messages show them: its own structs, with their names and in their order.
//!
//! Most messages show a single value. A few show a whole struct that may not change or is not supported, and some the
//! difference between two; users know these texts and compare them. `structs.txt` says how the structs are laid out.

mod difference;

use std::collections::HashMap;
use std::sync::LazyLock;

use object_model::codec::json;
use object_model::field::ErrorKind;
use serde_json::{Map, Value};

use super::Field;

impl Field<'_, '_> {
    /// Invalid, with the value shown as this struct.
    pub fn invalid_as(&self, name: &str, detail: &str) {
        let shown = if self.is_set() { shown(name, self.value()) } else { "null".to_owned() };
        self.tell(ErrorKind::Invalid, None, format!("{shown}: {detail}"));
    }

    /// Not supported, with the value shown as this struct.
    pub fn not_supported_as(&self, name: &str, supported: &[&str]) {
        let list: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let shown = shown(name, self.value());
        self.tell(ErrorKind::NotSupported, None, format!("{shown}: supported values: {}", list.join(", ")));
    }

    /// Must be what it was; told as this struct if not.
    pub fn immutable_as(&self, name: &str, old: &Value) {
        if !super::same(self.value(), old) {
            self.invalid_as(name, super::IMMUTABLE);
        }
    }
}

/// A value as the struct of this name, in one line.
pub fn shown(name: &str, value: &Value) -> String {
    let mut text = Writer { out: String::new(), indented: false, depth: 0 };
    text.strukt(name, value);
    text.out
}

/// The difference between two values of a struct, line by line.
pub fn difference(name: &str, old: &Value, new: &Value) -> String {
    let pretty = |value: &Value| {
        let mut text = Writer { out: String::new(), indented: true, depth: 0 };
        text.strukt(name, value);
        text.out
    };
    difference::unified(&pretty(old), &pretty(new))
}

struct Member {
    go: &'static str,
    json: String,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Number,
    Flag,
    Quantity,
    Pointer,
    PointerTo(&'static str),
    Struct(&'static str),
    ListOf(&'static str),
    Inline(&'static str),
}

static STRUCTS: LazyLock<HashMap<&'static str, Vec<Member>>> = LazyLock::new(|| {
    let lines = include_str!("go_form/structs.txt").lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.map(member).collect()))
        })
        .collect()
});

fn member(word: &'static str) -> Member {
    if let Some(inner) = word.strip_prefix('+') {
        return Member { go: "", json: String::new(), kind: Kind::Inline(inner) };
    }
    let end = word.find(['#', '?', '%', '*', '>', '[']).unwrap_or(word.len());
    let (name, suffix) = word.split_at(end);
    let kind = match suffix.chars().next() {
        None => Kind::Text,
        Some('#') => Kind::Number,
        Some('?') => Kind::Flag,
        Some('%') => Kind::Quantity,
        Some('>') => Kind::Struct(&suffix[1..]),
        Some('[') => Kind::ListOf(&suffix[2..]),
        Some(_) if suffix.len() == 1 => Kind::Pointer,
        Some(_) => Kind::PointerTo(&suffix[1..]),
    };
    match name.split_once('=') {
        Some((go, json)) => Member { go, json: json.to_owned(), kind },
        None => Member { go: name, json: json_name(name), kind },
    }
}

/// `DNSPolicy` is `dnsPolicy`: of several capitals at the start, the last begins a word.
fn json_name(go: &str) -> String {
    let capitals = go.bytes().take_while(u8::is_ascii_uppercase).count();
    let lower = if capitals == go.len() || capitals <= 1 { capitals } else { capitals - 1 };
    go[..lower].to_ascii_lowercase() + &go[lower..]
}

struct Writer {
    out: String,
    indented: bool,
    depth: usize,
}

impl Writer {
    fn strukt(&mut self, name: &str, value: &Value) {
        let members = self.members(name, value);
        self.block('{', '}', members, |writer, (go, kind, value)| {
            writer.key(&go);
            writer.member(kind, &value);
        });
    }

    /// The members of a struct with their values, those of inlined ones among them.
    fn members(&self, name: &str, value: &Value) -> Vec<(String, Kind, Value)> {
        if name == "ObjectMeta" {
            return with_own_names(&value["metadata"]);
        }
        let value = if name == "PodSpec" { &with_host_settings(value) } else { value };
        let mut all = Vec::new();
        for member in STRUCTS.get(name).into_iter().flatten() {
            match member.kind {
                Kind::Inline(inner) => all.extend(self.members(inner, value)),
                kind => all.push((member.go.to_owned(), kind, value[&member.json].clone())),
            }
        }
        all
    }

    fn member(&mut self, kind: Kind, value: &Value) {
        match kind {
            Kind::Text if value.is_null() => self.out.push_str("\"\""),
            Kind::Number if value.is_null() => self.out.push('0'),
            Kind::Flag if value.is_null() => self.out.push_str("false"),
            Kind::Quantity if value.is_null() => self.out.push_str("\"0\""),
            Kind::Struct(name) => self.strukt(name, value),
            Kind::PointerTo(name) if !value.is_null() => self.strukt(name, value),
            Kind::ListOf(name) if !value.is_null() => {
                let items = value.as_array().cloned().unwrap_or_default();
                self.block('[', ']', items, |writer, item| writer.strukt(name, &item));
            }
            _ => self.plain(value),
        }
    }

    /// A value as it is.
    fn plain(&mut self, value: &Value) {
        match value {
            Value::Array(items) => self.block('[', ']', items, |writer, item| writer.plain(item)),
            Value::Object(entries) => self.block('{', '}', entries, |writer, (key, value)| {
                writer.key(key);
                writer.plain(value);
            }),
            scalar => self.out.push_str(&json::to_string(scalar)),
        }
    }

    fn key(&mut self, name: &str) {
        self.out.push_str(&json::to_string(name));
        self.out.push_str(if self.indented { ": " } else { ":" });
    }

    fn block<T>(
        &mut self,
        open: char,
        close: char,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        self.out.push(open);
        self.depth += 1;
        let mut any = false;
        for item in items {
            if any {
                self.out.push(',');
            }
            any = true;
            self.new_line();
            write(self, item);
        }
        self.depth -= 1;
        if any {
            self.new_line();
        }
        self.out.push(close);
    }

    fn new_line(&mut self) {
        if self.indented {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', self.depth));
        }
    }
}

/// Fields of meta/v1 keep their own names.
fn with_own_names(object: &Value) -> Vec<(String, Kind, Value)> {
    let order = ["name", "generateName", "namespace", "labels", "annotations", "ownerReferences", "finalizers"];
    let set = order.iter().filter_map(|name| Some((*name, object.get(name)?)));
    set.map(|(name, value)| (name.to_owned(), Kind::Pointer, value.clone())).collect()
}

/// What a pod shares with its node is part of its security context there.
fn with_host_settings(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let settings = ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"];
    let found: Map<String, Value> =
        settings.iter().filter_map(|name| Some(((*name).to_owned(), spec.get(name)?.clone()))).collect();
    if let Some(context) = spec.get_mut("securityContext").and_then(Value::as_object_mut) {
        context.extend(found);
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_follow_go() {
        for (go, expected) in
            [("DNSPolicy", "dnsPolicy"), ("OS", "os"), ("HTTPGet", "httpGet"), ("HostIPC", "hostIPC"), ("Name", "name")]
        {
            assert_eq!(json_name(go), expected);
        }
    }

    #[test]
    fn every_struct_that_is_named_is_there() {
        for (name, members) in &*STRUCTS {
            for member in members {
                let (Kind::PointerTo(inner) | Kind::Struct(inner) | Kind::ListOf(inner) | Kind::Inline(inner)) =
                    member.kind
                else {
                    continue;
                };
                assert!(inner == "ObjectMeta" || STRUCTS.contains_key(inner), "{name}.{}: {inner}", member.go);
            }
        }
    }

    #[test]
    fn shows_structs_whole_and_what_differs() {
        let port = json!({"name": "http", "port": 80, "protocol": "TCP", "targetPort": "web"});
        assert_eq!(
            shown("ServicePort", &port),
            r#"{"Name":"http","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":"web","NodePort":0}"#
        );
        let (old, new) = (json!({"key": "a", "value": "b"}), json!({"key": "a", "value": "c", "effect": "NoExecute"}));
        assert_eq!(
            difference("Toleration", &old, &new),
            "@@ -1,7 +1,7 @@\n {\n  \"Key\": \"a\",\n  \"Operator\": \"\",\n- \"Value\": \"b\",\n- \"Effect\": \"\",\n\
             + \"Value\": \"c\",\n+ \"Effect\": \"NoExecute\",\n  \"TolerationSeconds\": null\n }\n"
        );
    }
}
