#![no_main]
//! Text as a name of every kind, and as an address: no panic.

use libfuzzer_sys::fuzz_target;
use object_model::field::{Errors, Path};
use object_model::names::{self, address};

fuzz_target!(|text: &str| {
    for rule in [
        names::dns_label,
        names::dns_subdomain,
        names::dns1035_label,
        names::qualified_name,
        names::label_value,
        names::config_map_key,
        names::env_var_name,
        names::relaxed_env_var_name,
        names::port_name,
        names::percent,
    ] {
        let _ = rule(text);
    }
    let _ = names::name_is_dns_label(text, true);
    assert!(names::generate_name(text).len() <= 63);
    let (root, mut errors) = (Path::root(), Errors::new());
    address::ip(&root, text, &mut errors);
    address::cidr(&root, text, &mut errors);
    names::fully_qualified_domain_name(&root, text, &mut errors);
    names::domain_prefixed_path(&root, text, &mut errors);
    let _ = (address::ip_warnings(&root, text), address::cidr_warnings(&root, text), errors.to_string());
});
