//! scheduling.k8s.io: which pods go first.

pub mod priority_class;

const GROUP: &str = "scheduling.k8s.io";
