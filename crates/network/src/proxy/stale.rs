//! Clients whose datagrams may still go to endpoints that do not serve any more: the kernel is to forget them, and is asked until it
//! has.

use std::{
    collections::{HashMap, HashSet},
    fmt::Display,
};

use super::plan::{Endpoint, Front};
use crate::{UDP, connections::Datagrams};

/// Fronts of UDP, with the endpoints at which their clients may go on.
pub(super) type MayStay = HashMap<Front, HashSet<Endpoint>>;

/// What is still to be forgotten.
#[derive(Default)]
pub(super) struct Stale {
    fronts: MayStay,
}

impl Stale {
    /// What is known of a front now counts, not what was known before.
    pub fn note(&mut self, changed: MayStay) {
        self.fronts.extend(changed);
    }

    pub fn is_empty(&self) -> bool {
        self.fronts.is_empty()
    }

    pub fn holds(&self, datagrams: &Datagrams) -> bool {
        let endpoint = Endpoint { address: *datagrams.at.ip(), port: datagrams.at.port() };
        let front = Front { address: *datagrams.to.ip(), protocol: UDP, port: datagrams.to.port() };
        self.fronts.get(&front).is_some_and(|may_stay| !may_stay.contains(&endpoint))
    }

    /// Takes what came of forgetting all that this holds. What failed stays to be done.
    pub fn settle(&mut self, forgotten: Result<(), impl Display>) {
        match forgotten {
            Ok(()) => self.fronts.clear(),
            Err(error) => {
                tracing::warn!(%error, "datagrams of old clients may still go to endpoints that are gone; trying again");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};

    use super::*;

    const FRONT: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

    fn datagrams(last: u8) -> Datagrams {
        Datagrams { to: SocketAddrV4::new(FRONT, 53), at: SocketAddrV4::new(Ipv4Addr::new(10, 244, 0, last), 5353) }
    }

    fn may_stay(last: &[u8]) -> MayStay {
        let endpoints = last.iter().map(|last| Endpoint { address: *datagrams(*last).at.ip(), port: 5353 }).collect();
        HashMap::from([(Front { address: FRONT, protocol: UDP, port: 53 }, endpoints)])
    }

    #[test]
    fn what_could_not_be_forgotten_is_tried_again_as_things_are_then() {
        let mut stale = Stale::default();
        stale.note(may_stay(&[2]));
        assert!(stale.holds(&datagrams(1)) && !stale.holds(&datagrams(2)));
        stale.settle(Err("the kernel is busy"));
        // Another Service changes.
        stale.note(MayStay::new());
        assert!(stale.holds(&datagrams(1)));
        stale.note(may_stay(&[1]));
        assert!(
            !stale.holds(&datagrams(1)) && stale.holds(&datagrams(2)),
            "the first serves again, the second does not"
        );
        stale.settle(Ok::<(), &str>(()));
        assert!(stale.is_empty());
    }
}
