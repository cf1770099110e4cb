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
            percentile(&measured.took, 50),
            percentile(&measured.took, 99),
            if measured.cpu.is_zero() { "-".to_owned() } else { format!("{cpu:.0}") },
            format!("{:.1}", measured.bytes as f64 / seconds / 1e6),
        ]);
    }

    pub fn remark(&mut self, text: String) {
        self.remarks.push(text);
    }
}

/// In milliseconds, of sorted microseconds.
fn percentile(sorted: &[u32], percent: usize) -> String {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or("-".to_owned(), |micros| format!("{:.2}", f64::from(*micros) / 1000.0))
}

const HEAD: [&str; 6] = ["what", "per second", "p50 ms", "p99 ms", "server CPU µs each", "MB/s read"];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = HEAD.map(str::to_owned);
        let all = || std::iter::once(&head).chain(&self.lines);
        let widths: Vec<usize> =
            (0..HEAD.len()).map(|i| all().map(|line| line[i].chars().count()).max().unwrap_or(0)).collect();
        for line in all() {
            write!(f, "{:<width$}", line[0], width = widths[0])?;
            for (cell, width) in line.iter().zip(&widths).skip(1) {
                write!(f, "  {cell:>width$}")?;
            }
            writeln!(f)?;
        }
        self.remarks.iter().try_for_each(|remark| writeln!(f, "{remark}"))
    }
}
