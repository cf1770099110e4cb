//! Blocks of addresses for the pods of nodes: which are there, which are taken, which is next.

use std::{collections::HashSet, net::IpAddr, str::FromStr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// How large the block of a node is.
const OF_A_NODE_V4: u8 = 24;
const OF_A_NODE_V6: u8 = 64;
/// A block of the cluster has at most 2^16 blocks of nodes, as in Kubernetes.
const MOST: u8 = 16;

/// The blocks that all pods of a cluster have their addresses from: one, or one of each family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodBlocks(Vec<IpNet>);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0:?} is not a block of addresses such as 10.244.0.0/16")]
    Unreadable(String),
    #[error("{0} is too small or too large to be divided among nodes")]
    Size(IpNet),
    #[error("there may be one block, or one of each family of addresses")]
    Families,
}

impl Default for PodBlocks {
    fn default() -> Self {
        Self(vec![IpNet::V4(Ipv4Net::new_assert([10, 244, 0, 0].into(), 16))])
    }
}

/// As Kubernetes' flag `--cluster-cidr` has it: separated by commas.
impl FromStr for PodBlocks {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut blocks: Vec<IpNet> = Vec::new();
        for part in text.split(',') {
            let block: IpNet = part.trim().parse().map_err(|_| Error::Unreadable(part.to_owned()))?;
            let of_a_node = of_a_node(&block);
            if block.prefix_len() > of_a_node || of_a_node - block.prefix_len() > MOST {
                return Err(Error::Size(block));
            }
            if blocks.iter().any(|other| other.addr().is_ipv4() == block.addr().is_ipv4()) {
                return Err(Error::Families);
            }
            blocks.push(block.trunc());
        }
        Ok(Self(blocks))
    }
}

impl PodBlocks {
    /// All of them free.
    pub(super) fn ranges(&self) -> Vec<Range> {
        self.0.iter().map(|block| Range { block: *block, taken: HashSet::new(), next: 0 }).collect()
    }
}

fn of_a_node(block: &IpNet) -> u8 {
    if block.addr().is_ipv4() { OF_A_NODE_V4 } else { OF_A_NODE_V6 }
}

/// One block of the cluster, divided among nodes.
pub struct Range {
    block: IpNet,
    taken: HashSet<u32>,
    /// Where the search for a free one begins, so that one that was given back rests for a while.
    next: u32,
}

impl Range {
    /// Takes the next free block.
    pub fn take(&mut self) -> Option<IpNet> {
        let count = 1 << (of_a_node(&self.block) - self.block.prefix_len());
        let free = (0..count).map(|step| (self.next + step) % count).find(|number| !self.taken.contains(number))?;
        self.taken.insert(free);
        self.next = (free + 1) % count;
        Some(self.numbered(free))
    }

    /// Takes everything that a block touches. What lies outside is nobody's.
    pub fn occupy(&mut self, block: &IpNet) {
        let touched: Vec<u32> = self.touched(block).collect();
        self.taken.extend(touched);
    }

    pub fn release(&mut self, block: &IpNet) {
        for number in self.touched(block).collect::<Vec<_>>() {
            self.taken.remove(&number);
        }
    }

    fn touched(&self, block: &IpNet) -> impl Iterator<Item = u32> + use<> {
        let same = block.addr().is_ipv4() == self.block.addr().is_ipv4();
        let both = |a: &IpNet, b: &IpNet| if a.prefix_len() > b.prefix_len() { *a } else { *b };
        let overlaps = same && (self.block.contains(block) || block.contains(&self.block));
        let part = overlaps.then(|| both(&self.block, block));
        let numbers = part.map(|part| (self.number(part.network()), self.number(part.broadcast())));
        numbers.into_iter().flat_map(|(first, last)| first..=last)
    }

    fn number(&self, address: IpAddr) -> u32 {
        let number = match (address, self.block) {
            (IpAddr::V4(address), IpNet::V4(block)) => {
                u128::from((address.to_bits() - block.network().to_bits()) >> (32 - OF_A_NODE_V4))
            }
            (IpAddr::V6(address), IpNet::V6(block)) => {
                (address.to_bits() - block.network().to_bits()) >> (128 - OF_A_NODE_V6)
            }
            _ => 0,
        };
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    fn numbered(&self, number: u32) -> IpNet {
        match self.block {
            IpNet::V4(block) => {
                let address = block.network().to_bits() + (number << (32 - OF_A_NODE_V4));
                IpNet::V4(Ipv4Net::new_assert(address.into(), OF_A_NODE_V4))
            }
            IpNet::V6(block) => {
                let address = block.network().to_bits() + (u128::from(number) << (128 - OF_A_NODE_V6));
                IpNet::V6(Ipv6Net::new_assert(address.into(), OF_A_NODE_V6))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(range: &mut Range) -> String {
        range.take().map(|block| block.to_string()).unwrap_or_default()
    }

    #[test]
    fn blocks_are_given_in_order_and_rest_after_they_were_given_back() {
        let blocks: PodBlocks = "10.244.0.0/22,fd00:1::/48".parse().expect("blocks");
        let mut ranges = blocks.ranges();
        let [four, six] = &mut ranges[..] else { panic!("two") };
        four.occupy(&"10.244.1.0/24".parse().expect("a block"));
        four.occupy(&"10.96.0.0/16".parse().expect("a block"));
        assert_eq!(taken(four), "10.244.0.0/24");
        assert_eq!(taken(four), "10.244.2.0/24");
        four.release(&"10.244.0.0/24".parse().expect("a block"));
        assert_eq!(taken(four), "10.244.3.0/24");
        assert_eq!(taken(four), "10.244.0.0/24");
        assert_eq!(taken(four), "");
        assert_eq!(taken(six), "fd00:1::/64");
        assert_eq!(taken(six), "fd00:1:0:1::/64");
    }

    #[test]
    fn a_larger_or_smaller_block_occupies_what_it_touches() {
        let blocks: PodBlocks = "10.244.0.0/22".parse().expect("blocks");
        let mut range = blocks.ranges().remove(0);
        range.occupy(&"10.244.0.0/23".parse().expect("a block"));
        range.occupy(&"10.244.2.128/25".parse().expect("a block"));
        assert_eq!(taken(&mut range), "10.244.3.0/24");
        let mut all = blocks.ranges().remove(0);
        all.occupy(&"10.0.0.0/8".parse().expect("a block"));
        assert_eq!(taken(&mut all), "");
    }

    #[test]
    fn what_cannot_be_divided_is_refused() {
        for wrong in ["", "10.244.0.0", "10.244.0.0/25", "10.0.0.0/7", "10.0.0.0/16,10.1.0.0/16", "fd00::/40"] {
            assert!(wrong.parse::<PodBlocks>().is_err(), "{wrong}");
        }
        assert_eq!("10.244.0.0/16".parse::<PodBlocks>().ok(), Some(PodBlocks::default()));
    }
}
