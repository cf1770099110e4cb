//! Files that tell a container of its pod.

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, Pod};

use super::{
    VolumeError,
    content::{Content, File},
};
use crate::configuration::{fields, machine::Machine};

pub(super) fn files(
    pod: &Pod,
    items: &Option<Vec<DownwardAPIVolumeFile>>,
    mode: u32,
    machine: &Machine,
) -> Result<Content, VolumeError> {
    let (mut files, mut problems) = (Content::new(), Vec::new());
    for item in items.iter().flatten() {
        let text = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => fields::field(pod, field),
            (None, Some(resource)) => fields::resource(pod, None, resource, machine),
            (None, None) => Ok(String::new()),
        };
        match text {
            Ok(text) => {
                let mode = item.mode.map_or(mode, |mode| mode as u32);
                files.insert(item.path.clone(), File { data: text.into_bytes(), mode, owner: None });
            }
            Err(error) => problems.push(error.to_string()),
        }
    }
    VolumeError::unless_none(problems)?;
    Ok(files)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_and_resources_become_files() {
        let pod = json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"containers": [
            {"name": "c", "resources": {"limits": {"memory": "64Mi"}}}]}});
        let pod = serde_json::from_value(pod).expect("a pod");
        let files = |items| files(&pod, &serde_json::from_value(items).expect("items"), 0o644, &Machine::default());
        let found = files(json!([
            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}, "mode": 256},
            {"path": "memory", "resourceFieldRef": {"containerName": "c", "resource": "limits.memory", "divisor": "1Mi"}},
        ]));
        let found: Vec<_> = found
            .expect("files")
            .into_iter()
            .map(|(path, file)| (path, String::from_utf8(file.data).expect("text"), file.mode))
            .collect();
        assert_eq!(found, [("labels".into(), "a=\"b\"".into(), 0o400), ("memory".into(), "64".into(), 0o644)]);
        let problems = files(json!([
            {"path": "a", "fieldRef": {"fieldPath": "status.x"}},
            {"path": "b", "resourceFieldRef": {"containerName": "none", "resource": "limits.cpu"}},
        ]));
        assert_eq!(
            problems.expect_err("they are wrong").to_string(),
            "[unsupported fieldPath: status.x, container none not found]"
        );
    }
}
