//! Reading of RFC 3339 as Go's `time.Parse` does it, down to the words of its errors.

use super::{DAY, Time, WRITABLE, days_of};

/// What may follow the seconds.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Fraction {
    /// Nothing or any number of digits.
    Any,
    /// Exactly six digits.
    Micro,
}

impl Fraction {
    fn layout(self) -> &'static str {
        match self {
            Fraction::Any => "2006-01-02T15:04:05Z07:00",
            Fraction::Micro => "2006-01-02T15:04:05.000000Z07:00",
        }
    }
}

struct Reader<'a> {
    whole: &'a str,
    rest: &'a str,
    layout: &'static str,
}

type Read<T> = Result<T, String>;

pub(super) fn time(text: &str, fraction: Fraction) -> Read<Time> {
    let mut reader = Reader { whole: text, rest: text, layout: fraction.layout() };
    let year = reader.number("2006", 4, 4, 0..=9999, "year")?;
    reader.literal("-")?;
    let month = reader.number("01", 2, 2, 1..=12, "month")?;
    reader.literal("-")?;
    let day = reader.number("02", 2, 2, 0..=99, "day")?;
    reader.literal("T")?;
    let hour = reader.number("15", 1, 2, 0..=23, "hour")?;
    reader.literal(":")?;
    let minute = reader.number("04", 2, 2, 0..=59, "minute")?;
    reader.literal(":")?;
    let second = reader.number("05", 2, 2, 0..=59, "second")?;
    let nanos = reader.fraction(fraction)?;
    let offset = reader.offset()?;
    if !reader.rest.is_empty() {
        return Err(reader.complaint(&format!(": extra text: {}", quote(reader.rest))));
    }
    if day < 1 || day > days_in(month, year) {
        return Err(reader.complaint(": day out of range"));
    }
    let seconds = days_of(year, month, day) * DAY + hour * 3600 + minute * 60 + second - offset;
    if !WRITABLE.contains(&seconds) {
        return Err(reader.complaint(": year outside of range [0,9999]"));
    }
    Ok(Time::from_unix(seconds, nanos))
}

fn days_in(month: i64, year: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl<'a> Reader<'a> {
    fn complaint(&self, about: &str) -> String {
        format!("parsing time {}{about}", quote(self.whole))
    }

    fn unlike(&self, at: &str, element: &str) -> String {
        let (layout, at, element) = (quote(self.layout), quote(at), quote(element));
        self.complaint(&format!(" as {layout}: cannot parse {at} as {element}"))
    }

    fn literal(&mut self, literal: &str) -> Read<()> {
        self.rest = self.rest.strip_prefix(literal).ok_or_else(|| self.unlike(self.rest, literal))?;
        Ok(())
    }

    /// Between `least` and `most` digits.
    fn number(
        &mut self,
        element: &str,
        least: usize,
        most: usize,
        range: std::ops::RangeInclusive<i64>,
        name: &str,
    ) -> Read<i64> {
        let digits = leading_digits(self.rest).min(most);
        if digits < least {
            return Err(self.unlike(self.rest, element));
        }
        let (number, rest) = self.rest.split_at(digits);
        // At most four digits.
        let number = number.parse().unwrap_or_default();
        self.rest = rest;
        if !range.contains(&number) {
            return Err(self.complaint(&format!(": {name} out of range")));
        }
        Ok(number)
    }

    fn fraction(&mut self, fraction: Fraction) -> Read<u32> {
        let found = self.rest.strip_prefix(['.', ',']).map(|digits| (digits, leading_digits(digits)));
        let (digits, count) = match (fraction, found) {
            (Fraction::Any, None | Some((_, 0))) => return Ok(0),
            (Fraction::Any, Some(found)) => found,
            (Fraction::Micro, Some((digits, count))) if count >= 6 => (digits, 6),
            (Fraction::Micro, _) => return Err(self.unlike(self.rest, ".000000")),
        };
        let (digits, rest) = digits.split_at(count);
        self.rest = rest;
        let nanos = digits.bytes().chain(std::iter::repeat(b'0')).take(9);
        Ok(nanos.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0')))
    }

    /// `Z` or a distance from UTC, in seconds.
    fn offset(&mut self) -> Read<i64> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let (sign, hours, minutes, rest) = match self.rest.as_bytes() {
            [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2, ..] if [h1, h2, m1, m2].iter().all(|b| b.is_ascii_digit()) => {
                let two = |a: &u8, b: &u8| i64::from(a - b'0') * 10 + i64::from(b - b'0');
                (if *sign == b'-' { -1 } else { 1 }, two(h1, h2), two(m1, m2), &self.rest[6..])
            }
            _ => return Err(self.unlike(self.rest, "Z07:00")),
        };
        self.rest = rest;
        if hours > 24 {
            return Err(self.complaint(": time zone offset hour out of range"));
        }
        if minutes > 60 {
            return Err(self.complaint(": time zone offset minute out of range"));
        }
        Ok(sign * (hours * 3600 + minutes * 60))
    }
}

fn leading_digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// The quoting of Go's package `time`, which spells every byte that is not plain ASCII.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(byte.into());
            }
            b' '..=b'~' | 0x7f => out.push(byte.into()),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}
