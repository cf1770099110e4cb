//! `date [-u] [+%s]`: the time, in UTC.

use std::{
    io::{Write, stdout},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::bail;

use super::{Outcome, options::Options};

pub fn run(arguments: &[String]) -> Outcome {
    let options = Options::parse(arguments, "u")?;
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    match options.rest.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => writeln!(stdout(), "{}", text(seconds))?,
        ["+%s"] => writeln!(stdout(), "{seconds}")?,
        other => bail!("{:?} is not a format that this command knows; +%s is", other.join(" ")),
    }
    Ok(0)
}

/// As Kubernetes writes times (RFC 3339).
fn text(seconds: u64) -> String {
    let (days, rest) = (seconds / 86400, seconds % 86400);
    let (year, month, day) = calendar(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Counts in years that begin in March and eras of 400 years, which all have the same length.
fn calendar(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097;
    let since_march_of_year_0 = days + 719_468;
    let (era, day) = (since_march_of_year_0 / ERA, since_march_of_year_0 % ERA);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn days_of_leap_years() {
        assert_eq!(text(0), "1970-01-01T00:00:00Z");
        assert_eq!(text(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(text(4_107_542_399), "2100-02-28T23:59:59Z");
        assert_eq!(text(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(text(1_798_761_599), "2026-12-31T23:59:59Z");
    }
}
