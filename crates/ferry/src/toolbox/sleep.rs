//! `sleep NUMBER[smhd]… | infinity`

use std::time::Duration;

use anyhow::{Context, ensure};

use super::{Outcome, signals::Ending};

pub fn run(arguments: &[String]) -> Outcome {
    ensure!(!arguments.is_empty(), "for how long? give a number, with s, m, h or d, or infinity");
    let mut sum = Some(Duration::ZERO);
    for argument in arguments {
        sum = duration(argument)?.and_then(|duration| sum?.checked_add(duration));
    }
    Ok(Ending::block().wait(sum).map_or(0, |signal| 128 + signal))
}

/// Nothing is for ever.
fn duration(text: &str) -> anyhow::Result<Option<Duration>> {
    if text == "infinity" {
        return Ok(None);
    }
    let number = text.trim_end_matches(['s', 'm', 'h', 'd']);
    let unit = match text.get(number.len()..) {
        Some("" | "s") => 1.0,
        Some("m") => 60.0,
        Some("h") => 3600.0,
        Some("d") => 86400.0,
        _ => f64::NAN,
    };
    let seconds = number.parse::<f64>().with_context(|| format!("{text:?} is not a time"))? * unit;
    Ok(Some(Duration::try_from_secs_f64(seconds).with_context(|| format!("{text:?} is not a time"))?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::duration;

    #[test]
    fn times() {
        let times = ["1", "0.5s", "2m", "infinity"].map(|text| duration(text).expect("a time"));
        let seconds = |seconds| Some(Duration::from_secs_f64(seconds));
        assert_eq!(times, [seconds(1.0), seconds(0.5), seconds(120.0), None]);
        assert!(["", "x", "1sm", "-1", "nan"].iter().all(|text| duration(text).is_err()));
    }
}
