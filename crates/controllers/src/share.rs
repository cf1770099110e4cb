//! Numbers that may be given as a share of another.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// A number, or a share of all in percent. What cannot be read is nothing.
pub fn scaled(value: Option<&IntOrString>, all: i32, up: bool) -> i32 {
    match value {
        None => 0,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(text)) => {
            let percent: i64 = text.strip_suffix('%').and_then(|number| number.parse().ok()).unwrap_or(0);
            let share = percent * i64::from(all) + if up { 99 } else { 0 };
            i32::try_from(share / 100).unwrap_or(i32::MAX)
        }
    }
}
