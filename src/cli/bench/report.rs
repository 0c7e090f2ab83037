//! What is written down of a measurement of the engine.

use std::fs;

use comfy_table::Table;
use serde::Serialize;

use super::Ask;
use super::limits::{Limits, Size};
use super::work::{Checked, Measured, Work};
use crate::cli::output::table;
use crate::engine::{Ranked, ScanReport};
use crate::recognize::Recognizer;
use crate::telemetry::Label;

/// What was measured; times in milliseconds.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    ask: Ask,
    pub(super) backend: String,
    device: String,
    driver: String,
    rows: usize,
    identities: usize,
    dim: usize,
    probes: usize,
    /// Neighbors or identities that a probe gets.
    top_k: usize,
    pub(super) threads: usize,
    total_ms: Vec<f64>,
    pub(super) median_ms: f64,
    /// Rows compared with probes, in millions a second.
    mvectors_per_s: f64,
    gflops: f64,
    /// As if every comparison read its row from memory.
    gb_per_s: f64,
    invalid_indices: u64,
    uncertified: u64,
    /// The furthest that a score, as the backend computed it, lies from the canonical one; absent where it computed none of the answer.
    largest_score_error: Option<f64>,
    phases_ms: Phases,
    pub(super) memory: Memory,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limits: Option<Limits>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) checked: Option<Checked>,
}

/// Medians.
#[derive(Debug, Serialize)]
struct Phases {
    scan: f64,
    device_merge: f64,
    host_merge: f64,
    verify: f64,
}

/// Bytes of memory once the rows are ready for scanning.
#[derive(Debug, Serialize)]
pub(super) struct Memory {
    /// What the rows take as `f32`.
    rows_bytes: usize,
    /// What the process holds, the program and what is left of making or reading the vectors included; known on Linux alone.
    pub(super) resident_bytes: Option<u64>,
}

impl Report {
    pub(super) fn of(recognizer: &Recognizer, work: &Work, measured: &Measured, threads: usize) -> Self {
        let description = recognizer.engine().choice().active();
        let snapshot = work.snapshot();
        let (rows, dim, probes) = (snapshot.rows().len(), snapshot.profile().dim, work.probes());
        let median_ms = median(measured.times_ms.clone());
        let comparisons = (rows * probes) as f64;
        let reports = || measured.reports.iter();
        let phase = |ns: fn(&ScanReport) -> u64| median(reports().map(|one| ns(one) as f64 / 1e6).collect());
        Self {
            ask: work.ask(),
            backend: description.backend.as_str().to_owned(),
            device: description.device.clone(),
            driver: description.driver.clone(),
            rows,
            identities: snapshot.identities().len(),
            dim,
            probes,
            top_k: work.places(),
            threads,
            total_ms: measured.times_ms.clone(),
            median_ms,
            mvectors_per_s: comparisons / median_ms / 1e3,
            gflops: comparisons * 2.0 * dim as f64 / median_ms / 1e6,
            gb_per_s: comparisons * (dim * size_of::<f32>()) as f64 / median_ms / 1e6,
            invalid_indices: reports().map(|one| one.invalid_indices).sum(),
            uncertified: reports().map(|one| one.uncertified).sum(),
            largest_score_error: largest_error(&measured.answer),
            phases_ms: Phases {
                scan: phase(|one| one.phases.scan_ns),
                device_merge: phase(|one| one.phases.device_merge_ns),
                host_merge: phase(|one| one.phases.host_merge_ns),
                verify: phase(|one| one.verify_ns),
            },
            memory: Memory { rows_bytes: rows * dim * size_of::<f32>(), resident_bytes: None },
            limits: None,
            checked: None,
        }
    }

    /// How much was compared with how much.
    pub(super) fn size(&self) -> Size {
        Size { rows: self.rows, dim: self.dim, probes: self.probes }
    }

    /// The backend's name, and what [`COLUMN`] names.
    pub(super) fn column(&self) -> Vec<String> {
        let Phases { scan, device_merge, host_merge, verify } = self.phases_ms;
        let times = [scan, device_merge, host_merge, verify, self.median_ms].map(|ms| format!("{ms:.3}"));
        let rates = [self.mvectors_per_s, self.gflops, self.gb_per_s].map(|rate| format!("{rate:.3}"));
        let work = format!("{} rows x {} probes, dim {}", self.rows, self.probes, self.dim);
        let mut column = vec![self.backend.clone(), self.device.clone(), self.driver.clone(), work];
        column.extend(times.into_iter().chain(rates));
        column.extend([self.invalid_indices, self.uncertified].map(|count| count.to_string()));
        column.push(scientific(self.largest_score_error));
        column
    }

    pub(super) fn as_table(&self) -> Table {
        let mut table = table(["", "value"]);
        let Self { backend, device, driver, rows, identities, dim, probes, top_k, .. } = self;
        table.add_row(["backend", &format!("{backend}: {device} ({driver}), {} threads", self.threads)]);
        let what = match self.ask {
            Ask::Search => format!("k {top_k}"),
            Ask::Recognize => format!("{top_k} of {identities} identities"),
        };
        table.add_row(["work", &format!("{rows} rows x {probes} probes, dim {dim}, {what}")]);
        table.add_row(["median", &format!("{:.3} ms of {}", self.median_ms, self.total_ms.len())]);
        let Phases { scan, device_merge, host_merge, verify } = &self.phases_ms;
        let phases = format!(
            "scan {scan:.3}, device merge {device_merge:.3}, host merge {host_merge:.3}, verify {verify:.3} ms"
        );
        table.add_row(["phases", &phases]);
        let Self { mvectors_per_s, gflops, gb_per_s, .. } = self;
        let rate = format!("{mvectors_per_s:.1} M vectors/s, {gflops:.1} GFLOP/s, {gb_per_s:.1} GB/s");
        table.add_row(["rate", &rate]);
        let Self { invalid_indices, uncertified, .. } = self;
        let error = scientific(self.largest_score_error);
        let trust = format!(
            "{invalid_indices} invalid indices, {uncertified} uncertified scans, largest score error {error}"
        );
        table.add_row(["trust", &trust]);
        let Memory { rows_bytes, resident_bytes } = self.memory;
        let resident = resident_bytes.map_or_else(|| "unknown".to_owned(), mebibytes);
        table.add_row(["memory", &format!("rows {}, process {resident}", mebibytes(rows_bytes as u64))]);
        for line in self.limits.iter().flat_map(Limits::lines) {
            table.add_row(line);
        }
        if let Some(Checked { probes, positions, equal }) = self.checked {
            let text = format!("{equal} of {positions} positions of {probes} probes are those of plain f64");
            table.add_row(["checked", &text]);
        }
        table
    }
}

/// What a comparison says of each backend, beside the numbers of its column.
const COLUMN: [&str; 14] = [
    "device",
    "driver",
    "work",
    "scan ms",
    "device merge ms",
    "host merge ms",
    "verify ms",
    "total ms (median)",
    "M vectors/s",
    "GFLOP/s",
    "GB/s",
    "invalid indices",
    "uncertified scans",
    "largest score error",
];

/// Columns of [`Report::column`], each with `more` below.
pub(super) fn table_of_columns(more: &[String], columns: Vec<Vec<String>>) -> Table {
    let mut table = table([""]);
    table.set_header(std::iter::once(String::new()).chain(columns.iter().map(|column| column[0].clone())));
    let names = COLUMN.map(str::to_owned).into_iter().chain(more.iter().cloned());
    for (place, name) in names.enumerate() {
        table.add_row(std::iter::once(name).chain(columns.iter().map(|column| column[place + 1].clone())));
    }
    table
}

fn largest_error(answer: &[Vec<Ranked>]) -> Option<f64> {
    let error = |ranked: &Ranked| Some((f64::from(ranked.raw?) - f64::from(ranked.score)).abs());
    answer.iter().flatten().filter_map(error).max_by(f64::total_cmp)
}

fn scientific(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3e}"))
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Bytes of memory that this process holds, as Linux counts them.
pub(super) fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// The middle of at least one value.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

/// The value that so many in a hundred of at least one value do not exceed.
pub(super) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let place = (percent * sorted.len()).div_ceil(100);
    sorted[place.clamp(1, sorted.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median(vec![4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-12);
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        for (percent, expected) in [(0, 1.0), (50, 100.0), (99, 198.0), (100, 200.0)] {
            assert!((percentile(&values, percent) - expected).abs() < 1e-12, "{percent}");
        }
        assert!((percentile(&[7.0], 99) - 7.0).abs() < 1e-12);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_that_is_written_is_resident() {
        let before = resident_bytes().unwrap();
        let block = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(resident_bytes().unwrap() > before + (32 << 20));
        drop(block);
    }
}
