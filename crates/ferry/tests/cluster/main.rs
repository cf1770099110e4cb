//! Whole clusters as their users run them: real containers, a real network, kubectl. As root only.

mod crashes;
mod machine;
mod nodes;
mod place;
mod tour;
