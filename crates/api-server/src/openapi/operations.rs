//! What can be done with each resource: a path for its collection, its objects and each subresource, with an operation
//! for every verb.

use serde_json::{Map, Value, json};

use super::{
    Dialect,
    parameters::{self, DELETE, LIST, PATCH, Parameter, WRITE},
    schemas::{Definitions, gvk},
};
use crate::catalogue::{Resource, Subresource, Version};

const MEDIA: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const WATCH_MEDIA: [&str; 2] = ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];
const PATCH_MEDIA: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
const METHODS_OF_PROXY: [&str; 7] = ["delete", "get", "head", "options", "patch", "post", "put"];

pub struct Operations<'a> {
    definitions: Definitions<'a>,
    paths: Map<String, Value>,
}

/// Where a resource is, for names and paths.
struct Place {
    /// `/apis/apps/v1`
    base: String,
    /// `AppsV1`
    id: String,
    /// `apps_v1`
    tag: String,
    group: String,
    version: String,
}

struct Operation<'o> {
    method: &'o str,
    id: String,
    description: String,
    action: &'o str,
    kind: Value,
    parameters: Vec<Parameter>,
    /// What is sent, and as what.
    body: Option<(Value, &'o [&'o str])>,
    codes: &'o [u16],
    /// What comes back, and as what.
    answer: Value,
    produces: Vec<&'o str>,
}

impl<'a> Operations<'a> {
    pub fn new(definitions: Definitions<'a>) -> Self {
        Self { definitions, paths: Map::new() }
    }

    /// Paths and definitions.
    pub fn finish(self) -> (Map<String, Value>, Map<String, Value>) {
        (self.paths, self.definitions.finish())
    }

    /// Everything in one version of a group.
    pub fn add(&mut self, group: &str, version: &Version) {
        let place = Place::of(group, &version.name);
        self.discovery(&place);
        for resource in version.resources.values() {
            self.collection(&place, resource);
            self.objects(&place, resource);
            self.watches(&place, resource);
            for subresource in &resource.subresources {
                self.subresource(&place, resource, subresource);
            }
        }
    }

    fn discovery(&mut self, place: &Place) {
        let answer = self.definitions.meta("APIResourceList");
        let operation = Operation {
            method: "get",
            id: format!("get{}APIResources", place.id),
            description: "get available resources".to_owned(),
            action: "",
            kind: Value::Null,
            parameters: Vec::new(),
            body: None,
            codes: &[200],
            answer,
            produces: MEDIA.to_vec(),
        };
        self.enter(place, &format!("{}/", place.base), operation);
    }

    fn collection(&mut self, place: &Place, resource: &Resource) {
        let (path, scope) = (place.collection(resource), scope(resource));
        let (id, kind) = (&place.id, &resource.kind);
        let own = gvk(&place.group, &place.version, kind);
        let produces: Vec<&str> = MEDIA.into_iter().chain(WATCH_MEDIA).collect();
        if resource.has_verb("list") {
            let list = |id, answer| Operation {
                method: "get",
                id,
                description: format!("list or watch objects of kind {kind}"),
                action: "list",
                kind: own.clone(),
                parameters: LIST.to_vec(),
                body: None,
                codes: &[200],
                answer,
                produces: produces.clone(),
            };
            let answer = self.definitions.list(resource);
            self.enter(place, &path, list(format!("list{id}{scope}{kind}"), answer.clone()));
            if resource.namespaced {
                let everywhere = format!("{}/{}", place.base, resource.plural);
                self.enter(place, &everywhere, list(format!("list{id}{kind}ForAllNamespaces"), answer));
            }
        }
        if resource.has_verb("create") {
            let object = self.definitions.object(resource);
            let create = writing(
                "post",
                "post",
                format!("create{id}{scope}{kind}"),
                format!("create a {kind}"),
                own.clone(),
                object,
            );
            self.enter(place, &path, create);
        }
        if resource.has_verb("deletecollection") {
            let id = format!("delete{id}Collection{scope}{kind}");
            let mut delete = self.deleting("deletecollection", id, format!("delete collection of {kind}"), own);
            delete.codes = &[200];
            let lists = LIST.into_iter().filter(|(name, _)| !matches!(*name, "watch" | "allowWatchBookmarks"));
            delete.parameters.extend(lists);
            self.enter(place, &path, delete);
        }
    }

    fn objects(&mut self, place: &Place, resource: &Resource) {
        let path = format!("{}/{{name}}", place.collection(resource));
        let (scope, id, kind) = (scope(resource), &place.id, &resource.kind);
        let own = gvk(&place.group, &place.version, kind);
        let name = format!("{scope}{kind}");
        let object = self.definitions.object(resource);
        for verb in &resource.verbs {
            let own = own.clone();
            let operation = match &**verb {
                "get" => reading(format!("read{id}{name}"), format!("read the specified {kind}"), own, object.clone()),
                "update" => {
                    let description = format!("replace the specified {kind}");
                    writing("put", "put", format!("replace{id}{name}"), description, own, object.clone())
                }
                "patch" => {
                    let description = format!("partially update the specified {kind}");
                    self.patching(format!("patch{id}{name}"), description, own, object.clone())
                }
                "delete" => {
                    let delete = self.deleting("delete", format!("delete{id}{name}"), format!("delete a {kind}"), own);
                    // Kubernetes' documents do not say that the deletion of a Namespace answers with it.
                    let with_object = resource.strategy.returns_deleted && &**kind != "Namespace";
                    let answer = if with_object { object.clone() } else { delete.answer };
                    Operation { answer, ..delete }
                }
                _ => continue,
            };
            self.enter(place, &path, operation);
        }
    }

    /// The paths of old, which still work.
    fn watches(&mut self, place: &Place, resource: &Resource) {
        if !resource.has_verb("watch") {
            return;
        }
        let (scope, id, kind) = (scope(resource), &place.id, &resource.kind);
        let watched = place.collection(resource).replacen(&place.base, &format!("{}/watch", place.base), 1);
        let everywhere = format!("{}/watch/{}", place.base, resource.plural);
        let mut paths = vec![
            (watched.clone(), "watchlist", format!("watch{id}{scope}{kind}List")),
            (format!("{watched}/{{name}}"), "watch", format!("watch{id}{scope}{kind}")),
        ];
        if resource.namespaced {
            paths.push((everywhere, "watchlist", format!("watch{id}{kind}ListForAllNamespaces")));
        }
        for (path, action, id) in paths {
            let answer = self.definitions.meta("WatchEvent");
            let operation = Operation {
                method: "get",
                id,
                description: format!(
                    "watch changes to {kind}. deprecated: use the 'watch' parameter with a list operation"
                ),
                action,
                kind: gvk(&place.group, &place.version, kind),
                parameters: LIST.to_vec(),
                body: None,
                codes: &[200],
                answer,
                produces: MEDIA.into_iter().chain(WATCH_MEDIA).collect(),
            };
            self.enter(place, &path, operation);
        }
    }

    fn subresource(&mut self, place: &Place, resource: &Resource, sub: &Subresource) {
        let path = format!("{}/{{name}}/{}", place.collection(resource), sub.name);
        if matches!(&*sub.name, "exec" | "attach" | "portforward" | "proxy" | "log") {
            return self.stream(place, resource, sub, &path);
        }
        let (id, name) = (&place.id, format!("{}{}{}", scope(resource), resource.kind, capital(&sub.name)));
        let body = if *sub.kind == *resource.kind {
            self.definitions.object(resource)
        } else {
            self.definitions.kind(&sub.group, &sub.version, &sub.kind)
        };
        let of = format!("{} of the specified {}", sub.name, resource.kind);
        for verb in &sub.verbs {
            let (own, body) = (gvk(&sub.group, &sub.version, &sub.kind), body.clone());
            let operation = match &**verb {
                "get" => reading(format!("read{id}{name}"), format!("read {of}"), own, body),
                "update" => writing("put", "put", format!("replace{id}{name}"), format!("replace {of}"), own, body),
                "patch" => self.patching(format!("patch{id}{name}"), format!("partially update {of}"), own, body),
                "create" => {
                    let description = format!("create {} of a {}", sub.name, resource.kind);
                    writing("post", "post", format!("create{id}{name}"), description, own, body)
                }
                _ => continue,
            };
            self.enter(place, &path, operation);
        }
    }

    /// Subresources that carry no objects.
    fn stream(&mut self, place: &Place, resource: &Resource, sub: &Subresource, path: &str) {
        let name = format!("{}{}{}", scope(resource), resource.kind, capital(&sub.name));
        let is_log = &*sub.name == "log";
        let methods: &[&str] = match &*sub.name {
            "log" => &["get"],
            "proxy" => &METHODS_OF_PROXY,
            _ => &["get", "post"],
        };
        let mut paths = vec![(path.to_owned(), "")];
        if &*sub.name == "proxy" {
            paths.push((format!("{path}/{{path}}"), "WithPath"));
        }
        for (path, suffix) in &paths {
            for method in methods {
                let (id, description) = if is_log {
                    (format!("read{}{name}", place.id), format!("read log of the specified {}", resource.kind))
                } else {
                    let id = format!("connect{}{}{name}{suffix}", place.id, capital(method));
                    let requests = method.to_uppercase();
                    (id, format!("connect {requests} requests to {} of {}", sub.name, resource.kind))
                };
                let operation = Operation {
                    method,
                    id,
                    description,
                    action: if is_log { "get" } else { "connect" },
                    kind: gvk(&sub.group, &sub.version, &sub.kind),
                    parameters: parameters::of_stream(&sub.name).to_vec(),
                    body: None,
                    codes: &[200],
                    answer: json!({"type": "string"}),
                    produces: if is_log { vec!["text/plain", "application/json"] } else { vec!["*/*"] },
                };
                self.enter(place, path, operation);
            }
        }
    }

    fn patching(&mut self, id: String, description: String, kind: Value, answer: Value) -> Operation<'static> {
        let patch = self.definitions.meta("Patch");
        Operation {
            parameters: PATCH.to_vec(),
            body: Some((patch, &PATCH_MEDIA)),
            ..writing("patch", "patch", id, description, kind, answer)
        }
    }

    fn deleting(&mut self, action: &'static str, id: String, description: String, kind: Value) -> Operation<'static> {
        let (options, answer) = (self.definitions.meta("DeleteOptions"), self.definitions.meta("Status"));
        Operation {
            method: "delete",
            id,
            description,
            action,
            kind,
            parameters: DELETE.to_vec(),
            body: Some((options, &MEDIA)),
            codes: &[200, 202],
            answer,
            produces: MEDIA.to_vec(),
        }
    }

    /// Enters an operation at a path, whose own parameters are those in braces.
    fn enter(&mut self, place: &Place, path: &str, operation: Operation<'_>) {
        let dialect = self.definitions.dialect;
        let method = operation.method.to_owned();
        let item = self.paths.entry(path).or_insert_with(|| {
            let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
            let mut parameters: Vec<Value> = names.map(|name| parameters::path(dialect, name)).collect();
            parameters.push(parameters::query(dialect, ("pretty", "string")));
            json!({"parameters": parameters})
        });
        item[method] = operation.to_value(dialect, &place.tag);
    }
}

impl Place {
    fn of(group: &str, version: &str) -> Place {
        let base = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let short = if group.is_empty() { "core" } else { group.trim_end_matches(".k8s.io") };
        let mut words = short.split('.');
        let first = words.next().unwrap_or_default();
        let rest: String = words.map(capital).collect();
        Place {
            base,
            id: format!("{}{rest}{}", capital(first), capital(version)),
            tag: format!("{first}{rest}_{version}"),
            group: group.to_owned(),
            version: version.to_owned(),
        }
    }

    fn collection(&self, resource: &Resource) -> String {
        let namespace = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
        format!("{}{namespace}/{}", self.base, resource.plural)
    }
}

fn scope(resource: &Resource) -> &'static str {
    if resource.namespaced { "Namespaced" } else { "" }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn reading(id: String, description: String, kind: Value, answer: Value) -> Operation<'static> {
    Operation {
        method: "get",
        id,
        description,
        action: "get",
        kind,
        parameters: Vec::new(),
        body: None,
        codes: &[200],
        answer,
        produces: MEDIA.to_vec(),
    }
}

/// What is sent is what comes back.
fn writing(
    method: &'static str,
    action: &'static str,
    id: String,
    description: String,
    kind: Value,
    object: Value,
) -> Operation<'static> {
    Operation {
        method,
        id,
        description,
        action,
        kind,
        parameters: WRITE.to_vec(),
        body: Some((object.clone(), &MEDIA)),
        codes: if method == "post" { &[200, 201, 202] } else { &[200, 201] },
        answer: object,
        produces: MEDIA.to_vec(),
    }
}

impl Operation<'_> {
    fn to_value(&self, dialect: Dialect, tag: &str) -> Value {
        let mut parameters: Vec<Value> = self.parameters.iter().map(|p| parameters::query(dialect, *p)).collect();
        let content = |media: &[&str], schema: &Value| -> Value {
            media.iter().map(|media| ((*media).to_owned(), json!({"schema": schema}))).collect::<Map<_, _>>().into()
        };
        let mut made = json!({"description": self.description, "operationId": self.id, "tags": [tag]});
        let mut responses = Map::new();
        for code in self.codes {
            let words = match code {
                201 => "Created",
                202 => "Accepted",
                _ => "OK",
            };
            let response = match dialect {
                Dialect::V2 => json!({"description": words, "schema": self.answer}),
                Dialect::V3 => json!({"description": words, "content": content(&self.produces, &self.answer)}),
            };
            responses.insert(code.to_string(), response);
        }
        responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
        match (dialect, &self.body) {
            (Dialect::V2, body) => {
                let consumes = body.as_ref().filter(|_| self.method == "patch").map_or(vec!["*/*"], |b| b.1.to_vec());
                made["consumes"] = consumes.into();
                made["produces"] = self.produces.clone().into();
                made["schemes"] = json!(["https"]);
                if let Some((schema, _)) = body {
                    let required = self.method != "delete";
                    parameters.insert(0, json!({"name": "body", "in": "body", "required": required, "schema": schema}));
                }
            }
            (Dialect::V3, Some((schema, media))) => {
                made["requestBody"] = json!({"content": content(media, schema)});
            }
            (Dialect::V3, None) => {}
        }
        if !parameters.is_empty() {
            made["parameters"] = parameters.into();
        }
        made["responses"] = responses.into();
        if !self.action.is_empty() {
            made["x-kubernetes-action"] = self.action.into();
            made["x-kubernetes-group-version-kind"] = self.kind.clone();
        }
        made
    }
}
