//! Who owns which field: the field manager of the object model, for the resources of the catalogue.

use api::{kinds::Reset, resources, schemas};
use object_model::{
    apply::{Element, FieldManager, Filter, Set, Versions},
    identity::{GroupVersion, GroupVersionKind},
    schema::Schema,
    status::Status,
};
use serde_json::Value;

use crate::{
    catalogue::{Resource, Target},
    conversion,
};

/// A create, replace or patch: the writer owns what it changed. All objects are in the stored version.
pub fn on_update(target: &Target<'_>, live: Option<&Value>, new: Value, manager: &str, now: &str) -> Value {
    let resource = target.resource;
    with_manager(target, |fields| {
        let version = resource.api_version();
        let mut new = new;
        let stored = resource.stored_api_version();
        conversion::convert(&mut new, &version);
        let live = live.map(|live| converted(live, &version));
        let mut owned = fields.on_update(live.as_ref(), new, manager, now);
        conversion::convert(&mut owned, &stored);
        owned
    })
}

/// A server-side apply. The result is in the version of the request, not yet defaulted.
pub fn on_apply(
    target: &Target<'_>,
    live: Option<&Value>,
    applied: &Value,
    manager: &str,
    force: bool,
    now: &str,
) -> Result<Value, Status> {
    with_manager(target, |fields| {
        let live = live.map(|live| converted(live, &target.resource.api_version()));
        let result = fields.on_apply(live.as_ref(), applied, manager, force, now).map_err(|e| e.status())?;
        Ok(result.object)
    })
}

fn with_manager<T>(target: &Target<'_>, act: impl FnOnce(&FieldManager<'_>) -> T) -> T {
    let resource = target.resource;
    let kind = GroupVersionKind::new(&*resource.group, &*resource.version, &*resource.kind);
    let api_version = resource.api_version();
    let versions = Kept { filter: filter(target.update().reset), others: other_versions(resource) };
    act(&FieldManager {
        schema: &resource.schema,
        kind: &kind,
        api_version: &api_version,
        subresource: target.subresource,
        versions: &versions,
    })
}

/// What writers may own, whichever version they write in.
struct Kept {
    filter: Option<Filter>,
    /// The schemas of the versions beside the one of the request.
    others: Vec<(String, Schema)>,
}

impl Versions for Kept {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        self.others.iter().find(|(version, _)| version == api_version).map(|(_, schema)| schema)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        Ok(converted(object, api_version))
    }

    fn filter(&self, _: &str) -> Option<&Filter> {
        self.filter.as_ref()
    }
}

/// Both groups of Event serve the same objects; all other kinds have their versions in one group.
fn other_versions(resource: &Resource) -> Vec<(String, Schema)> {
    if resource.custom {
        return Vec::new();
    }
    let shares =
        |group: &str| *group == *resource.group || is_event(group, resource) && is_event(&resource.group, resource);
    let served = resources::all().iter().filter(|served| shares(served.group));
    let others = served.filter(|served| (served.group, served.version) != (&*resource.group, &*resource.version));
    others
        .filter_map(|served| {
            let known = served.resources.iter().any(|other| other.kind == &*resource.kind);
            let schema = known.then(|| schemas::schema_of(served.group, served.version, &resource.kind))??;
            Some((GroupVersion::new(served.group, served.version).to_string(), schema))
        })
        .collect()
}

fn is_event(group: &str, resource: &Resource) -> bool {
    &*resource.kind == "Event" && matches!(group, "" | "events.k8s.io")
}

fn converted(object: &Value, api_version: &str) -> Value {
    let mut object = object.clone();
    conversion::convert(&mut object, api_version);
    object
}

fn filter(reset: Reset) -> Option<Filter> {
    match reset {
        Reset::Fields([]) => None,
        Reset::Fields(fields) => Some(Filter::Without(Set::of_fields(fields))),
        Reset::AllBut(fields) => {
            let element = |name: &&str| (*name != "*").then(|| Element::field(name));
            Some(Filter::Only(fields.iter().map(|path| path.iter().map(element).collect()).collect()))
        }
    }
}
