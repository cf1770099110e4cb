//! Warnings for a client: each once, and no more of them than are told.
//!
//! Kubernetes tells warnings whole while all of them have room, and otherwise cuts each one. When those that are cut fill the
//! room as well, further ones are dropped. Whoever makes warnings by pairs must stop then ([`Warnings::is_full`]): a small
//! object can be warned of in millions of ways.

use std::{collections::HashSet, sync::Arc};

/// See the module. In the order in which they came.
#[derive(Debug, Default)]
pub struct Warnings {
    list: Vec<Arc<str>>,
    known: HashSet<Arc<str>>,
    /// How many characters they are, whole and cut.
    whole: usize,
    cut: usize,
}

impl Warnings {
    /// How many characters have room.
    const ROOM: usize = 4096;
    /// What is left of a warning where there is no room for all, in characters.
    const CUT: usize = 256;

    /// Will the next warning be dropped?
    pub fn is_full(&self) -> bool {
        self.must_cut() && self.cut >= Self::ROOM
    }

    fn must_cut(&self) -> bool {
        self.whole > Self::ROOM
    }

    /// Adds a warning. One that no header can carry is left out.
    pub fn push(&mut self, warning: String) {
        if self.is_full() || warning.is_empty() || warning.chars().any(char::is_control) {
            return;
        }
        let (warning, characters) = (Arc::<str>::from(&*warning), warning.chars().count());
        if self.known.insert(warning.clone()) {
            self.whole += characters;
            self.cut += characters.min(Self::CUT);
            self.list.push(warning);
        }
    }

    /// All that came, each whole.
    pub fn into_whole(self) -> Vec<String> {
        self.list.iter().map(|warning| warning.to_string()).collect()
    }

    /// All as they are told.
    pub fn into_told(self) -> Vec<String> {
        if !self.must_cut() {
            return self.into_whole();
        }
        self.list.iter().map(|warning| warning.chars().take(Self::CUT).collect()).collect()
    }
}

impl Extend<String> for Warnings {
    fn extend<I: IntoIterator<Item = String>>(&mut self, warnings: I) {
        warnings.into_iter().for_each(|warning| self.push(warning));
    }
}

#[cfg(test)]
mod tests {
    use super::Warnings;

    fn of(warnings: impl IntoIterator<Item = String>) -> Warnings {
        let mut all = Warnings::default();
        all.extend(warnings);
        all
    }

    #[test]
    fn each_is_told_once_and_in_order() {
        let told = ["b", "a", "b", "", "line\nbreak", "a", "ä"];
        assert_eq!(of(told.map(str::to_owned)).into_told(), ["b", "a", "ä"]);
    }

    #[test]
    fn all_that_fit_are_whole() {
        let halves = ["a".repeat(2048), "ä".repeat(2048)];
        let exact = of(halves.clone());
        assert!(!exact.is_full());
        assert_eq!(exact.into_told(), halves);
        let [a, b] = halves;
        let beyond = of([a, b, "c".to_owned()]);
        assert!(!beyond.is_full());
        assert_eq!(beyond.into_told(), ["a".repeat(256), "ä".repeat(256), "c".to_owned()]);
    }

    #[test]
    fn what_has_no_room_is_dropped() {
        let long = of((0..100_000).map(|n| format!("{n:x<300}")));
        assert!(long.is_full());
        assert_eq!(long.into_told(), (0..16).map(|n| format!("{n:x<256}")).collect::<Vec<_>>());
        // Short ones are told whole, past the end by the one that was too many.
        let short = of((0..100_000).map(|n| format!("{n:x<100}"))).into_told();
        assert_eq!(short, (0..41).map(|n| format!("{n:x<100}")).collect::<Vec<_>>());
    }
}
