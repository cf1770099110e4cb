//! Which keys of an object become which files: ConfigMaps and Secrets, as volumes and as parts of one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, KeyToPath, Secret};

use super::{
    VolumeError,
    content::{Content, File},
};
use crate::objects::{Missing, Objects};

/// What a volume takes of an object.
pub(super) struct Taken<'a> {
    pub(super) name: &'a str,
    pub(super) items: &'a Option<Vec<KeyToPath>>,
    pub(super) optional: Option<bool>,
    pub(super) mode: u32,
}

pub(super) async fn of_config_map(
    objects: &Objects,
    namespace: &str,
    taken: Taken<'_>,
) -> Result<Content, VolumeError> {
    let found = present(objects.config_map(namespace, taken.name).await, taken.optional)?;
    let data = found.as_deref().map(config_map_data).unwrap_or_default();
    taken.files(&data).map_err(|key| VolumeError(format!("configmap references non-existent config key: {key}")))
}

pub(super) async fn of_secret(objects: &Objects, namespace: &str, taken: Taken<'_>) -> Result<Content, VolumeError> {
    let found = present(objects.secret(namespace, taken.name).await, taken.optional)?;
    let data = found.as_deref().map(secret_data).unwrap_or_default();
    taken.files(&data).map_err(|key| VolumeError(format!("references non-existent secret key: {key}")))
}

type Data<'a> = BTreeMap<&'a str, &'a [u8]>;

fn config_map_data(map: &ConfigMap) -> Data<'_> {
    let binary = map.binary_data.iter().flatten().map(|(key, data)| (key.as_str(), data.0.as_slice()));
    let text = map.data.iter().flatten().map(|(key, text)| (key.as_str(), text.as_bytes()));
    binary.chain(text).collect()
}

fn secret_data(secret: &Secret) -> Data<'_> {
    secret.data.iter().flatten().map(|(key, data)| (key.as_str(), data.0.as_slice())).collect()
}

fn present<T>(found: Result<T, Missing>, optional: Option<bool>) -> Result<Option<T>, VolumeError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Missing::NotFound(_)) if optional.unwrap_or(false) => Ok(None),
        Err(missing) => Err(VolumeError(missing.to_string())),
    }
}

impl Taken<'_> {
    /// Everything, or the items; the key that is missing otherwise.
    fn files(&self, data: &Data<'_>) -> Result<Content, String> {
        let file = |data: &[u8], mode: u32| File { data: data.to_vec(), mode, owner: None };
        let Some(items) = self.items.as_ref().filter(|items| !items.is_empty()) else {
            return Ok(data.iter().map(|(key, data)| ((*key).to_owned(), file(data, self.mode))).collect());
        };
        let mut files = Content::new();
        for item in items {
            let mode = item.mode.map_or(self.mode, |mode| mode as u32);
            match data.get(item.key.as_str()) {
                Some(data) => drop(files.insert(item.path.clone(), file(data, mode))),
                None if self.optional.unwrap_or(false) => {}
                None => return Err(item.key.clone()),
            }
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(items: serde_json::Value, optional: bool) -> Result<Vec<(String, u32)>, String> {
        let items = serde_json::from_value(items).expect("items");
        let data: Data<'_> = BTreeMap::from([("a", &b"1"[..]), ("b", &b"2"[..])]);
        let taken = Taken { name: "x", items: &items, optional: Some(optional), mode: 0o644 };
        Ok(taken.files(&data)?.into_iter().map(|(path, file)| (path, file.mode)).collect())
    }

    #[test]
    fn all_keys_or_those_that_are_named() {
        let all = vec![("a".to_owned(), 0o644), ("b".to_owned(), 0o644)];
        assert_eq!(files(serde_json::json!(null), false), Ok(all.clone()));
        assert_eq!(files(serde_json::json!([]), false), Ok(all));
        let items = serde_json::json!([{"key": "a", "path": "d/x", "mode": 256}, {"key": "none", "path": "y"}]);
        assert_eq!(files(items.clone(), true), Ok(vec![("d/x".to_owned(), 0o400)]));
        assert_eq!(files(items, false), Err("none".to_owned()));
    }
}
