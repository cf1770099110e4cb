//! Several sources in one volume.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, ProjectedVolumeSource, VolumeProjection};

use super::{
    VolumeError, Volumes,
    content::{Content, File},
    downward_api,
    keys::{self, Taken},
};

/// The mode of a volume's files, unless it says otherwise.
pub(super) const DEFAULT_MODE: i32 = 0o644;

/// The files, and when one of them must be renewed. All problems at once.
pub(super) async fn files(
    volumes: &Volumes,
    pod: &Pod,
    source: &ProjectedVolumeSource,
) -> Result<(Content, Option<Duration>), VolumeError> {
    let mode = source.default_mode.unwrap_or(DEFAULT_MODE) as u32;
    let (mut all, mut renewal, mut problems) = (Content::new(), None::<Duration>, Vec::new());
    for part in source.sources.iter().flatten() {
        match part_of(volumes, pod, part, mode).await {
            Ok((files, renew)) => {
                all.extend(files);
                renewal = renewal.into_iter().chain(renew).min();
            }
            Err(error) => problems.push(error.to_string()),
        }
    }
    VolumeError::unless_none(problems)?;
    Ok((all, renewal))
}

async fn part_of(
    volumes: &Volumes,
    pod: &Pod,
    part: &VolumeProjection,
    mode: u32,
) -> Result<(Content, Option<Duration>), VolumeError> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let files = if let Some(part) = &part.config_map {
        let taken = Taken { name: &part.name, items: &part.items, optional: part.optional, mode };
        keys::of_config_map(&volumes.objects, namespace, taken).await?
    } else if let Some(part) = &part.secret {
        let taken = Taken { name: &part.name, items: &part.items, optional: part.optional, mode };
        keys::of_secret(&volumes.objects, namespace, taken).await?
    } else if let Some(part) = &part.downward_api {
        downward_api::files(pod, &part.items, mode, &volumes.machine)?
    } else if let Some(part) = &part.service_account_token {
        let (token, renewal) = volumes.tokens.token(pod, part).await?;
        let owner = only_user(pod);
        // Nobody else has business with it; the group is let in with the others of the volume.
        let mode = if owner.is_some() || super::group_of(pod).is_some() { 0o600 } else { mode };
        let file = File { data: token.into_bytes(), mode, owner };
        return Ok((Content::from([(part.path.clone(), file)]), Some(renewal)));
    } else {
        let what = if part.cluster_trust_bundle.is_some() { "clusterTrustBundle" } else { "podCertificate" };
        return Err(VolumeError(format!("this node has no projected volumes with a {what}")));
    };
    Ok((files, None))
}

/// The user that all containers run as, if there is one.
fn only_user(pod: &Pod) -> Option<u32> {
    let spec = pod.spec.as_ref()?;
    let of_pod = spec.security_context.as_ref().and_then(|context| context.run_as_user);
    let mut users = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
        .map(|container| container.security_context.as_ref().and_then(|context| context.run_as_user).or(of_pod));
    let first = users.next()??;
    users.all(|user| user == Some(first)).then_some(u32::try_from(first).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_token_belongs_to_the_user_of_all_containers() {
        let user = |pod: Option<i64>, containers: &[Option<i64>]| {
            let containers: Vec<_> =
                containers.iter().map(|user| json!({"name": "a", "securityContext": {"runAsUser": user}})).collect();
            let pod = json!({"spec": {"securityContext": {"runAsUser": pod}, "containers": containers}});
            only_user(&serde_json::from_value(pod).expect("a pod"))
        };
        assert_eq!(user(None, &[None]), None);
        assert_eq!(user(Some(5), &[None, Some(5)]), Some(5));
        assert_eq!(user(Some(5), &[None, Some(6)]), None);
        assert_eq!(user(None, &[Some(6), None]), None);
        assert_eq!(user(None, &[Some(6), Some(6)]), Some(6));
    }
}
