//! What a definition says, in its inner form.

use std::collections::HashSet;

use object_model::names;
use object_model::schema::custom;
use serde_json::Value;

use crate::schemas;
use crate::validation::{Field, go_form, pem, webhooks};

const MAX_SELECTABLE_FIELDS: usize = 8;
const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] = &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
const REVIEW_VERSIONS: &[&str] = &["v1", "v1beta1"];

/// The specification; `old` is that of the stored definition as it was written.
pub fn spec(spec: &Field, old: &Value, established: bool) {
    group(&spec.at("group"));
    spec.at("scope").required_one_of(&["Cluster", "Namespaced"]);
    let versions = spec.at("versions");
    if !spec.at("validation").at("openAPIV3Schema").is_set() {
        for version in versions.each() {
            let schema = version.at("schema");
            if !schema.at("openAPIV3Schema").is_set() {
                schema.at("openAPIV3Schema").missing("");
            }
        }
    }
    for item in versions.each() {
        let label = item.at("name");
        joined(&label, names::dns1035_label(label.text()));
        version(&item, spec, old);
    }
    which_is_stored(&versions);
    if let Some(first) = versions.value().get(0).filter(|first| first["name"].as_str().is_some_and(|n| !n.is_empty())) {
        let version = spec.at("version");
        let first = first["name"].as_str().unwrap_or_default();
        let wrong = names::dns1035_label(first);
        if !wrong.is_empty() {
            version.invalid_value(first, wrong.join(","));
        }
    }
    let parts = spec.at("names");
    for name in ["plural", "singular", "kind", "listKind"] {
        parts.at(name).required();
    }
    names(&parts);
    let has_status = |owner: &Field| owner.at("subresources").at("status").is_set();
    schema(&spec.at("validation"), has_status(spec) || versions.each().any(|version| has_status(&version)));
    subresources(&spec.at("subresources"));
    spec.at("additionalPrinterColumns").each().for_each(|item| column(&item));
    selectable_fields(
        &spec.at("selectableFields"),
        &spec.at("validation"),
        "may only be set when validations.schema is included",
        old,
    );
    let conversion = spec.at("conversion");
    if !conversion.at("strategy").is("None") && spec.at("preserveUnknownFields").is_true() {
        conversion.at("strategy").invalid("must be None if spec.preserveUnknownFields is true");
    }
    self::conversion(&conversion, old, established);
}

/// Invalid for all these reasons at once.
fn joined(field: &Field, wrong: Vec<String>) {
    if !wrong.is_empty() {
        field.with_text().invalid(wrong.join(","));
    }
}

fn group(group: &Field) {
    if !group.required() {
        return;
    }
    let wrong = names::dns_subdomain(group.text());
    if wrong.is_empty() && !group.text().contains('.') {
        group.invalid("should be a domain with at least one dot");
    }
    joined(group, wrong);
}

fn which_is_stored(versions: &Field) {
    let shown = |detail: &str| {
        let list = versions.value().as_array().map(|list| {
            let items: Vec<String> = list.iter().map(|item| go_form::shown("DefinitionVersion", item)).collect();
            format!("[{}]", items.join(","))
        });
        let shown = list.unwrap_or_else(|| "null".to_owned());
        versions.tell(object_model::field::ErrorKind::Invalid, None, format!("{shown}: {detail}"));
    };
    let labels: HashSet<&str> = versions.each().map(|version| version.at("name").text()).collect();
    if labels.len() < versions.len() {
        shown("must contain unique version names");
    }
    if versions.each().filter(|version| version.at("storage").is_true()).count() != 1 {
        shown("must have exactly one version marked as storage version");
    }
}

fn version(version: &Field, spec: &Field, old: &Value) {
    deprecation(version);
    let own = version.at("subresources").is_set() || !spec.at("subresources").is_set();
    let with_subresources = if own { version } else { spec };
    schema(&version.at("schema"), with_subresources.at("subresources").at("status").is_set());
    subresources(&version.at("subresources"));
    version.at("additionalPrinterColumns").each().for_each(|item| column(&item));
    let without = "may only be set when `version.schema.openAPIV3Schema` is not included";
    selectable_fields(&version.at("selectableFields"), &version.at("schema"), without, old);
}

fn deprecation(version: &Field) {
    let warning = version.at("deprecationWarning");
    if !warning.is_set() {
        return;
    }
    if !version.at("deprecated").is_true() {
        return warning.invalid("can only be set for deprecated versions");
    }
    if warning.text().len() > 256 {
        warning.invalid("must be <= 256 characters long");
    }
    if warning.is_empty() {
        warning.invalid("must not be an empty string");
    }
    let unprintable = |c: char| c.is_control() || (c.is_whitespace() && c != ' ');
    if let Some(index) = warning.text().find(unprintable) {
        warning.invalid(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {index}"
        ));
    }
}

/// The names of a kind, wanted or accepted.
pub fn names(parts: &Field) {
    let if_any = |field: &Field, text: &str, prefix: &str| {
        let wrong = names::dns1035_label(text);
        if !text.is_empty() && !wrong.is_empty() {
            field.invalid(format!("{prefix}{}", wrong.join(",")));
        }
    };
    for name in ["plural", "singular"] {
        if_any(&parts.at(name), parts.at(name).text(), "");
    }
    for name in ["kind", "listKind"] {
        let mixed = "may have mixed case, but should otherwise match: ";
        if_any(&parts.at(name), &parts.at(name).text().to_lowercase(), mixed);
    }
    let each = |list: &str| {
        parts.at(list).each().for_each(|name| joined(&name, names::dns1035_label(name.text())));
    };
    each("shortNames");
    let (kind, list) = (parts.at("kind"), parts.at("listKind"));
    if !kind.is_empty() && list.is(kind.text()) {
        list.invalid("kind and listKind may not be the same");
    }
    each("categories");
}

fn schema(validation: &Field, status: bool) {
    let schema = validation.at("openAPIV3Schema");
    let Some(metadata) = schemas::definition("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta") else { return };
    if schema.is_set()
        && let Err(problems) = custom::parse(schema.value(), metadata.root(), schema.path(), custom::Options { status })
    {
        problems.into_iter().for_each(|problem| schema.push(problem));
    }
}

fn subresources(subresources: &Field) {
    let scale = subresources.at("scale");
    if !scale.is_set() {
        return;
    }
    for (name, prefixes, detail) in [
        ("specReplicasPath", &[".spec."][..], "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."], "should be a json path under .status"),
        ("labelSelectorPath", &[".spec.", ".status."], "should be a json path under either .spec or .status"),
    ] {
        let path = scale.at(name);
        if name == "labelSelectorPath" && path.is_empty() {
            continue;
        }
        if path.required() && json_path(&path) && !prefixes.iter().any(|prefix| path.text().starts_with(prefix)) {
            path.invalid(detail);
        }
    }
}

/// A path of names with dots. True if it is one.
fn json_path(path: &Field) -> bool {
    let fits = path.text().starts_with('.');
    if !fits {
        path.invalid("must be a simple json path starting with .");
    }
    fits
}

fn column(column: &Field) {
    column.at("name").required();
    let (kind, format, path) = (column.at("type"), column.at("format"), column.at("JSONPath"));
    let types = format!("must be one of {}", COLUMN_TYPES.join(","));
    if kind.is_empty() {
        kind.missing(types);
    } else if !kind.is_one_of(COLUMN_TYPES) {
        kind.invalid(types);
    }
    if !format.is_empty() && !format.is_one_of(COLUMN_FORMATS) {
        format.invalid(format!("must be one of {}", COLUMN_FORMATS.join(",")));
    }
    if path.required() {
        json_path(&path);
    }
}

fn selectable_fields(fields: &Field, validation: &Field, without_schema: &str, old: &Value) {
    if fields.is_empty() {
        return;
    }
    let schema = validation.at("openAPIV3Schema");
    if !schema.is_set() {
        return fields.invalid_value("", without_schema);
    }
    let mut seen: HashSet<Vec<&str>> = HashSet::new();
    for field in fields.each() {
        let path = field.at("jsonPath");
        if !path.required() {
            continue;
        }
        let (steps, found) = match follow(path.text(), schema.value()) {
            Ok(found) => found,
            Err(problem) => {
                path.invalid(format!("is an invalid path: {problem}"));
                continue;
            }
        };
        if steps.first() == Some(&"metadata") {
            path.invalid("must not point to fields in metadata");
        }
        if !["string", "boolean", "integer"].iter().any(|kind| found["type"] == *kind) {
            path.invalid(
                "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                 formats are allowed.",
            );
        }
        if seen.contains(&steps) {
            path.duplicate();
        } else {
            seen.insert(steps);
        }
    }
    let had_these =
        old["versions"].as_array().into_iter().flatten().any(|was| was["selectableFields"] == *fields.value());
    if seen.len() > MAX_SELECTABLE_FIELDS && !had_these {
        fields.too_many(MAX_SELECTABLE_FIELDS);
    }
}

/// Follows `.a.b` through a schema: the steps, and the schema there.
fn follow<'a>(path: &'a str, schema: &'a Value) -> Result<(Vec<&'a str>, &'a Value), String> {
    if path.contains(['[', ']']) {
        return Err("array notation is not allowed".to_owned());
    }
    let Some(rest) = path.strip_prefix('.') else {
        let first = path.split('.').next().unwrap_or(path);
        return Err(format!("expected [ or . but got: {first}"));
    };
    let (mut at, mut steps) = (schema, Vec::new());
    for step in rest.split('.') {
        at = match (&at["properties"], &at["additionalProperties"]) {
            _ if step.is_empty() => return Err("unexpected end of JSON path".to_owned()),
            (Value::Object(properties), _) => properties.get(step).ok_or("does not refer to a valid field")?,
            (_, inner @ Value::Object(_)) => inner,
            _ => return Err("does not refer to a valid field".to_owned()),
        };
        steps.push(step);
    }
    Ok((steps, at))
}

fn conversion(conversion: &Field, old: &Value, established: bool) {
    let (strategy, config) = (conversion.at("strategy"), conversion.at("webhookClientConfig"));
    let versions = conversion.at("conversionReviewVersions");
    strategy.required_one_of(&["None", "Webhook"]);
    if !strategy.is("Webhook") {
        const ONLY_WEBHOOK: &str = "should not be set when strategy is not set to Webhook";
        if config.is_set() {
            config.forbidden(ONLY_WEBHOOK);
        }
        if !versions.is_empty() {
            versions.forbidden(ONLY_WEBHOOK);
        }
        return;
    }
    let before = &old["conversion"]["webhook"];
    if config.is_set() {
        webhooks::client_config(&config);
        let (bundle, was) = (config.at("caBundle"), before["clientConfig"]["caBundle"].as_str().unwrap_or_default());
        let tolerated = !established || (!was.is_empty() && !pem::has_certificates(was));
        if !bundle.is_empty() && !tolerated && !pem::has_certificates(bundle.text()) {
            bundle.invalid("unable to load root certificates: unable to parse bytes as PEM block");
        }
    } else {
        config.missing("required when strategy is set to Webhook");
    }
    let was = before["conversionReviewVersions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let recognized = was.is_empty() || was.iter().any(|v| REVIEW_VERSIONS.iter().any(|known| v == known));
    match versions.is_empty() {
        true => versions.missing(""),
        false => webhooks::review_versions(&versions, REVIEW_VERSIONS, !recognized),
    }
}
