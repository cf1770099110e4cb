//! Replays recorded requests of a real API server on the strategies, offline.
//!
//! What the recordings answer is what defaulting, preparing and validating must come to. The parts of the road that are
//! not in this crate (decoding errors, admission, allocation) are stood in for by `recordings/road.rs` or left out.
//! Prints a table per kind and holds a floor that only rises; `RECORDINGS_KIND` narrows it to one kind and shows what
//! differs.

#[path = "recordings/compare.rs"]
mod compare;
mod facts;
#[path = "recordings/road.rs"]
mod road;

use std::collections::BTreeMap;

use compare::Outcome;
use road::Road;

/// The least that must be alike, and word for word, in percent of the cases judged.
const FLOOR_ALIKE: f64 = 100.0;
const FLOOR_WORDS: f64 = 99.1;

#[derive(Default)]
struct Tally {
    cases: usize,
    alike: usize,
    words: usize,
}

#[test]
#[allow(clippy::print_stdout)]
fn strategies_answer_as_recorded() {
    let Some(recordings) = facts::recordings() else { return };
    let only = std::env::var("RECORDINGS_KIND").ok();
    let mut road = Road::new();
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    for case in recordings {
        let Some(outcome) = road.travel(&case) else { continue };
        let shown = only.as_ref() == Some(&case.kind);
        let tally = tallies.entry(case.kind.clone()).or_default();
        tally.cases += 1;
        match outcome {
            Outcome::Same => {
                tally.alike += 1;
                tally.words += 1;
            }
            Outcome::OtherWords(difference) => {
                tally.alike += 1;
                if shown {
                    println!("{} {} {}: words: {difference}\n", case.id, case.method, case.what);
                }
            }
            Outcome::Different(difference) => {
                if shown {
                    println!("{} {} {}: {difference}\n", case.id, case.method, case.what);
                }
            }
        }
    }
    let mut all = Tally::default();
    println!("{:36} {:>6} {:>6} {:>6}", "kind", "cases", "alike", "words");
    for (kind, tally) in &tallies {
        println!("{kind:36} {:6} {:6} {:6}", tally.cases, tally.alike, tally.words);
        all.cases += tally.cases;
        all.alike += tally.alike;
        all.words += tally.words;
    }
    let percent = |part: usize| 100.0 * part as f64 / all.cases.max(1) as f64;
    let (alike, words) = (percent(all.alike), percent(all.words));
    println!(
        "{:36} {:6} {:6} {:6}   {alike:.1} % alike, {words:.1} % word for word",
        "all", all.cases, all.alike, all.words
    );
    assert!(alike >= FLOOR_ALIKE, "{alike:.1} % alike, at least {FLOOR_ALIKE} % before");
    assert!(words >= FLOOR_WORDS, "{words:.1} % word for word, at least {FLOOR_WORDS} % before");
}
