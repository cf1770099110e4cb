//! Sets of completion indexes, as a Job's status has them: `1,3-5,7`.

use std::fmt;

/// Ranges with both ends, in order, with a gap between any two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes(Vec<(i32, i32)>);

impl Indexes {
    /// Reads a set. Indexes from `completions` on are left out, and so is what cannot be read.
    pub fn parse(text: &str, completions: i32) -> Self {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse::<i32>().ok()?, last.parse::<i32>().ok()?);
            (first < completions).then_some((first, last.min(completions - 1)))
        };
        Self::of(text.split(',').filter_map(range).collect())
    }

    fn of(mut ranges: Vec<(i32, i32)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(i32, i32)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    /// This set and more.
    pub fn with(&self, more: impl IntoIterator<Item = i32>) -> Self {
        Self::of(self.0.iter().copied().chain(more.into_iter().map(|index| (index, index))).collect())
    }

    pub fn union(&self, other: &Self) -> Self {
        Self::of(self.0.iter().chain(&other.0).copied().collect())
    }

    pub fn has(&self, index: i32) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(at).is_some_and(|(first, _)| *first <= index)
    }

    pub fn count(&self) -> i32 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many are in both sets.
    pub fn shared(&self, other: &Self) -> i32 {
        let overlap = |a: &(i32, i32), b: &(i32, i32)| (a.1.min(b.1) - a.0.max(b.0) + 1).max(0);
        self.0.iter().map(|a| other.0.iter().map(|b| overlap(a, b)).sum::<i32>()).sum()
    }

    /// The first indexes below `completions` that are not in the set.
    pub fn first_missing(&self, count: usize, completions: i32) -> Vec<i32> {
        let gaps_begin = std::iter::once(0).chain(self.0.iter().map(|(_, last)| last.saturating_add(1)));
        let gaps_end = self.0.iter().map(|(first, _)| *first).chain([completions]);
        gaps_begin.zip(gaps_end).flat_map(|(begin, end)| begin..end.min(completions)).take(count).collect()
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sets_are_read_and_written() {
        for (text, completions, written) in [
            ("", 5, ""),
            ("1,3-5,7", 10, "1,3-5,7"),
            ("0,1,2,3", 10, "0-3"),
            ("0,1", 10, "0,1"),
            ("2-9,12", 6, "2-5"),
            ("x,1,3-y,4", 6, "1,4"),
            ("7", 6, ""),
        ] {
            assert_eq!(Indexes::parse(text, completions).to_string(), written, "{text}");
        }
    }

    proptest! {
        #[test]
        fn it_is_a_set(a in prop::collection::btree_set(0..40i32, 0..30), b in prop::collection::btree_set(0..40i32, 0..30)) {
            let (own, other) = (Indexes::default().with(a.clone()), Indexes::default().with(b.clone()));
            prop_assert_eq!(own.count() as usize, a.len());
            prop_assert!((0..40).all(|index| own.has(index) == a.contains(&index)));
            prop_assert_eq!(Indexes::parse(&own.to_string(), 40), own.clone());
            let union: BTreeSet<i32> = a.union(&b).copied().collect();
            prop_assert_eq!(own.union(&other), Indexes::default().with(union));
            prop_assert_eq!(own.shared(&other) as usize, a.intersection(&b).count());
            let missing = own.first_missing(5, 40);
            prop_assert!(missing.iter().all(|index| !a.contains(index)) && missing.len() == (40 - a.len()).min(5));
        }
    }
}
