//! How soon a daemon pod that failed is replaced: at once, then after a second, doubled each time, fifteen minutes at most.

use std::{collections::HashMap, time::Duration};

use k8s_openapi::jiff::Timestamp;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// The failures of one set, by node. A set that changes begins anew.
#[derive(Default)]
pub struct Failures {
    of: (String, Option<i64>),
    nodes: HashMap<String, (Duration, Timestamp)>,
}

impl Failures {
    /// Whether a failed pod may be replaced now, or how long that takes.
    pub fn another(&mut self, uid: &str, generation: Option<i64>, node: &str, now: Timestamp) -> Result<(), Duration> {
        if self.of.0 != uid || self.of.1 != generation {
            *self = Self { of: (uid.to_owned(), generation), nodes: HashMap::new() };
        }
        let wait = match self.nodes.get(node) {
            None => FIRST,
            Some((wait, last)) => {
                let passed = Duration::try_from(now.duration_since(*last)).unwrap_or_default();
                if passed < *wait {
                    return Err(*wait - passed);
                }
                // After a long time without failures all is forgotten.
                if passed > LONGEST * 2 { FIRST } else { (*wait * 2).min(LONGEST) }
            }
        };
        self.nodes.insert(node.to_owned(), (wait, now));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_grows_by_node_and_generation() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let mut failures = Failures::default();
        let mut another = |generation, node: &str, second| failures.another("u", Some(generation), node, at(second));
        assert_eq!(another(1, "a", 100), Ok(()));
        assert_eq!(another(1, "a", 100), Err(Duration::from_secs(1)));
        assert_eq!(another(1, "b", 100), Ok(()));
        assert_eq!(another(1, "a", 101), Ok(()));
        assert_eq!(another(1, "a", 102), Err(Duration::from_secs(1)));
        assert_eq!(another(1, "a", 103), Ok(()));
        assert_eq!(another(1, "a", 104), Err(Duration::from_secs(3)));
        assert_eq!(another(1, "a", 4000), Ok(()));
        assert_eq!(another(1, "a", 4001), Ok(()), "the old failures are forgotten");
        assert_eq!(another(2, "a", 4001), Ok(()), "a new generation begins anew");
    }
}
