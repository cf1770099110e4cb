//! Nodes are liked that have a pod's images already, the more so the larger the images and the more nodes have them.

use crate::{
    framework::{BEST, Event, Plugin, PreScore, Score},
    pod::PodInfo,
    snapshot::{NodeInfo, Snapshot},
};

pub struct ImageLocality;

const MEGABYTE: i64 = 1 << 20;
/// Less than this is quickly fetched.
const LEAST: i64 = 23 * MEGABYTE;
/// More than this per container makes no difference.
const MOST: i64 = 1000 * MEGABYTE;

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        "ImageLocality"
    }

    fn helps(&self, _event: &Event<'_>, _pod: &PodInfo) -> bool {
        false
    }
}

struct Images {
    /// Numbers of images that some nodes have, with the part of all nodes that do.
    known: Vec<(u32, f64)>,
    containers: i64,
}

impl PreScore for ImageLocality {
    fn pre_score<'a>(
        &'a self,
        pod: &'a PodInfo,
        snapshot: &'a Snapshot,
        _feasible: &[usize],
    ) -> Option<Box<dyn Score + 'a>> {
        let spec = pod.spec()?;
        let containers = || spec.init_containers.iter().flatten().chain(&spec.containers);
        let of_volumes = spec.volumes.iter().flatten().filter_map(|volume| volume.image.as_ref()?.reference.as_deref());
        let names = containers().filter_map(|container| container.image.as_deref()).chain(of_volumes);
        let nodes = snapshot.order().len() as f64;
        let known = names.filter_map(|name| {
            let (number, having) = snapshot.image(&tagged(name))?;
            Some((number, having as f64 / nodes))
        });
        let known: Vec<_> = known.collect();
        let containers = containers().count() as i64;
        (!known.is_empty()).then(|| Box::new(Images { known, containers }) as Box<dyn Score>)
    }
}

impl Score for Images {
    fn score(&self, _slot: usize, node: &NodeInfo) -> i64 {
        let size = |(number, part): &(u32, f64)| node.image(*number).map_or(0, |size| (size as f64 * part) as i64);
        let most = MOST * self.containers.max(1);
        let sum = self.known.iter().map(size).sum::<i64>().clamp(LEAST, most);
        BEST * (sum - LEAST) / (most - LEAST)
    }
}

/// As nodes report it: with a tag.
fn tagged(image: &str) -> String {
    let has_tag = image.rfind(':') > image.rfind('/');
    if has_tag { image.to_owned() } else { format!("{image}:latest") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::{cluster, node, pod, scored};

    #[test]
    fn large_images_that_are_there_count() {
        let with = |names: &[&str], size: i64| json!({"status": {"images": [{"names": names, "sizeBytes": size}]}});
        let nodes = [
            node("large", with(&["web:latest", "web@sha256:1"], 1000 * MEGABYTE)),
            node("small", with(&["web:latest"], 10 * MEGABYTE)),
            node("none", json!({})),
            node("other", with(&["db:latest"], 1000 * MEGABYTE)),
        ];
        let snapshot = cluster(nodes, []);
        let scores = scored(&ImageLocality, &pod("web", json!({})), &snapshot).expect("scores");
        // Half of the nodes have it, so it counts half.
        assert_eq!(scores["large"], 100 * (500 - 23) / (1000 - 23));
        assert_eq!((scores["small"], scores["none"], scores["other"]), (0, 0, 0));
        let unknown = pod("x", json!({"spec": {"containers": [{"name": "main", "image": "unknown"}]}}));
        assert_eq!(scored(&ImageLocality, &unknown, &snapshot), None);
    }

    #[test]
    fn an_image_without_a_tag_is_the_latest() {
        assert_eq!(tagged("web"), "web:latest");
        assert_eq!(tagged("host:5000/web"), "host:5000/web:latest");
        assert_eq!(tagged("host:5000/web:1"), "host:5000/web:1");
    }
}
