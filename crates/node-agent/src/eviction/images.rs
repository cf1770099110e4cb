//! Room made by removing images that nobody uses: those that were not wanted for longest first. Images that came from no registry
//! stay: nobody could fetch them again.

use std::{collections::HashSet, path::Path};

use container_runtime::services::{ContainerFilter, Image, ServiceError};
use controller_runtime::events::EventType;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::signals::Thresholds;
use crate::{
    node::{
        self,
        facts::{Disk, disk},
    },
    pods::context::Context,
};

/// Whoever was about to use an image has done so by then.
const SHORTEST_AGE: SignedDuration = SignedDuration::from_secs(120);

/// Removes images until the disk has room, or as many as there are when it is full. Whether one was removed.
pub async fn make_room(context: &Context, folder: &Path, is_full: bool) -> bool {
    let wanted = match disk(folder) {
        _ if is_full => u64::MAX,
        Some(disk) => too_much(&disk, &context.settings.thresholds),
        None => 0,
    };
    if wanted == 0 {
        return false;
    }
    let freed = remove(context, wanted).await;
    match freed {
        Ok(freed) if freed < wanted && !is_full => {
            let message = format!(
                "Failed to garbage collect required amount of images. Attempted to free {wanted} bytes, but only found \
                 {freed} bytes eligible to free."
            );
            let node = node::reference(&context.settings.node_name);
            context.recorder.event(&node, EventType::Warning, "FreeDiskSpaceFailed", message);
            freed > 0
        }
        Ok(freed) => freed > 0,
        Err(error) => {
            tracing::warn!(%error, "cannot make room among the images");
            false
        }
    }
}

/// How many bytes there should be more.
fn too_much(disk: &Disk, thresholds: &Thresholds) -> u64 {
    let left = |part: f64| (disk.total as f64 * (1.0 - part)).round() as u64;
    if disk.total == 0 || disk.available > left(thresholds.images_from) {
        return 0;
    }
    left(thresholds.images_to).saturating_sub(disk.available)
}

async fn remove(context: &Context, wanted: u64) -> Result<u64, ServiceError> {
    let images = context.images().list_images(None).await?;
    let containers = context.runtime().list_containers(&ContainerFilter::default()).await?;
    let now = context.settings.clock.now();
    let in_use: HashSet<&str> = containers.iter().map(|container| container.image_ref.as_str()).collect();
    in_use.iter().for_each(|id| context.pulls.used(id, now));
    let ids: Vec<&str> = images.iter().map(|image| image.id.as_str()).collect();
    let last = context.pulls.last_used(&ids, now);
    let (mut freed, mut gone) = (0, Vec::new());
    for image in removable(&images, |image| last.get(&image.id).copied().unwrap_or(now), now) {
        if freed >= wanted {
            break;
        }
        match context.images().remove_image(&image.id).await {
            Ok(()) => {
                tracing::info!(image = image.id, names = ?image.repo_tags, "removed an image to make room");
                freed += image.size;
                gone.push(image.id.as_str());
            }
            // It is mounted somewhere, or was put to use a moment ago.
            Err(error) => tracing::debug!(image = image.id, %error, "an image stays"),
        }
    }
    let left: Vec<&str> = ids.iter().copied().filter(|id| !gone.contains(id)).collect();
    if let Err(error) = context.access.keep(&left) {
        tracing::warn!(%error, "cannot note which images are left");
    }
    Ok(freed)
}

/// Those that may go, in this order.
fn removable(images: &[Image], last_used: impl Fn(&Image) -> Timestamp, now: Timestamp) -> Vec<&Image> {
    let may_go = |image: &&Image| {
        !image.pinned && !image.repo_digests.is_empty() && now.duration_since(last_used(image)) >= SHORTEST_AGE
    };
    let mut all: Vec<&Image> = images.iter().filter(may_go).collect();
    all.sort_by_key(|image| last_used(image));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_made_from_one_mark_to_the_other() {
        let thresholds = Thresholds { images_from: 0.85, images_to: 0.8, ..Thresholds::default() };
        let of = |available| too_much(&Disk { total: 1000, available, inodes: 0, inodes_free: 0 }, &thresholds);
        assert_eq!([of(151), of(149), of(0)], [0, 51, 200]);
    }

    #[test]
    fn images_go_that_nobody_has_wanted_for_longest() {
        let image = |id: &str, digest: &str, pinned| Image {
            id: id.into(),
            repo_digests: Some(digest.to_owned()).filter(|digest| !digest.is_empty()).into_iter().collect(),
            pinned,
            ..Image::default()
        };
        let images = [
            image("100", "a@sha256:1", false),
            image("50", "b@sha256:2", false),
            image("10", "c@sha256:3", true),
            image("20", "", false),
            image("950", "d@sha256:4", false),
        ];
        let time = |second| Timestamp::from_second(second).expect("a time");
        let last_used = |image: &Image| time(image.id.parse().expect("a number"));
        let going: Vec<&str> =
            removable(&images, last_used, time(1000)).iter().map(|image| image.id.as_str()).collect();
        assert_eq!(going, ["50", "100"]);
    }
}
