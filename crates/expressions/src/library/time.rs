//! Parts of moments and of lengths of time.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use object_model::time::Time;

use crate::EvaluationError;
use crate::declarations::{Row, row};
use crate::evaluate::{Evaluated, Meter, failed, no_such_overload};
use crate::value::Value;

const MOMENT: &[&str] = &["timestamp.() int", "timestamp.(string) int"];
const EITHER: &[&str] = &["timestamp.() int", "timestamp.(string) int", "duration.() int"];

pub(crate) const ROWS: &[Row] = &[
    row("getFullYear", MOMENT, |meter, args| part(meter, args, |date| date.year().into())),
    row("getMonth", MOMENT, |meter, args| part(meter, args, |date| i64::from(date.month()) - 1)),
    row("getDayOfYear", MOMENT, |meter, args| part(meter, args, |date| i64::from(date.day_of_year()) - 1)),
    row("getDayOfMonth", MOMENT, |meter, args| part(meter, args, |date| i64::from(date.day()) - 1)),
    row("getDate", MOMENT, |meter, args| part(meter, args, |date| date.day().into())),
    row("getDayOfWeek", MOMENT, |meter, args| part(meter, args, |date| date.weekday().to_sunday_zero_offset().into())),
    row("getHours", EITHER, |meter, args| match args {
        [Value::Duration(length)] => Ok(Value::Int(length.seconds() / 3600)),
        _ => part(meter, args, |date| date.hour().into()),
    }),
    row("getMinutes", EITHER, |meter, args| match args {
        [Value::Duration(length)] => Ok(Value::Int(length.seconds() / 60)),
        _ => part(meter, args, |date| date.minute().into()),
    }),
    row("getSeconds", EITHER, |meter, args| match args {
        [Value::Duration(length)] => Ok(Value::Int(length.seconds())),
        _ => part(meter, args, |date| date.second().into()),
    }),
    row("getMilliseconds", EITHER, |meter, args| match args {
        [Value::Duration(length)] => Ok(Value::Int(length.nanos() / 1_000_000)),
        _ => part(meter, args, |date| i64::from(date.subsec_nanosecond()) / 1_000_000),
    }),
];

fn part<'v>(meter: &mut Meter, args: &[Value<'v>], of: fn(DateTime) -> i64) -> Evaluated<'v> {
    let (time, zone) = match args {
        [Value::Timestamp(time)] => (time, TimeZone::UTC),
        [Value::Timestamp(time), Value::String(zone)] => (time, zone_named(meter, zone)?),
        _ => return no_such_overload(),
    };
    local(*time, &zone).map(|date| Value::Int(of(date)))
}

fn local(time: Time, zone: &TimeZone) -> Result<DateTime, EvaluationError> {
    match Timestamp::new(time.unix_seconds(), time.subsecond_nanos() as i32) {
        Ok(timestamp) => Ok(zone.to_datetime(timestamp)),
        Err(_) => failed("timestamp overflow"),
    }
}

/// A name of the time zone database, or how far it is from UTC: `-08:00`.
fn zone_named(meter: &mut Meter, name: &str) -> Result<TimeZone, EvaluationError> {
    let Some((hours, minutes)) = name.split_once(':') else {
        return match name {
            "" | "UTC" => Ok(TimeZone::UTC),
            _ => meter.zone(name).map_or_else(|| failed(format!("unknown time zone {name}")), Ok),
        };
    };
    let offset = hours.parse::<i32>().ok().zip(minutes.parse::<u16>().ok()).and_then(|(hours, minutes)| {
        let minutes = i32::from(minutes) * if hours.is_negative() || name.starts_with('-') { -1 } else { 1 };
        Offset::from_seconds(hours.checked_mul(3600)?.checked_add(minutes * 60)?).ok()
    });
    offset.map_or_else(|| failed(format!("unknown time zone {name}")), |offset| Ok(TimeZone::fixed(offset)))
}
