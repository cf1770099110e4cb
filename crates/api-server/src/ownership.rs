//! Who owns which field: the field manager of the object model, for the resources of the catalogue.

use api::kinds::Reset;
use object_model::{
    apply::{Element, FieldManager, Filter, Set, Versions},
    identity::GroupVersionKind,
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
    let versions = Kept { filter: filter(target.update().reset), resource };
    act(&FieldManager {
        schema: &resource.schema,
        kind: &kind,
        api_version: &api_version,
        subresource: target.subresource,
        versions: &versions,
    })
}

/// What writers may own, whichever version they write in.
struct Kept<'a> {
    filter: Option<Filter>,
    resource: &'a Resource,
}

impl Versions for Kept<'_> {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        (api_version == self.resource.api_version()).then_some(&self.resource.schema)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        Ok(converted(object, api_version))
    }

    fn filter(&self, _: &str) -> Option<&Filter> {
        self.filter.as_ref()
    }
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
