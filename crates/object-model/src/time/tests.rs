use proptest::prelude::*;

use super::*;

#[test]
fn what_go_accepts() {
    for (text, seconds, micros) in [
        ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z", "2024-01-02T03:04:05.000000Z"),
        ("2024-01-02T03:04:05.1234567891Z", "2024-01-02T03:04:05Z", "2024-01-02T03:04:05.123456Z"),
        ("2024-01-02T03:04:05,5Z", "2024-01-02T03:04:05Z", "2024-01-02T03:04:05.500000Z"),
        ("2024-01-02T3:04:05Z", "2024-01-02T03:04:05Z", "2024-01-02T03:04:05.000000Z"),
        ("2024-02-29T23:04:05-05:30", "2024-03-01T04:34:05Z", "2024-03-01T04:34:05.000000Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000000Z"),
        ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z", "0000-01-01T00:00:00.000000Z"),
    ] {
        let time = Time::parse(text).unwrap();
        assert_eq!((time.to_string().as_str(), time.micro().as_str()), (seconds, micros), "{text}");
    }
    assert!(Time::parse("0001-01-01T00:00:00Z").unwrap().is_zero());
    assert_eq!(Time::parse_micro("2024-01-02T03:04:05.000001Z").unwrap().subsecond_nanos(), 1000);
}

#[test]
fn what_go_refuses_and_how() {
    for (text, words) in [
        ("", r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#),
        ("soon", r#"parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon" as "2006""#),
        ("2024-01-02", r#"parsing time "2024-01-02" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#),
        (
            "2024-01-02 03:04:05Z",
            r#"parsing time "2024-01-02 03:04:05Z" as "2006-01-02T15:04:05Z07:00": cannot parse " 03:04:05Z" as "T""#,
        ),
        (
            "2024-01-02T03:04:05",
            r#"parsing time "2024-01-02T03:04:05" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00""#,
        ),
        ("2024-13-02T03:04:05Z", r#"parsing time "2024-13-02T03:04:05Z": month out of range"#),
        ("2023-02-29T03:04:05Z", r#"parsing time "2023-02-29T03:04:05Z": day out of range"#),
        ("2024-01-02T24:04:05Z", r#"parsing time "2024-01-02T24:04:05Z": hour out of range"#),
        ("2024-01-02T03:04:05Zé", r#"parsing time "2024-01-02T03:04:05Z\u00e9": extra text: "\u00e9""#),
    ] {
        let words = words.replace("\\u00e9", "\\xc3\\xa9");
        assert_eq!(Time::parse(text).unwrap_err().to_string(), words);
    }
    assert_eq!(
        Time::parse_micro("2024-01-02T03:04:05Z").unwrap_err().to_string(),
        r#"parsing time "2024-01-02T03:04:05Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#
    );
}

/// What is written must be read again, so moments that need other than four digits for the year are not taken.
#[test]
fn years_of_four_digits() {
    for text in ["9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59-00:01", "0000-01-01T00:00:00+23:59"] {
        let words = format!(r#"parsing time "{text}": year outside of range [0,9999]"#);
        assert_eq!(Time::parse(text).unwrap_err().to_string(), words);
    }
    assert!(Time::parse_micro("9999-12-31T23:59:59.000000-00:01").is_err());
    let now = Time::parse("2026-01-02T03:04:05Z").unwrap();
    let last = Time::from_unix(now.unix_seconds() + now.seconds_left(), 0).to_string();
    assert_eq!(last, "9999-12-31T23:59:59Z");
}

#[test]
fn durations() {
    for (text, printed) in [
        ("0", "0s"),
        ("1h", "1h0m0s"),
        ("1h15m30.918s", "1h15m30.918s"),
        ("-1.5h", "-1h30m0s"),
        ("1500ms", "1.5s"),
        ("1.5ms", "1.5ms"),
        ("10us", "10µs"),
        ("3ns", "3ns"),
        ("+.5m", "30s"),
        ("1m1h", "1h1m0s"),
        ("9223372036854775807ns", "2562047h47m16.854775807s"),
        ("-9223372036854775808ns", "-2562047h47m16.854775808s"),
        ("0.3333333333333333333h", "20m0s"),
    ] {
        assert_eq!(Duration::parse(text).unwrap().to_string(), printed, "{text}");
    }
    for (text, words) in [
        ("", r#"time: invalid duration """#),
        ("3", r#"time: missing unit in duration "3""#),
        ("1d", r#"time: unknown unit "d" in duration "1d""#),
        ("1h ", r#"time: unknown unit "h " in duration "1h ""#),
        (".s", r#"time: invalid duration ".s""#),
        ("9223372036854775808ns", r#"time: invalid duration "9223372036854775808ns""#),
        ("99999999999999999999h", r#"time: invalid duration "99999999999999999999h""#),
        ("é", r#"time: invalid duration "\xc3\xa9""#),
    ] {
        assert_eq!(Duration::parse(text).unwrap_err().to_string(), words);
    }
}

#[test]
fn the_clock_before_1970() {
    let before = SystemTime::UNIX_EPOCH - std::time::Duration::from_millis(1500);
    assert_eq!(Time::from(before), Time::from_unix(-2, 500_000_000));
}

/// Counts days year by year and month by month.
fn days_by_counting(year: i64, month: i64, day: i64) -> i64 {
    let leap = |y: i64| y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
    let years: i64 = (1970..year).map(|y| if leap(y) { 366 } else { 365 }).sum();
    let lengths = [31, if leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    years + lengths[..month as usize - 1].iter().sum::<i64>() + day - 1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn dates_agree_with_counting(year in 1970i64..2500, month in 1i64..=12, day in 1i64..=28) {
        let days = days_of(year, month, day);
        prop_assert_eq!(days, days_by_counting(year, month, day));
        prop_assert_eq!(date_of(days), (year, month, day));
    }

    #[test]
    fn what_is_written_reads_back(seconds in WRITABLE, nanos in 0u32..1_000_000_000) {
        let time = Time::from_unix(seconds, nanos);
        prop_assert_eq!(Time::parse(&time.to_string()).unwrap(), time.to_seconds());
        prop_assert_eq!(Time::parse_micro(&time.micro()).unwrap(), Time::from_unix(seconds, nanos / 1000 * 1000));
    }

    #[test]
    fn durations_read_back(nanos in any::<i64>()) {
        let duration = Duration::from_nanos(nanos);
        prop_assert_eq!(Duration::parse(&duration.to_string()).unwrap(), duration);
    }

    #[test]
    fn moments_and_durations_add_up(seconds in -1i64 << 32..1 << 32, nanos in 0u32..1_000_000_000, d in -1i64 << 60..1 << 60) {
        let start = Time::from_unix(seconds, nanos);
        let end = start.plus(Duration::from_nanos(d));
        prop_assert_eq!(end.since(start), Duration::from_nanos(d));
    }

    #[test]
    fn any_text_gives_an_answer(text in any::<String>(), near in "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.,+Zé-]{0,20}", length in "[-+]?([0-9.]{0,22}[a-zµ]{0,2}){0,3}") {
        for text in [&text, &near, &length] {
            let _ = (Time::parse(text), Time::parse_micro(text), Duration::parse(text));
        }
    }
}
