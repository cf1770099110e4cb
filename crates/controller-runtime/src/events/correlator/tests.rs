use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).expect("a time")
}

fn event(name: &str, message: &str, second: i64) -> Event {
    let mut event = Event { message: Some(message.into()), reason: Some("Because".into()), ..Event::default() };
    event.metadata.name = Some(name.into());
    event.involved_object.name = Some("web".into());
    event.first_timestamp = Some(Time(at(second)));
    event.count = Some(1);
    event
}

#[test]
fn the_same_again_is_counted_on_the_first() {
    let mut correlator = Correlator::default();
    let first = correlator.correlate(event("a", "hello", 0), at(0)).expect("written");
    assert!(!first.again);
    let second = correlator.correlate(event("b", "hello", 5), at(5)).expect("written");
    assert!(second.again);
    assert_eq!((second.event.metadata.name.as_deref(), second.event.count), (Some("a"), Some(2)));
    assert_eq!(second.event.first_timestamp, first.event.first_timestamp);
    let other = correlator.correlate(event("c", "bye", 6), at(6)).expect("written");
    assert!(!other.again, "another message is another event");
}

#[test]
fn similar_ones_are_combined_from_the_tenth_on() {
    let mut correlator = Correlator::default();
    for i in 0..9 {
        let written = correlator.correlate(event(&format!("e{i}"), &format!("try {i}"), i), at(i)).expect("written");
        assert_eq!(written.event.message, Some(format!("try {i}")));
    }
    let tenth = correlator.correlate(event("e9", "try 9", 9), at(9)).expect("written");
    assert_eq!(tenth.event.message.as_deref(), Some("(combined from similar events): try 9"));
    assert!(!tenth.again);
    let next = correlator.correlate(event("e10", "try 10", 10), at(10)).expect("written");
    assert_eq!((next.event.metadata.name.as_deref(), next.event.count, next.again), (Some("e9"), Some(2), true));
    let later = correlator.correlate(event("e11", "try 11", 611), at(611)).expect("written");
    assert_eq!(later.event.message.as_deref(), Some("try 11"), "ten quiet minutes and all is forgotten");
}

#[test]
fn one_who_says_too_much_is_not_heard() {
    let mut correlator = Correlator::default();
    let written = (0..100).filter(|_| correlator.correlate(event("a", "again", 0), at(0)).is_some()).count();
    assert_eq!(written, 25);
    assert!(correlator.correlate(event("a", "again", 299), at(299)).is_none());
    let heard = correlator.correlate(event("a", "again", 601), at(601)).expect("one more after five minutes");
    assert_eq!(heard.event.count, Some(102), "those left out are counted");
}

#[test]
fn what_was_used_last_is_remembered() {
    let mut recent = Recent::default();
    for i in 0..3 * REMEMBERED {
        *recent.entry("kept".into(), || 0) += 1;
        recent.entry(format!("{i}"), || 0);
    }
    assert!(recent.entries.len() <= REMEMBERED);
    assert_eq!(*recent.entry("kept".into(), || 0), 3 * REMEMBERED);
}
