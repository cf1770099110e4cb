//! The table of types. Go's fields say what exists and how JSON writes it, the swagger how lists and maps merge, and the
//! protobuf messages how a field is numbered. Its format is described in `object_model::schema::table`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

use super::Error;

const META: &str = "k8s.io.apimachinery.pkg.apis.meta.v1";
const APIEXTENSIONS: &str = "k8s.io.apiextensions-apiserver.pkg.apis.apiextensions.v1";

/// Types whose JSON is not that of their Go struct, and the word for each in the table.
const SPECIAL: [(&str, &str, &str); 12] = [
    ("k8s.io.apimachinery.pkg.api.resource", "Quantity", "quantity"),
    (META, "Time", "time"),
    (META, "MicroTime", "microtime"),
    (META, "Duration", "duration"),
    (META, "FieldsV1", "fields"),
    ("k8s.io.apimachinery.pkg.util.intstr", "IntOrString", "intstr"),
    ("k8s.io.apimachinery.pkg.runtime", "RawExtension", "raw"),
    (APIEXTENSIONS, "JSON", "json"),
    (APIEXTENSIONS, "JSONSchemaPropsOrBool", "schema-or-bool"),
    (APIEXTENSIONS, "JSONSchemaPropsOrArray", "schema-or-list"),
    (APIEXTENSIONS, "JSONSchemaPropsOrStringArray", "schema-or-strings"),
    ("ast", "InterfaceType", "any"),
];

/// Types declared as another struct, which the facts about Go fields leave out.
const SAME_AS: [(&str, &str); 3] = [
    ("k8s.io.api.admissionregistration.v1alpha1.MatchCondition", "k8s.io.api.admissionregistration.v1.MatchCondition"),
    ("k8s.io.api.core.v1.List", "k8s.io.apimachinery.pkg.apis.meta.v1.List"),
    (
        "k8s.io.apimachinery.pkg.apis.meta.v1beta1.PartialObjectMetadataList",
        "k8s.io.apimachinery.pkg.apis.meta.v1.PartialObjectMetadataList",
    ),
];

/// Structs without fields, which the facts about Go fields leave out.
const EMPTY: [&str; 3] = [
    "k8s.io.api.apiserverinternal.v1alpha1.StorageVersionSpec",
    "k8s.io.api.scheduling.v1alpha2.BasicSchedulingPolicy",
    "k8s.io.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceSubresourceStatus",
];

/// Named texts of a package without further types.
const NAMED_TEXTS: [&str; 2] = ["k8s.io.apimachinery.pkg.types.NodeName", "k8s.io.apimachinery.pkg.types.UID"];

/// The groups whose name is not that of their package.
const GROUPS: [(&str, &str); 23] = [
    ("admission", "admission.k8s.io"),
    ("admissionregistration", "admissionregistration.k8s.io"),
    ("apidiscovery", "apidiscovery.k8s.io"),
    ("apiextensions", "apiextensions.k8s.io"),
    ("apiregistration", "apiregistration.k8s.io"),
    ("apiserverinternal", "internal.apiserver.k8s.io"),
    ("authentication", "authentication.k8s.io"),
    ("authorization", "authorization.k8s.io"),
    ("certificates", "certificates.k8s.io"),
    ("coordination", "coordination.k8s.io"),
    ("core", ""),
    ("discovery", "discovery.k8s.io"),
    ("events", "events.k8s.io"),
    ("flowcontrol", "flowcontrol.apiserver.k8s.io"),
    ("imagepolicy", "imagepolicy.k8s.io"),
    ("meta", "meta.k8s.io"),
    ("networking", "networking.k8s.io"),
    ("node", "node.k8s.io"),
    ("rbac", "rbac.authorization.k8s.io"),
    ("resource", "resource.k8s.io"),
    ("scheduling", "scheduling.k8s.io"),
    ("storage", "storage.k8s.io"),
    ("storagemigration", "storagemigration.k8s.io"),
];

struct Facts {
    /// By full Go name, fields in the order of declaration, or the underlying type of a named one.
    go: BTreeMap<String, Value>,
    swagger: Value,
    protobuf: BTreeMap<String, Vec<Value>>,
}

pub fn generate(folder: &Path) -> Result<String, Error> {
    let read = |name: &str| std::fs::read(folder.join(format!("{name}-v1.36.4.json")));
    let mut swagger: Value = serde_json::from_slice(&read("swagger")?)?;
    let mut facts = Facts {
        go: serde_json::from_slice(&read("fields")?)?,
        swagger: swagger["definitions"].take(),
        protobuf: serde_json::from_slice(&read("protobuf")?)?,
    };
    for (name, original) in SAME_AS {
        let fields = facts.go.get(original).cloned().ok_or_else(|| format!("no {original}"))?;
        facts.go.insert(name.to_owned(), fields);
    }
    facts.go.extend(EMPTY.map(|name| (name.to_owned(), Value::Array(Vec::new()))));
    facts.go.extend(NAMED_TEXTS.map(|name| (name.to_owned(), Value::from("string"))));
    facts.go.retain(|name, fields| is_wanted(name, fields));

    let mut out = String::new();
    let packages: BTreeSet<&str> = facts.go.keys().map(|name| split(name).0).collect();
    for package in packages {
        facts.write_package(&mut out, package)?;
    }
    Ok(out)
}

fn is_wanted(name: &str, fields: &Value) -> bool {
    let (package, short) = split(name);
    let inner = ["testing", "versioning", "unstructured", "helper", "runtime.schema", "pkg.api.resource", "intstr"];
    let special = SPECIAL.iter().any(|(p, n, _)| *p == package && *n == short);
    let of_go_only = fields.as_str().is_some_and(|go| go.contains("ast.") || go.contains("*") || go == "int");
    let runtime_only = package.ends_with(".runtime") && short != "TypeMeta";
    !(special || of_go_only || runtime_only || inner.iter().any(|p| package.contains(p)))
}

/// The package and the short name of a full name.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('.').unwrap_or(("", name))
}

/// What the table calls a package: `core.v1`, `meta.v1`, `types`.
fn short_package(package: &str) -> &str {
    match package {
        _ if package.starts_with("k8s.io.api.") => &package["k8s.io.api.".len()..],
        _ => {
            let marker = ".pkg.apis.";
            let rest = package.find(marker).map(|at| &package[at + marker.len()..]);
            rest.unwrap_or_else(|| split(package).1)
        }
    }
}

/// The swagger's name of a Go package or type.
fn definition(name: &str) -> String {
    format!("io.k8s.{}", &name["k8s.io.".len()..])
}

impl Facts {
    fn write_package(&self, out: &mut String, package: &str) -> Result<(), Error> {
        let short = short_package(package);
        let version = match short.split_once('.') {
            Some((name, version)) => {
                let group = GROUPS.iter().find(|(p, _)| *p == name).map_or(name, |(_, group)| group);
                format!("{}/{version}", if group.is_empty() { "-" } else { group })
            }
            None => "-".to_owned(),
        };
        writeln!(out, "package {short} {} {version}", definition(package))?;
        for (name, fields) in self.go.iter().filter(|(name, _)| split(name).0 == package) {
            match fields {
                Value::String(go) => self.write_named(out, name, go)?,
                Value::Array(fields) => self.write_struct(out, name, fields)?,
                _ => return Err(format!("{name}: neither fields nor a type").into()),
            }
        }
        Ok(())
    }

    fn write_named(&self, out: &mut String, name: &str, go: &str) -> Result<(), Error> {
        let (package, short) = split(name);
        let message = if self.protobuf.contains_key(name) { " message" } else { "" };
        writeln!(out, "= {short} {}{message}", self.type_name(package, go, None)?)?;
        Ok(())
    }

    fn write_struct(&self, out: &mut String, name: &str, fields: &[Value]) -> Result<(), Error> {
        let (package, short) = split(name);
        let definition = self.definition(name);
        write!(out, ": {short}")?;
        if fields.iter().any(|f| is_inline(f) && split(go_type(f)).1 == "TypeMeta") {
            out.push_str(" kind");
        }
        if definition["x-kubernetes-map-type"] == "atomic" {
            out.push_str(" atomic");
        }
        out.push('\n');
        for field in fields {
            let message = self.protobuf.get(&name.replace('-', "_")).map(Vec::as_slice);
            let line = match is_inline(field) {
                true => self.embedded(package, field, message)?,
                false => self.field(package, field, message, definition)?,
            };
            writeln!(out, " {line}").map_err(|e| format!("{name}: {e}"))?;
        }
        Ok(())
    }

    /// What the swagger says of a struct. It does not name those that are only embedded, but shows their fields in the
    /// outer ones.
    fn definition(&self, name: &str) -> &Value {
        match self.swagger.get(definition(name)) {
            Some(found) => found,
            None => {
                let (package, short) = split(name);
                let embeds = |fields: &Value| {
                    fields.as_array().is_some_and(|f| f.iter().any(|f| is_inline(f) && go_type(f) == short))
                };
                let mut outer = self.go.iter().filter(|(name, fields)| split(name).0 == package && embeds(fields));
                outer.find_map(|(name, _)| self.swagger.get(definition(name))).unwrap_or(&Value::Null)
            }
        }
    }

    /// `+ <type> <number>` for a struct whose fields appear among the outer ones in JSON.
    fn embedded(&self, package: &str, field: &Value, message: Option<&[Value]>) -> Result<String, Error> {
        let go = go_type(field);
        let short = split(go).1;
        let wire = message.unwrap_or_default().iter().find(|m| split(text(&m["type"])).1 == short);
        let number = wire.map_or(0, |m| m["number"].as_u64().unwrap_or(0));
        Ok(format!("+ {} {number}", self.type_name(package, go, wire.map(|m| text(&m["type"])))?))
    }

    /// `<name> <number> <type> <flags>`.
    fn field(
        &self,
        package: &str,
        field: &Value,
        message: Option<&[Value]>,
        definition: &Value,
    ) -> Result<String, Error> {
        let name = text(&field["json"]);
        let wire = message.and_then(|m| m.iter().find(|m| same_name(text(&m["name"]), name)));
        let go = go_type(field);
        if let (Some(_), None) = (message, wire) {
            return Err(format!("{name} of {go}: no number").into());
        }
        let number = wire.map_or(0, |m| m["number"].as_u64().unwrap_or(0));
        let r#type = self.type_name(package, go, wire.map(|m| text(&m["type"])))?;
        let mut line = format!("{name} {number} {type}");
        let set = |flag: &str| field[flag] == true;
        match (set("omitzero"), set("omitempty")) {
            (true, _) => line.push_str(" omitzero"),
            (false, true) => line.push_str(" omitempty"),
            (false, false) => {}
        }
        let required = match definition["properties"].get(name) {
            Some(_) => definition["required"].as_array().is_some_and(|r| r.iter().any(|r| r == name)),
            None => !set("optional") && !set("omitempty"),
        };
        if required {
            line.push_str(" required");
        }
        write_merging(&mut line, &definition["properties"][name])?;
        if let Some(default) = field["default"].as_str() {
            write!(line, " default={}", default_value(default)?)?;
        }
        Ok(line)
    }

    /// A Go type as the table writes it: specials by their word, other packages' types with the package before them.
    fn type_name(&self, package: &str, go: &str, wire: Option<&str>) -> Result<String, Error> {
        if let Some(rest) = go.strip_prefix('*') {
            return Ok(format!("*{}", self.type_name(package, rest, wire)?));
        }
        if go == "[]byte" {
            return Ok("bytes".to_owned());
        }
        if let Some(rest) = go.strip_prefix("[]") {
            let item = self.type_name(package, rest, wire)?;
            // the parser of Go source wrote `[]interface{}` as a pointer to its own node
            return Ok(format!("[]{}", item.strip_prefix('*').filter(|i| *i == "any").unwrap_or(&item)));
        }
        if let Some((key, value)) = go.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            let wire = wire.and_then(|w| w.strip_prefix("map<string,")).and_then(|w| w.strip_suffix('>'));
            return Ok(format!(
                "map[{}]{}",
                self.type_name(package, key, None)?,
                self.type_name(package, value, wire)?
            ));
        }
        if ["string", "bool", "int32", "int64", "float64"].contains(&go) {
            return Ok(go.to_owned());
        }
        let (target, short) = self.resolve(package, go, wire)?;
        if let Some((.., word)) = SPECIAL.iter().find(|(p, n, _)| *p == target && *n == short) {
            return Ok((*word).to_owned());
        }
        match target == package {
            true => Ok(short),
            false => Ok(format!("{}.{short}", short_package(&target))),
        }
    }

    /// The package and name of a named Go type. Source files give packages local names, so where protobuf knows the
    /// message it decides, and otherwise the first likely package that has such a type.
    fn resolve(&self, package: &str, go: &str, wire: Option<&str>) -> Result<(String, String), Error> {
        let (local, short) = split(go);
        let known = |p: &str| {
            self.go.contains_key(&format!("{p}.{short}")) || SPECIAL.iter().any(|(q, n, _)| *q == p && *n == short)
        };
        let message = wire.and_then(|w| w.strip_prefix('.')).map(|w| w.replace('_', "-"));
        let candidates: Vec<String> = match local {
            // its own, or one that version 1 or the common metadata lend to the package
            "" => vec![package.to_owned(), format!("{}.v1", split(package).0), META.to_owned()],
            "metav1" => vec![META.to_owned()],
            "resource" => vec!["k8s.io.apimachinery.pkg.api.resource".to_owned()],
            "intstr" => vec!["k8s.io.apimachinery.pkg.util.intstr".to_owned()],
            "runtime" | "types" => vec![format!("k8s.io.apimachinery.pkg.{local}")],
            "apiv1" => vec!["k8s.io.api.core.v1".to_owned()],
            "v1" => match &message {
                Some(message) => vec![split(message).0.to_owned()],
                None => ["core", "coordination", "authentication"]
                    .iter()
                    .map(|p| format!("k8s.io.api.{p}.v1"))
                    .chain([META.to_owned()])
                    .collect(),
            },
            "ast" => vec!["ast".to_owned()],
            _ => vec![format!("k8s.io.api.{}.v1", local.strip_suffix("v1").unwrap_or(local))],
        };
        let found = candidates.iter().find(|p| known(p));
        let found = found.ok_or_else(|| format!("{package}: cannot find {go}, message {message:?}"))?;
        Ok((found.clone(), short.to_owned()))
    }
}

fn is_inline(field: &Value) -> bool {
    field["inline"] == true && field["json"] == ""
}

fn go_type(field: &Value) -> &str {
    text(&field["go"])
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Is a protobuf field the one of a JSON name? (`Webhooks` is `webhooks`, `xKubernetesListType` is
/// `x-kubernetes-list-type`, `ref` is `$ref`.)
fn same_name(wire: &str, json: &str) -> bool {
    wire.eq_ignore_ascii_case(&json.replace(['-', '$'], ""))
}

/// How server-side apply and strategic merge patches merge the field.
fn write_merging(line: &mut String, property: &Value) -> Result<(), Error> {
    match text(&property["x-kubernetes-list-type"]) {
        "map" => {
            let keys = property["x-kubernetes-list-map-keys"].as_array().ok_or("a map list without keys")?;
            let keys: Vec<&str> = keys.iter().map(text).collect();
            write!(line, " list=map:{}", keys.join(","))?;
        }
        "set" => line.push_str(" list=set"),
        _ => {}
    }
    match text(&property["x-kubernetes-map-type"]) {
        "" => {}
        kind => write!(line, " map={kind}")?,
    }
    match text(&property["x-kubernetes-patch-strategy"]) {
        "" => {}
        strategy => write!(line, " patch={strategy}")?,
    }
    match text(&property["x-kubernetes-patch-merge-key"]) {
        "" => {}
        key => write!(line, " key={key}")?,
    }
    Ok(())
}

/// A declared default as JSON; two of them refer to Go constants.
fn default_value(default: &str) -> Result<String, Error> {
    let json = match default {
        "ref(AzureDataDiskCachingReadWrite)" => "\"ReadWrite\"",
        "ref(AzureSharedBlobDisk)" => "\"Shared\"",
        json => json,
    };
    Ok(serde_json::from_str::<Value>(json)?.to_string())
}
