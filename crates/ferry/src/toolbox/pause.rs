//! `pause`: does nothing until it is told to end.

use super::{Outcome, signals::Ending};

pub fn run(_: &[String]) -> Outcome {
    let ending = Ending::block();
    // As the first process of a pod it is the parent of orphans.
    // SAFETY: the kernel reaps them then; nothing here waits for children.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    ending.wait(None);
    Ok(0)
}
