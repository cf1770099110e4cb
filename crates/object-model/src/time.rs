//! Moments and lengths of time as Kubernetes writes them.
//!
//! A [`Time`] is what `metav1.Time` and `metav1.MicroTime` hold: a moment in nanoseconds, written in UTC with whole
//! seconds (`2024-01-02T03:04:05Z`) or with microseconds. A [`Duration`] is Go's, written `1h0m0s`. Reading accepts
//! what Go accepts, and refuses with Go's words; only what another time zone moves out of the years 0 to 9999 is refused
//! too, since it could be written and then not be read.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::SystemTime;

use thiserror::Error;

mod duration;
mod parse;

pub use duration::{BadDuration, Duration};

/// A moment. Ordered; the zero of Go (the year 1) counts as absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Since 1970.
    seconds: i64,
    nanos: u32,
}

/// A text that is no moment, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct BadTime(String);

const NANOS: i64 = 1_000_000_000;
const DAY: i64 = 86_400;
/// The first second of the year 1.
const GO_ZERO: i64 = -62_135_596_800;
/// The seconds of the years 0 to 9999. Others have no four digits, and nobody could read what is written of them.
pub(crate) const WRITABLE: RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;

impl Time {
    /// `nanos` beyond a second carry over.
    pub fn from_unix(seconds: i64, nanos: u32) -> Self {
        Self { seconds: seconds.saturating_add(i64::from(nanos) / NANOS), nanos: nanos % NANOS as u32 }
    }

    /// Reads RFC 3339, with or without a fraction, as `metav1.Time` does.
    pub fn parse(text: &str) -> Result<Self, BadTime> {
        parse::time(text, parse::Fraction::Any).map_err(BadTime)
    }

    /// Reads RFC 3339 with exactly six digits of fraction, as `metav1.MicroTime` demands.
    pub fn parse_micro(text: &str) -> Result<Self, BadTime> {
        parse::time(text, parse::Fraction::Micro).map_err(BadTime)
    }

    /// How many seconds are left until nobody could write the moment any more.
    pub fn seconds_left(&self) -> i64 {
        WRITABLE.end().saturating_sub(self.seconds)
    }

    pub fn unix_seconds(&self) -> i64 {
        self.seconds
    }

    pub fn subsecond_nanos(&self) -> u32 {
        self.nanos
    }

    /// Does Kubernetes write this moment as null?
    pub fn is_zero(&self) -> bool {
        self.seconds == GO_ZERO && self.nanos == 0
    }

    /// What remains of the moment once it is written.
    pub fn to_seconds(self) -> Self {
        Self { nanos: 0, ..self }
    }

    /// With microseconds, as a `MicroTime` is written.
    pub fn micro(&self) -> String {
        let text = self.to_string();
        let (seconds, _) = text.split_at(text.len() - 1);
        format!("{seconds}.{:06}Z", self.nanos / 1000)
    }

    /// Later by so much, or earlier if it is negative.
    pub fn plus(self, duration: Duration) -> Self {
        let nanos = i64::from(self.nanos) + duration.nanos() % NANOS;
        Self {
            seconds: self.seconds.saturating_add(duration.nanos() / NANOS).saturating_add(nanos.div_euclid(NANOS)),
            nanos: nanos.rem_euclid(NANOS) as u32,
        }
    }

    /// How much later this is. Saturates at the longest duration, as in Go.
    pub fn since(self, earlier: Time) -> Duration {
        let nanos = (i128::from(self.seconds) - i128::from(earlier.seconds)) * i128::from(NANOS)
            + i128::from(self.nanos)
            - i128::from(earlier.nanos);
        Duration::from_nanos(nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }
}

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => Self { seconds: after.as_secs() as i64, nanos: after.subsec_nanos() },
            Err(error) => {
                let before = error.duration();
                let borrow = i64::from(before.subsec_nanos() > 0);
                Self {
                    seconds: -(before.as_secs() as i64) - borrow,
                    nanos: (borrow * NANOS) as u32 - before.subsec_nanos(),
                }
            }
        }
    }
}

/// In UTC with whole seconds, as a `Time` is written.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date_of(self.seconds.div_euclid(DAY));
        let second = self.seconds.rem_euclid(DAY);
        let sign = if year < 0 { "-" } else { "" };
        write!(
            f,
            "{sign}{:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
            year.abs(),
            second / 3600,
            second / 60 % 60,
            second % 60
        )
    }
}

/// Days since 1970 of a date in the Gregorian calendar. Years begin in March here, so that the leap day is last.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The inverse of [`days_of`].
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests;
