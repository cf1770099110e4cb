//! Blocks of IPv4 addresses, such as `10.244.0.0/24`.

use std::{fmt, net::Ipv4Addr, str::FromStr};

use crate::Error;

/// A block of addresses, kept as its first address and the length of its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block {
    first: u32,
    prefix: u8,
}

impl Block {
    /// The block of that many bits in which an address is.
    pub fn around(address: Ipv4Addr, prefix: u8) -> Self {
        let prefix = prefix.min(32);
        Self { first: u32::from(address) & mask(prefix), prefix }
    }

    pub fn first(self) -> Ipv4Addr {
        self.first.into()
    }

    pub fn last(self) -> Ipv4Addr {
        (self.first | !mask(self.prefix)).into()
    }

    pub fn prefix(self) -> u8 {
        self.prefix
    }

    pub fn mask(self) -> Ipv4Addr {
        mask(self.prefix).into()
    }

    pub fn contains(self, address: Ipv4Addr) -> bool {
        u32::from(address) & mask(self.prefix) == self.first
    }

    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.first()) || other.contains(self.first())
    }

    /// The same addresses in blocks of which none is in another: blocks are apart, or one contains the other.
    pub fn without_overlaps(blocks: impl Iterator<Item = Self>) -> Vec<Self> {
        let mut blocks: Vec<Self> = blocks.collect();
        // The wider one first.
        blocks.sort_unstable();
        blocks.dedup_by(|next, kept| kept.contains(next.first()));
        blocks
    }

    /// Part of a block, when it is cut into blocks of that prefix. None past its end.
    pub fn part(self, prefix: u8, index: u32) -> Option<Self> {
        let width = 1u64.checked_shl(u32::from(32u8.checked_sub(prefix)?))?;
        let first = u64::from(self.first) + u64::from(index) * width;
        let first = Ipv4Addr::from(u32::try_from(first).ok()?);
        (prefix >= self.prefix && self.contains(first)).then(|| Self::around(first, prefix))
    }
}

fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

impl FromStr for Block {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parsed = text.split_once('/').and_then(|(address, prefix)| {
            let prefix: u8 = prefix.parse().ok().filter(|prefix| *prefix <= 32)?;
            Some(Self::around(address.parse().ok()?, prefix))
        });
        parsed.ok_or_else(|| Error(format!("{text:?} is not a block of IPv4 addresses such as 10.244.0.0/16")))
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first(), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_know_what_is_in_them() {
        let block: Block = "10.244.3.7/16".parse().unwrap();
        assert_eq!(block.to_string(), "10.244.0.0/16");
        assert_eq!(block.last(), Ipv4Addr::new(10, 244, 255, 255));
        assert!(block.contains(Ipv4Addr::new(10, 244, 9, 9)) && !block.contains(Ipv4Addr::new(10, 245, 0, 0)));
        assert_eq!(block.part(24, 2), Some("10.244.2.0/24".parse().unwrap()));
        assert_eq!(block.part(24, 256), None);
        assert!("0.0.0.0/0".parse::<Block>().unwrap().overlaps(block));
        assert!(!"10.245.0.0/16".parse::<Block>().unwrap().overlaps(block));
        let blocks = ["10.1.0.0/16", "192.0.2.0/24", "10.0.0.0/8", "10.0.0.0/16", "192.0.2.0/24", "192.0.3.0/24"];
        let apart = Block::without_overlaps(blocks.iter().map(|block| block.parse().unwrap()));
        let apart: Vec<String> = apart.iter().map(Block::to_string).collect();
        assert_eq!(apart, ["10.0.0.0/8", "192.0.2.0/24", "192.0.3.0/24"]);
        for wrong in ["", "10.0.0.0", "10.0.0.0/33", "fd00::/8", "x/8"] {
            assert!(wrong.parse::<Block>().is_err(), "{wrong}");
        }
    }
}
