//! The status of an object, written.

use std::fmt::Debug;

use controller_runtime::Error;
use kube::{Api, Resource, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};

/// Writes a status, once more if somebody else was quicker. None if the object is gone.
pub async fn write_status<K>(api: &Api<K>, object: &K, change: impl Fn(&mut K)) -> Result<Option<K>, Error>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug,
{
    let changed = |object: &K| {
        let mut object = object.clone();
        change(&mut object);
        object
    };
    let name = object.meta().name.as_deref().unwrap_or_default();
    let mut answer = api.replace_status(name, &PostParams::default(), &changed(object)).await;
    if let Err(kube::Error::Api(conflict)) = &answer
        && conflict.is_conflict()
        && let Some(fresh) = api.get_opt(name).await?
        && fresh.meta().uid == object.meta().uid
    {
        answer = api.replace_status(name, &PostParams::default(), &changed(&fresh)).await;
    }
    match answer {
        Ok(written) => Ok(Some(written)),
        Err(kube::Error::Api(gone)) if gone.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
