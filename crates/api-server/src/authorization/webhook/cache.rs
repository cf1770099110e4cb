//! Answers that are remembered for a while, and never more than so many.

use std::{
    collections::{HashMap, VecDeque},
    time::Instant,
};

const MOST: usize = 8192;

pub struct Cache<T> {
    answers: HashMap<String, (Instant, T)>,
    /// Oldest first; what was forgotten may still be in it.
    order: VecDeque<(Instant, String)>,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self { answers: HashMap::new(), order: VecDeque::new() }
    }
}

impl<T: Clone> Cache<T> {
    pub fn get(&self, key: &str, now: Instant) -> Option<T> {
        self.answers.get(key).filter(|(until, _)| *until > now).map(|(_, answer)| answer.clone())
    }

    pub fn insert(&mut self, key: String, answer: T, now: Instant, until: Instant) {
        self.order.push_back((until, key.clone()));
        self.answers.insert(key, (until, answer));
        // What has ended goes first, then what is oldest.
        while let Some((until, key)) = self.order.front() {
            if *until > now && self.order.len() <= MOST {
                break;
            }
            // Unless it was remembered anew since.
            if self.answers.get(key).is_some_and(|(newest, _)| newest == until) {
                self.answers.remove(key);
            }
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn answers_end() {
        let (mut cache, start, second) = (Cache::default(), Instant::now(), Duration::from_secs(1));
        cache.insert("a".into(), 1, start, start + second);
        assert_eq!(cache.get("a", start), Some(1));
        assert_eq!(cache.get("a", start + second), None);
        cache.insert("a".into(), 2, start, start + second * 3);
        cache.insert("b".into(), 3, start + second * 2, start + second * 4);
        assert_eq!((cache.get("a", start + second * 2), cache.order.len()), (Some(2), 2));
    }

    #[test]
    fn there_are_never_too_many() {
        let (mut cache, now) = (Cache::default(), Instant::now());
        for n in 0..=MOST {
            cache.insert(n.to_string(), n, now, now + Duration::from_secs(60));
        }
        assert_eq!((cache.answers.len(), cache.get("0", now)), (MOST, None));
        assert_eq!(cache.get("1", now), Some(1));
    }
}
