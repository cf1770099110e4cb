//! Whom a change of a dependent object is about: its owner, its owner until now, or those who might adopt it.

use controller_runtime::{Change, Informer, Key, adoption::controller_of};
use kube::Resource;

/// The controller of an object, if it is of a kind.
pub fn owner<K: Resource, O: Resource<DynamicType = ()>>(object: &K) -> Option<Key> {
    let controller = controller_of(object).filter(|controller| controller.kind == O::kind(&()))?;
    Some(Key::new(object.meta().namespace.clone().unwrap_or_default(), &controller.name))
}

/// The owners that must look again. An orphan that `may_be_adopted` concerns all that `select` it, when it is new or has
/// changed in what they look at.
pub fn concerned<K, O>(
    change: &Change<K>,
    owners: &Informer<O>,
    may_be_adopted: impl Fn(&K) -> bool,
    select: impl Fn(&O, &K) -> bool,
) -> Vec<Key>
where
    K: Resource,
    O: Resource<DynamicType = ()> + Send + Sync + 'static,
{
    let (old, new) = match change {
        Change::Deleted(last) => return owner::<_, O>(&**last).into_iter().collect(),
        Change::Applied { old, new } => (old.as_deref(), &**new),
    };
    let mut keys: Vec<Key> = owner::<_, O>(new).into_iter().collect();
    keys.extend(old.and_then(owner::<_, O>).filter(|was| !keys.contains(was)));
    let same = |old: &K| {
        let (old, new) = (old.meta(), new.meta());
        old.labels == new.labels && old.owner_references == new.owner_references
    };
    if controller_of(new).is_none() && may_be_adopted(new) && !old.is_some_and(same) {
        let around = owners.in_namespace(new.meta().namespace.as_deref().unwrap_or_default());
        keys.extend(around.iter().filter(|owner| select(owner, new)).map(|owner| Key::of(&**owner)));
    }
    keys
}
