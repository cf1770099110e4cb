//! What was measured, as a table.

use std::{fmt, time::Duration};

/// One row: how many operations took how long, and what they cost.
#[derive(Default)]
pub struct Measured {
    pub time: Duration,
    /// Of the server's processes.
    pub cpu: Duration,
    /// Of single operations, in microseconds.
    pub took: Vec<u32>,
    pub bytes: usize,
}

impl Measured {
    pub fn add(&mut self, other: Self) {
        self.time += other.time;
        self.cpu += other.cpu;
        self.took.extend(other.took);
        self.bytes += other.bytes;
    }
}

#[derive(Default)]
pub struct Report {
    lines: Vec<[String; 6]>,
    remarks: Vec<String>,
}

impl Report {
    pub fn row(&mut self, name: &str, mut measured: Measured) {
        measured.took.sort_unstable();
        let seconds = measured.time.as_secs_f64().max(f64::EPSILON);
        let count = measured.took.len();
        let cpu = measured.cpu.as_secs_f64() * 1e6 / count.max(1) as f64;
        self.lines.push([
            name.to_owned(),
            format!("{:.0}", count as f64 / seconds),
            shown(&measured.took, 50),
            shown(&measured.took, 99),
            if measured.cpu.is_zero() { "-".to_owned() } else { format!("{cpu:.0}") },
            format!("{:.1}", measured.bytes as f64 / seconds / 1e6),
        ]);
    }

    pub fn remark(&mut self, text: String) {
        self.remarks.push(text);
    }
}

/// By the nearest rank: so many percent took no longer. In milliseconds, of sorted microseconds.
pub fn percentile(sorted: &[u32], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).map(|micros| f64::from(*micros) / 1000.0)
}

pub fn shown(sorted: &[u32], percent: usize) -> String {
    percentile(sorted, percent).map_or("-".to_owned(), |millis| format!("{millis:.2}"))
}

/// Lines of equal length, the first of which is the head. Columns are as wide as they must be.
pub fn write_table<const N: usize>(f: &mut fmt::Formatter<'_>, lines: &[[String; N]]) -> fmt::Result {
    let width = |i: usize| lines.iter().map(|line| line[i].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    for line in lines {
        for (i, (cell, width)) in line.iter().zip(widths).enumerate() {
            // What it is about, then figures.
            match i {
                0 => write!(f, "{cell:<width$}")?,
                _ => write!(f, "  {cell:>width$}")?,
            }
        }
        writeln!(f)?;
    }
    Ok(())
}

const HEAD: [&str; 6] = ["what", "per second", "p50 ms", "p99 ms", "server CPU µs each", "MB/s read"];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = vec![HEAD.map(str::to_owned)];
        lines.extend_from_slice(&self.lines);
        write_table(f, &lines)?;
        self.remarks.iter().try_for_each(|remark| writeln!(f, "{remark}"))
    }
}
