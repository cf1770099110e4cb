//! What is tolerated because the old object already had it.
//!
//! Rules get stricter over time; an object stored before must stay updatable. Each flag is on when the old object
//! would not pass today's rule.

use serde_json::Value;

use super::{CONTAINER_LISTS, affinity, annotations, is_sidecar, security, topology_spread};
use crate::validation::resources::{is_divisible_huge_page, is_huge_page};
use crate::validation::{Field, node_selector, paths, selectors};

#[derive(Clone, Copy, Default)]
pub struct Options {
    /// The object is a Pod, not a template of one.
    pub is_pod: bool,
    pub invalid_deletion_cost: bool,
    pub invalid_affinity_selectors: bool,
    pub invalid_node_affinity_values: bool,
    pub invalid_spread_selectors: bool,
    pub invalid_spread_keys: bool,
    pub indivisible_huge_pages: bool,
    pub non_local_token_path: bool,
    pub host_sysctls: bool,
    pub any_selinux_change_policy: bool,
    pub user_namespaces_with_devices: bool,
    pub restart_container_for_init: bool,
}

impl Options {
    /// What the old pod or template (`metadata` and `spec`) allows; nothing for a new one.
    pub fn of(old: Option<&Value>) -> Options {
        let Some(old) = old.filter(|old| !old.is_null()) else { return Options::default() };
        let mut options = Options::default();
        // The old object's own problems are of no interest, only whether there are any.
        let _ = Field::check(old, |old| options = of_old(old));
        options
    }

    /// The same for a Pod.
    pub fn of_pod(old: Option<&Value>) -> Options {
        Options { is_pod: true, ..Options::of(old) }
    }
}

fn of_old(old: &Field) -> Options {
    let spec = old.at("spec");
    let security_context = spec.at("securityContext");
    let user_namespaces = spec.at("hostUsers").flag() == Some(false);
    let any_container =
        |test: &dyn Fn(&Field) -> bool| CONTAINER_LISTS.iter().any(|list| spec.at(list).each().any(|c| test(&c)));
    Options {
        is_pod: false,
        invalid_deletion_cost: !annotations::deletion_cost_is_valid(&old.at("metadata").at("annotations")),
        invalid_affinity_selectors: fails(&spec.at("affinity"), affinity::selectors_of),
        invalid_node_affinity_values: {
            let affinity = spec.at("affinity");
            let node = affinity.at("nodeAffinity");
            node_selector::has_invalid_values(&node.at(affinity::REQUIRED))
        },
        invalid_spread_selectors: spec
            .at("topologySpreadConstraints")
            .each()
            .any(|c| fails(&c.at("labelSelector"), selectors::label_selector)),
        invalid_spread_keys: spec
            .at("topologySpreadConstraints")
            .each()
            .any(|c| fails(&c, topology_spread::label_keys_with_selector)),
        indivisible_huge_pages: any_container(&|c| {
            let resources = c.at("resources");
            indivisible(&resources.at("limits")) || indivisible(&resources.at("requests"))
        }) || indivisible(&spec.at("overhead")),
        non_local_token_path: spec.at("volumes").each().any(|volume| {
            let projected = volume.at("projected");
            projected.at("sources").each().any(|source| {
                let token = source.at("serviceAccountToken");
                token.is_set() && fails(&token.at("path"), paths::local_non_reserved)
            })
        }),
        host_sysctls: security_context
            .at("sysctls")
            .each()
            .any(|s| security::host_sysctl(s.at("name").text(), &spec).is_some()),
        any_selinux_change_policy: security_context.at("seLinuxChangePolicy").is_set(),
        user_namespaces_with_devices: user_namespaces && any_container(&|c| !c.at("volumeDevices").is_empty()),
        restart_container_for_init: spec.at("initContainers").each().any(|c| {
            !is_sidecar(&c) && c.at("resizePolicy").each().any(|p| p.at("restartPolicy").is("RestartContainer"))
        }),
    }
}

fn fails(field: &Field, validator: impl FnOnce(&Field)) -> bool {
    let before = field.problem_count();
    validator(field);
    field.problem_count() > before
}

fn indivisible(list: &Field) -> bool {
    list.entries().any(|(name, amount)| is_huge_page(name) && !is_divisible_huge_page(name, amount.value()))
}
