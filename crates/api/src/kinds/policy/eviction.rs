//! Eviction: a deletion that heeds budgets. It is the body of a pod's subresource and never stored.

use super::GROUP;
use crate::kinds::{Create, Strategy};

pub static STRATEGY: Strategy = Strategy {
    create: Create::new(
        |_, _| {},
        |eviction| {
            let options = eviction.at("deleteOptions");
            let ignore = options.at("ignoreStoreReadErrorWithClusterBreakingPotential");
            if ignore.is_true() {
                ignore.invalid("can not be set for pod eviction, try after removing the option");
            }
        },
    ),
    ..Strategy::new(GROUP, "Eviction")
};
