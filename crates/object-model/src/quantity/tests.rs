use num_bigint::{BigInt, Sign};
use proptest::prelude::*;

use super::*;

fn parsed(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

#[test]
fn what_kubernetes_writes_for_what_it_reads() {
    for (text, written) in [
        ("0", "0"),
        ("100m", "100m"),
        ("0.5", "500m"),
        ("1.5", "1500m"),
        ("1000m", "1"),
        ("1500", "1500"),
        ("2000", "2k"),
        ("1.5Gi", "1536Mi"),
        ("1024Ki", "1Mi"),
        ("512Ki", "512Ki"),
        ("0.5Ki", "512"),
        ("1023", "1023"),
        ("1.1Ki", "1126400m"),
        ("0.0001Ki", "102400u"),
        ("12e6", "12e6"),
        ("1e3", "1e3"),
        ("1.5e3", "1500"),
        ("1E3", "1E3"),
        ("12E", "12E"),
        ("1e-12", "1e-9"),
        ("0.0000000001", "1n"),
        ("-0.0000000001", "-1n"),
        ("-1.5", "-1500m"),
        ("8Ei", "9223372036854775807"),
        ("-9Ei", "-9223372036854775807"),
        ("12345678901234567890", "12345678901234567890"),
        // Kept as they are, though shorter forms exist.
        ("1.500", "1.500"),
        ("+5", "+5"),
        ("05Ki", "05Ki"),
        ("1.234", "1.234"),
        // Kubernetes loses the size of this one and writes "1".
        ("1000E", "1000E"),
    ] {
        assert_eq!(canonical(text).as_deref(), Ok(written), "{text}");
    }
}

#[test]
fn odd_texts_that_kubernetes_takes_for_zero() {
    for text in [".", "+", "-", "m", "Ki", "e3", "-0", "0.0", "000"] {
        assert_eq!(canonical(text).as_deref(), Ok("0"), "{text}");
    }
}

#[test]
fn refusals() {
    for (text, error) in [
        ("", BadQuantity::Format),
        ("abc", BadQuantity::Format),
        ("1 ", BadQuantity::Format),
        ("1.5.x/y", BadQuantity::Format),
        ("64Mi-x", BadQuantity::Format),
        ("1é", BadQuantity::Format),
        ("1K", BadQuantity::Suffix),
        ("1mm", BadQuantity::Suffix),
        ("1e", BadQuantity::Suffix),
        ("1e99999999999999999999", BadQuantity::Suffix),
        ("Pi", BadQuantity::Number),
        ("1e30", BadQuantity::TooBig),
        ("1e2147483647", BadQuantity::TooBig),
    ] {
        assert_eq!(Quantity::parse(text), Err(error), "{text}");
    }
    assert_eq!(
        BadQuantity::Format.to_string(),
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
}

#[test]
fn giant_exponents_and_digits_cost_nothing() {
    assert_eq!(canonical("1e-2147483648").as_deref(), Ok("1e-9"));
    assert_eq!(canonical("0e2147483647").as_deref(), Ok("0"));
    assert_eq!(Quantity::parse(&format!("{}Ki", "9".repeat(1_000_000))).unwrap().value(), i64::MAX);
    assert_eq!(Quantity::parse(&format!("0.{}1Ki", "0".repeat(1_000_000))).unwrap().to_string(), "1n");
    assert_eq!(Quantity::parse(&"9".repeat(1_000_000)), Err(BadQuantity::TooBig));
}

#[test]
fn values_in_objects() {
    use serde_json::json;
    assert_eq!(Quantity::of(&json!(" 1Ki ")), Ok(Quantity::new(1024, Format::BinarySi)));
    assert_eq!(Quantity::of(&json!(0.5)), Ok(Quantity::from_milli(500, Format::DecimalSi)));
    assert_eq!(Quantity::of(&json!(7)), Ok(Quantity::new(7, Format::DecimalSi)));
    assert_eq!(Quantity::of(&json!(null)), Ok(Quantity::ZERO));
    assert!(Quantity::of(&json!(true)).is_err());
}

#[test]
fn rounding_is_away_from_zero() {
    assert_eq!((parsed("1.1").value(), parsed("-1.1").value()), (2, -2));
    assert_eq!((parsed("1n").milli_value(), parsed("1u").scaled_value(Scale::MICRO)), (1, 1));
    assert_eq!(parsed("1e28").milli_value(), i64::MAX);
    assert_eq!((parsed("3k").as_i64(), parsed("1m").as_i64()), (Some(3000), None));
    let mut quantity = parsed("1001m");
    assert!(!quantity.round_up(Scale::UNIT));
    assert_eq!(quantity.to_string(), "2");
    assert!(quantity.round_up(Scale::MILLI));
}

#[test]
fn sums_take_the_format_of_the_first() {
    let mut sum = Quantity::ZERO;
    sum.add(&parsed("1Gi"));
    sum.add(&parsed("1000M"));
    assert_eq!((sum.to_string().as_str(), sum.format()), ("2073741824", Format::BinarySi));
    sum.sub(&parsed("1000M"));
    assert_eq!(sum.to_string(), "1Gi");
    assert_eq!([parsed("250m"), parsed("750m")].into_iter().sum::<Quantity>().to_string(), "1");
}

// The model: exact fractions of big integers.

/// Suffix, its numerator and its denominator.
const SUFFIXES: &[(&str, u128, u128)] = &[
    ("", 1, 1),
    ("n", 1, 1_000_000_000),
    ("u", 1, 1_000_000),
    ("m", 1, 1000),
    ("k", 1000, 1),
    ("M", 1_000_000, 1),
    ("G", 1_000_000_000, 1),
    ("T", 1_000_000_000_000, 1),
    ("Ki", 1 << 10, 1),
    ("Mi", 1 << 20, 1),
    ("Gi", 1 << 30, 1),
    ("Ti", 1 << 40, 1),
    ("Pi", 1 << 50, 1),
    ("Ei", 1 << 60, 1),
    ("e0", 1, 1),
    ("e-3", 1, 1000),
    ("E-12", 1, 1_000_000_000_000),
    ("e+7", 10_000_000, 1),
];

fn model(negative: bool, integer: &str, fraction: &str, numerator: u128, denominator: u128, binary: bool) -> BigInt {
    let digits: BigInt = format!("0{integer}{fraction}").parse().unwrap();
    let top = digits * numerator * 1_000_000_000u64;
    let bottom = BigInt::from(denominator) * BigInt::from(10).pow(fraction.len() as u32);
    let mut nanos = (top + &bottom - 1u8) / bottom;
    let most = BigInt::from(i64::MAX) * 1_000_000_000u64;
    if binary && nanos > most {
        nanos = most;
    }
    if negative { -nanos } else { nanos }
}

fn nanos(quantity: &Quantity) -> BigInt {
    BigInt::from(quantity.nanos)
}

/// The inverse of printing, by the model's means.
fn read_back(text: &str) -> BigInt {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let power = |power: i32| (10u128.pow(power.max(0) as u32), 10u128.pow((-power).max(0) as u32));
    let (top, bottom) = match suffix.strip_prefix('e') {
        Some(exponent) => power(exponent.parse().unwrap()),
        None => match suffix {
            "P" => power(15),
            "E" => power(18),
            _ => SUFFIXES.iter().find(|(name, ..)| *name == suffix).map(|(_, top, bottom)| (*top, *bottom)).unwrap(),
        },
    };
    model(negative, digits, "", top, bottom, false)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn reading_agrees_with_exact_fractions(
        sign in prop::sample::select(vec!["", "-", "+"]),
        integer in "[0-9]{1,15}",
        fraction in "|[0-9]{1,12}",
        suffix in prop::sample::select(SUFFIXES),
    ) {
        let point = if fraction.is_empty() { "" } else { "." };
        let text = format!("{sign}{integer}{point}{fraction}{}", suffix.0);
        let expected = model(sign == "-", &integer, &fraction, suffix.1, suffix.2, suffix.0.ends_with('i'));
        let quantity = parsed(&text);
        prop_assert_eq!(nanos(&quantity), expected.clone());
        prop_assert_eq!(quantity.sign(), match expected.sign() { Sign::Minus => -1, Sign::NoSign => 0, Sign::Plus => 1 });
        // The written form says the same, and reads as the same.
        prop_assert_eq!(read_back(&quantity.to_string()), expected);
        prop_assert_eq!(parsed(&quantity.to_string()), quantity);
        prop_assert_eq!(parsed(&canonical(&text).unwrap()), quantity);
    }

    #[test]
    fn the_written_form_is_the_shortest(units in any::<i64>(), milli in any::<bool>(), format in 0..3u8) {
        let format = [Format::DecimalSi, Format::BinarySi, Format::DecimalExponent][format as usize];
        let quantity = if milli { Quantity::from_milli(units, format) } else { Quantity::new(units, format) };
        let text = quantity.to_string();
        let binary = text.ends_with('i');
        let digits: i128 = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).split('e').next().unwrap().parse().unwrap();
        if units != 0 && !text.ends_with('E') {
            let factor = if binary || (format == Format::BinarySi && !milli && units.abs() >= 1024) { 1024 } else { 1000 };
            prop_assert!(digits % factor != 0, "{} can be shortened", text);
        }
        prop_assert_eq!(parsed(&text), quantity);
    }

    #[test]
    fn arithmetic_is_exact(a in any::<i64>(), b in any::<i64>(), factor in any::<i32>()) {
        let (x, y) = (Quantity::from_milli(a, Format::DecimalSi), Quantity::new(b, Format::BinarySi));
        let (mut sum, mut difference, mut product, mut negative) = (x, x, x, x);
        sum.add(&y);
        difference.sub(&y);
        product.mul(factor.into());
        negative.neg();
        prop_assert_eq!(nanos(&sum), nanos(&x) + nanos(&y));
        prop_assert_eq!(nanos(&difference), nanos(&x) - nanos(&y));
        prop_assert_eq!(nanos(&product), nanos(&x) * factor);
        prop_assert_eq!(nanos(&negative), -nanos(&x));
        prop_assert_eq!(x.cmp(&y), nanos(&x).cmp(&nanos(&y)));
    }

    #[test]
    fn any_text_gives_an_answer(text in any::<String>(), near in "[-+]?[0-9.]{0,40}[eEinumkKMGTP]{0,3}[-+]?[0-9]{0,12}") {
        for text in [text, near] {
            if let Ok(quantity) = Quantity::parse(&text) {
                prop_assert_eq!(parsed(&quantity.to_string()), quantity);
            }
        }
    }
}
