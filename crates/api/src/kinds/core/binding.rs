//! Binding: the verdict that a pod belongs on a node. It changes the pod and is never stored.

use super::pod::validate_binding;
use crate::kinds::{Create, Strategy};

pub static STRATEGY: Strategy =
    Strategy { create: Create::new(|_, _| {}, validate_binding), ..Strategy::new("", "Binding") };
