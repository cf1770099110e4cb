//! ServiceCIDR: a block that addresses of Services are taken from.

use object_model::names;
use serde_json::{Value, json};

use super::GROUP;
use crate::kinds::{Create, Reset, Strategy, Update, prepare};
use crate::validation::{Field, IMMUTABLE, addresses, meta};

pub static STRATEGY: Strategy = Strategy {
    create: Create::new(
        |block, _| prepare::put(block, &["status"], Some(&json!({}))),
        |block| {
            meta::builtin_meta(&block.at("metadata"), false, names::name_is_dns_subdomain);
            blocks(&block.at("spec").at("cidrs"));
        },
    ),
    update: Update::of_spec(|block, old, _| prepare::keep(block, old, "status"), validate_update),
    subresources: &[(
        "status",
        Update {
            reset: Reset::Fields(&[&["metadata"], &["spec"]]),
            ..Update::new(prepare::status_and_nothing_else, |block, old| {
                meta::builtin_meta_update(&block.at("metadata"), &old["metadata"]);
            })
        },
    )],
    ..Strategy::cluster(GROUP, "ServiceCIDR")
};

/// One block, or one of each family.
fn blocks(blocks: &Field) {
    match blocks.len() {
        0 => return blocks.missing("at least one CIDR required"),
        1 | 2 => {}
        _ => return blocks.invalid_value(json!({"CIDRs": blocks.value()}), "may only hold up to 2 values"),
    }
    blocks.each().for_each(|block| addresses::canonical_cidr(&block));
    let families: Vec<_> =
        blocks.texts().map(|text| addresses::parse_cidr(text).map(|cidr| cidr.address.is_ipv4())).collect();
    if let [Some(first), Some(second)] = families.as_slice()
        && first == second
    {
        blocks.invalid("may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64");
    }
}

/// Blocks stay; only a second one may be added.
fn validate_update(block: &Field, old: &Value) {
    meta::builtin_meta_update(&block.at("metadata"), &old["metadata"]);
    let spec = block.at("spec");
    let cidrs = spec.at("cidrs");
    let before = old["spec"]["cidrs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let kept = || {
        cidrs.each().zip(before).filter(|(now, was)| now.value() != *was).for_each(|(now, _)| now.invalid(IMMUTABLE))
    };
    match (before.len(), cidrs.len()) {
        (was, now) if was == now => kept(),
        (1, 2) => {
            kept();
            blocks(&cidrs);
        }
        _ => cidrs.invalid(IMMUTABLE),
    }
}
