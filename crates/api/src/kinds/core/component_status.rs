//! ComponentStatus: how a part of the control plane is. It is told when asked and never stored.

use crate::kinds::Strategy;

pub static STRATEGY: Strategy = Strategy::cluster("", "ComponentStatus");
