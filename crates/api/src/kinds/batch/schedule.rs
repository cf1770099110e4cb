//! Cron schedules: `minute hour day-of-month month day-of-week`, or a name such as `@daily`.

use object_model::time::Duration;

/// When a schedule fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// At every minute whose parts are in these sets, a bit for each value. `star` says that both kinds of days must
    /// fit, since at least one of them was given as `*`.
    Times { minutes: u64, hours: u64, days: u64, months: u64, weekdays: u64, both_days: bool },
    /// Again and again after this time.
    Every(Duration),
}

struct Bounds {
    low: u64,
    high: u64,
    names: &'static [&'static str],
}

const MINUTES: Bounds = Bounds { low: 0, high: 59, names: &[] };
const HOURS: Bounds = Bounds { low: 0, high: 23, names: &[] };
const DAYS: Bounds = Bounds { low: 1, high: 31, names: &[] };
const MONTHS: Bounds = Bounds {
    low: 1,
    high: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAYS: Bounds = Bounds { low: 0, high: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

/// Reads a schedule. The time zone it may begin with (`TZ=…`) is left to the caller.
pub fn parse(text: &str) -> Result<Schedule, String> {
    if text.is_empty() {
        return Err("empty spec string".to_owned());
    }
    let text = match text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
        None => text,
        Some(rest) => match rest.split_once(' ') {
            None => return Err("invalid schedule format: runtime error: slice bounds out of range [:-1]".to_owned()),
            Some((zone, _)) if !super::cron_job::is_time_zone(zone) => {
                return Err(format!("provided bad location {zone}: unknown time zone {zone}"));
            }
            Some((_, rest)) => rest.trim(),
        },
    };
    if text.starts_with('@') {
        return named(text);
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = fields[..] else {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    };
    let is_star = |field: &str| field.split(',').any(|part| part.starts_with(['*', '?']) && !has_step(part));
    Ok(Schedule::Times {
        minutes: set(minute, &MINUTES)?,
        hours: set(hour, &HOURS)?,
        days: set(day, &DAYS)?,
        months: set(month, &MONTHS)?,
        weekdays: set(weekday, &WEEKDAYS)?,
        both_days: is_star(day) || is_star(weekday),
    })
}

fn has_step(part: &str) -> bool {
    part.split_once('/').and_then(|(_, step)| step.parse::<u64>().ok()).is_some_and(|step| step > 1)
}

fn named(text: &str) -> Result<Schedule, String> {
    let fields = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            let Some(every) = text.strip_prefix("@every ") else {
                return Err(format!("unrecognized descriptor: {text}"));
            };
            return match Duration::parse(every) {
                Ok(duration) => Ok(Schedule::Every(duration)),
                Err(error) => Err(format!("failed to parse duration {text}: {error}")),
            };
        }
    };
    parse(fields)
}

/// A list of ranges, such as `1-5,10/15`.
fn set(field: &str, bounds: &Bounds) -> Result<u64, String> {
    field.split(',').filter(|part| !part.is_empty()).try_fold(0, |bits, part| Ok(bits | range(part, bounds)?))
}

fn range(part: &str, bounds: &Bounds) -> Result<u64, String> {
    let pieces: Vec<&str> = part.split('/').collect();
    let ends: Vec<&str> = pieces[0].split('-').collect();
    let (start, mut end) = match ends[..] {
        ["*" | "?", ..] => (bounds.low, bounds.high),
        [single] => (number(single, bounds)?, number(single, bounds)?),
        [low, high] => (number(low, bounds)?, number(high, bounds)?),
        _ => return Err(format!("too many hyphens: {part}")),
    };
    let step = match pieces[..] {
        [_] => 1,
        [_, step] => {
            if ends.len() == 1 {
                end = bounds.high;
            }
            whole(step)?
        }
        _ => return Err(format!("too many slashes: {part}")),
    };
    if start < bounds.low {
        return Err(format!("beginning of range ({start}) below minimum ({}): {part}", bounds.low));
    }
    if end > bounds.high {
        return Err(format!("end of range ({end}) above maximum ({}): {part}", bounds.high));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {part}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {part}"));
    }
    Ok((start..=end).step_by(step as usize).fold(0, |bits, value| bits | 1 << value))
}

fn number(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let name = text.to_lowercase();
    match bounds.names.iter().position(|known| *known == name) {
        Some(i) => Ok(bounds.low + i as u64),
        None => whole(text),
    }
}

fn whole(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"));
    }
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => Ok(number as u64),
        Err(_) => Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: value out of range")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(text: &str) -> (u64, u64, u64, u64, u64, bool) {
        match parse(text) {
            Ok(Schedule::Times { minutes, hours, days, months, weekdays, both_days }) => {
                (minutes, hours, days, months, weekdays, both_days)
            }
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn reads_lists_ranges_steps_and_names() {
        let (minutes, hours, days, months, weekdays, both) = times("*/20 9-17/4 1,15 JAN,dec mon-fri");
        assert_eq!(minutes, 1 | 1 << 20 | 1 << 40);
        assert_eq!(hours, 1 << 9 | 1 << 13 | 1 << 17);
        assert_eq!(days, 1 << 1 | 1 << 15);
        assert_eq!(months, 1 << 1 | 1 << 12);
        assert_eq!(weekdays, 0b0111110);
        assert!(!both);
        assert_eq!(times("5/10 0 * * *").0, 1 << 5 | 1 << 15 | 1 << 25 | 1 << 35 | 1 << 45 | 1 << 55);
        assert!(times("0 0 1 * *").5);
        assert_eq!(parse("@daily"), parse("0 0 * * *"));
    }

    #[test]
    fn says_what_is_wrong_as_cron_does() {
        for (text, message) in [
            ("-x", "expected exactly 5 fields, found 1: [-x]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("* * * * 5-1", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("@never", "unrecognized descriptor: @never"),
        ] {
            assert_eq!(parse(text), Err(message.to_owned()), "{text}");
        }
    }
}
