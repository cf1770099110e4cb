//! The schemas of built-in kinds, from one table of facts (`tables/types.txt`) that all of them share.
//!
//! The table holds what decides how objects are read, written, merged and encoded; the version it was made from is
//! [`KUBERNETES_VERSION`]. It is made by `examples/generate-tables` and parsed on first use. Descriptions are not in it:
//! `kubectl explain` will get them from k8s-openapi's schemas when asked.

use std::sync::LazyLock;

use object_model::schema::Schema;
use object_model::schema::table::{Kind, Table};

/// The version of Kubernetes that the tables describe.
pub const KUBERNETES_VERSION: &str = "v1.36.4";

#[expect(clippy::expect_used, reason = "the table is part of the program and parsed by its tests")]
static TABLE: LazyLock<Table> =
    LazyLock::new(|| Table::parse(include_str!("../tables/types.txt")).expect("the table of types is well formed"));

/// Kinds of `meta.k8s.io/v1` that belong to every group and version: options of requests, answers, watch events.
const EVERYWHERE: [&str; 13] = [
    "APIGroup",
    "APIGroupList",
    "APIResourceList",
    "APIVersions",
    "ApplyOptions",
    "CreateOptions",
    "DeleteOptions",
    "GetOptions",
    "ListOptions",
    "PatchOptions",
    "Status",
    "UpdateOptions",
    "WatchEvent",
];

/// All built-in types.
pub fn table() -> &'static Table {
    &TABLE
}

/// The schema of a built-in kind. Options, `Status` and `WatchEvent` exist in every group and version, and what
/// `meta.k8s.io` calls beta is its version 1.
pub fn schema_of(group: &str, version: &str, kind: &str) -> Option<Schema> {
    let found = TABLE.kind(group, version, kind);
    let shared = || group == "meta.k8s.io" || EVERYWHERE.contains(&kind);
    found.or_else(|| shared().then(|| definition(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}")))?)
}

/// The schema of a type by the full name of its definition, such as `io.k8s.api.core.v1.PodSpec`.
pub fn definition(name: &str) -> Option<Schema> {
    TABLE.definition(name)
}

/// Every built-in kind in every version, sorted.
pub fn kinds() -> &'static [Kind] {
    TABLE.kinds()
}
