//! Who owns what: a controller claims what its selector matches and nobody controls, and lets go of what it no longer does.

use std::{fmt::Debug, sync::Arc};

use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Api, Resource,
    api::{Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{Error, Key};

/// What an object is to a controller's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    Ours,
    /// Nobody's, and the selector matches.
    ToAdopt,
    /// Ours, but the selector no longer matches.
    ToRelease,
    NotOurs,
}

/// Judges by what is known. An owner that is being deleted neither adopts nor releases.
pub fn judge<O: Resource, K: Resource>(owner: &O, object: &K, matches: bool) -> Claim {
    let deleting = owner.meta().deletion_timestamp.is_some();
    match controller_of(object) {
        Some(controller) if Some(&controller.uid) != owner.meta().uid.as_ref() => Claim::NotOurs,
        Some(_) if matches => Claim::Ours,
        Some(_) if deleting => Claim::NotOurs,
        Some(_) => Claim::ToRelease,
        None if deleting || !matches || object.meta().deletion_timestamp.is_some() => Claim::NotOurs,
        None => Claim::ToAdopt,
    }
}

/// The owner that controls an object.
pub fn controller_of<K: Resource>(object: &K) -> Option<&OwnerReference> {
    object.meta().owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// Everything among `objects` that is the owner's, after adopting and releasing what has to be. Every answer to a write is
/// handed to `wrote`.
pub async fn claim<O, K>(
    owner: &O,
    owners: &Api<O>,
    objects: Vec<Arc<K>>,
    api: &Api<K>,
    matches: impl Fn(&K) -> bool,
    wrote: impl Fn(&K),
) -> Result<Vec<Arc<K>>, Error>
where
    O: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    claim_keeping(owner, owners, objects, api, matches, wrote, None).await
}

/// The same for an owner that keeps its own by a finalizer: what is adopted gets it, what is released loses it.
pub async fn claim_keeping<O, K>(
    owner: &O,
    owners: &Api<O>,
    objects: Vec<Arc<K>>,
    api: &Api<K>,
    matches: impl Fn(&K) -> bool,
    wrote: impl Fn(&K),
    finalizer: Option<&str>,
) -> Result<Vec<Arc<K>>, Error>
where
    O: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let (mut ours, mut may_adopt, mut problems) = (Vec::new(), None, Vec::new());
    for object in objects {
        let change = match judge(owner, &*object, matches(&object)) {
            Claim::NotOurs => continue,
            Claim::Ours => {
                ours.push(object);
                continue;
            }
            Claim::ToRelease => release(owner, &*object, finalizer),
            Claim::ToAdopt => {
                if may_adopt.is_none() {
                    may_adopt = Some(still_there(owner, owners).await);
                }
                if let Some(Err(problem)) = &may_adopt {
                    let (kind, key) = (K::kind(&()), Key::of(&*object));
                    problems.push(format!("can't adopt {kind} {key} ({}): {problem}", uid(&*object)));
                    continue;
                }
                adopt(owner, &*object, finalizer)
            }
        };
        let adopted = change["metadata"]["ownerReferences"][0]["controller"] == true;
        let name = object.meta().name.as_deref().unwrap_or_default();
        match api.patch(name, &PatchParams::default(), &Patch::Strategic(change)).await {
            Ok(answer) => {
                wrote(&answer);
                if adopted {
                    ours.push(Arc::new(answer));
                }
            }
            // It is gone, or another of the same name is there, or it was released already.
            Err(kube::Error::Api(status)) if status.code == 404 || (status.code == 422 && !adopted) => {}
            Err(error) => problems.push(error.to_string()),
        }
    }
    if problems.is_empty() { Ok(ours) } else { Err(Error::Other(problems.join("; "))) }
}

/// Asks the server, not the cache: who is being deleted must not adopt.
async fn still_there<O>(owner: &O, owners: &Api<O>) -> Result<(), String>
where
    O: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let key = Key::of(owner);
    let live = owners.get(&key.name).await.map_err(|error| error.to_string())?;
    if live.meta().uid != owner.meta().uid {
        let (kind, got, wanted) = (O::kind(&()), uid(&live), uid(owner));
        return Err(format!("original {kind} {key} is gone: got uid {got}, wanted {wanted}"));
    }
    match &live.meta().deletion_timestamp {
        Some(time) => Err(format!("{key} has just been deleted at {}", time.0)),
        None => Ok(()),
    }
}

/// A patch that makes `owner` the controller of an object, if it still has this uid.
fn adopt<O: Resource<DynamicType = ()>, K: Resource>(owner: &O, object: &K, finalizer: Option<&str>) -> Value {
    let mut patch = json!({"metadata": {"uid": uid(object), "ownerReferences": [controller_reference(owner)]}});
    if let Some(finalizer) = finalizer {
        patch["metadata"]["finalizers"] = json!([finalizer]);
    }
    patch
}

/// What an object says of the owner that controls it.
pub fn controller_reference<O: Resource<DynamicType = ()>>(owner: &O) -> OwnerReference {
    OwnerReference {
        api_version: O::api_version(&()).into_owned(),
        kind: O::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: uid(owner).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// A patch that takes `owner` off an object.
fn release<O: Resource, K: Resource>(owner: &O, object: &K, finalizer: Option<&str>) -> Value {
    let gone = json!([{"$patch": "delete", "uid": uid(owner)}]);
    let mut patch = json!({"metadata": {"uid": uid(object), "ownerReferences": gone}});
    if let Some(finalizer) = finalizer {
        patch["metadata"]["$deleteFromPrimitiveList/finalizers"] = json!([finalizer]);
    }
    patch
}

fn uid<K: Resource>(object: &K) -> &str {
    object.meta().uid.as_deref().unwrap_or_default()
}
