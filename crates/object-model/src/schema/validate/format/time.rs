//! Dates, times and durations.

use crate::time::Duration;

/// `2006-01-02`, a day that exists.
pub fn is_date(text: &str) -> bool {
    let b = text.as_bytes();
    if b.len() != 10 || b[4] != b'-' || b[7] != b'-' {
        return false;
    }
    let number =
        |digits: &str| digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<u32>().ok()).flatten();
    let (Some(year), Some(month), Some(day)) =
        (text.get(..4).and_then(number), text.get(5..7).and_then(number), text.get(8..).and_then(number))
    else {
        return false;
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => 0,
    };
    (1..=days).contains(&day)
}

/// A date, `t` and a time with a zone, in either case. What follows a second `t` does not count, and any character may
/// stand before the fraction: so it is in Kubernetes.
pub fn is_date_time(text: &str) -> bool {
    let mut parts = text.split(['t', 'T']);
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    is_date(date) && is_time(time)
}

fn is_time(text: &str) -> bool {
    let Some((clock, rest)) = text.split_at_checked(8) else { return false };
    let c = clock.as_bytes();
    let pair = |at: usize, most: u8| {
        c[at].is_ascii_digit() && c[at + 1].is_ascii_digit() && (c[at] - b'0') * 10 + c[at + 1] - b'0' <= most
    };
    if !(c[2] == b':' && c[5] == b':' && pair(0, 23) && pair(3, 59) && pair(6, 59)) {
        return false;
    }
    is_zone(rest) || {
        let mut after = rest.chars();
        let separator = after.next();
        let zone = after.as_str().trim_start_matches(|c: char| c.is_ascii_digit());
        separator.is_some_and(|c| c != '\n') && zone.len() < after.as_str().len() && is_zone(zone)
    }
}

fn is_zone(text: &str) -> bool {
    let b = text.as_bytes();
    matches!(text, "z" | "Z")
        || (b.len() == 6
            && matches!(b[0], b'+' | b'-')
            && b[3] == b':'
            && [1, 2, 4, 5].into_iter().all(|i| b[i].is_ascii_digit()))
}

/// A duration of Go, such as `1h30m`, or words such as `2 weeks`.
pub fn is_duration(text: &str) -> bool {
    Duration::parse(text).is_ok() || is_worded_duration(text)
}

/// Somewhere in the text a number is followed by a unit.
fn is_worded_duration(text: &str) -> bool {
    const EXACT: [&str; 14] = ["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk", "nano", "sec", "min"];
    const PREFIX: [&str; 8] = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    let mut found = false;
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let from_number = &rest[at..];
        let after = from_number.trim_start_matches(|c: char| c.is_ascii_digit());
        let number = &from_number[..from_number.len() - after.len()];
        let word = after.trim_start_matches(['\t', '\n', '\x0c', '\r', ' ']);
        let end = word.find(|c: char| !(c.is_ascii_alphabetic() || c == 'µ')).unwrap_or(word.len());
        if end == 0 {
            rest = after;
            continue;
        }
        if number.parse::<i64>().is_err() {
            return false;
        }
        let unit = word[..end].to_lowercase();
        found |= EXACT.contains(&&*unit) || PREFIX.iter().any(|prefix| unit.starts_with(prefix));
        rest = &word[end..];
    }
    found
}
