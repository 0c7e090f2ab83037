//! Every kernel that this processor can run, against sums written out.

use proptest::prelude::*;

use super::*;
use crate::config::Instructions;
use crate::domain::RowAlignment;

/// Rows and probes with the numbers that a scan takes.
struct Work {
    kernel: &'static Kernel,
    groups: usize,
    rows: Vec<Vec<i32>>,
    probes: Vec<Vec<i8>>,
}

/// Components within the kernel's grid, by turns small, large and at its limits.
fn components(seed: u64, limit: i32, grid: &Grid, count: usize) -> Vec<i32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as i32
    };
    let mut components: Vec<i32> = (0..count)
        .map(|_| match seed % 4 {
            0 => next() % (2 * limit + 1) - limit,
            1 => {
                if next() % 2 == 0 {
                    limit
                } else {
                    -limit
                }
            }
            2 => next() % 3 - 1,
            _ => limit * i32::from(next() % 9 == 0),
        })
        .collect();
    for segment in components.chunks_mut(grid.segment.saturating_mul(GROUP)) {
        let norm = segment.iter().map(|c| f64::from(c * c)).sum::<f64>().sqrt();
        if norm > grid.norm {
            for component in segment.iter_mut() {
                *component = (f64::from(*component) * grid.norm / norm) as i32;
            }
        }
    }
    components
}

impl Work {
    fn new(kernel: &'static Kernel, (rows, probes, groups): (usize, usize, usize), seed: u64) -> Self {
        let grid = &kernel.grid;
        let dim = groups * GROUP;
        let rows = (0..rows as u64).map(|row| components(seed + row, grid.row, grid, dim)).collect();
        let probes = (0..probes as u64)
            .map(|probe| components(seed + 3 * probe + 1, grid.probe, grid, dim))
            .map(|probe| probe.into_iter().map(|c| c as i8).collect())
            .collect();
        Self { kernel, groups, rows, probes }
    }

    fn codes(&self) -> aligned_vec::AVec<u8, RowAlignment> {
        let mut codes = aligned_vec::AVec::new(64);
        for panel in self.rows.chunks(PANEL) {
            for group in 0..self.groups {
                for row in 0..PANEL {
                    for component in group * GROUP..(group + 1) * GROUP {
                        let value = panel.get(row).map_or(0, |row| row[component]);
                        codes.push(stored(value, self.kernel.grid.offset));
                    }
                }
            }
        }
        codes
    }

    /// Words and starts, tile by tile.
    fn tiles(&self) -> (Vec<i32>, Vec<i32>) {
        let (mut words, mut starts) = (Vec::new(), Vec::new());
        let mut rest = &self.probes[..];
        while !rest.is_empty() {
            let (tile, further) = rest.split_at(tile_width(rest.len(), self.kernel.grid.tile));
            for group in 0..self.groups {
                words.extend(tile.iter().map(|probe| {
                    i32::from_le_bytes(std::array::from_fn(|c| probe[group * GROUP + c].cast_unsigned()))
                }));
            }
            for first in (0..self.groups).step_by(self.kernel.grid.segment) {
                let end = first.saturating_add(self.kernel.grid.segment).min(self.groups) * GROUP;
                starts.extend(tile.iter().map(|probe| (self.kernel.start)(&probe[first * GROUP..end])));
            }
            rest = further;
        }
        (words, starts)
    }

    /// Scans all panels, taking up again behind each that has hits; `upper` of every row and probe that hits.
    fn scan(&self, cut: f32) -> Vec<(usize, usize, f32)> {
        let (codes, (words, starts)) = (self.codes(), self.tiles());
        let padded = self.rows.len().next_multiple_of(PANEL);
        let measures: Vec<Measures> =
            (0..padded).map(|row| Measures::new(1.0 + (row % 3) as f32, (row % 5) as f32)).collect();
        let biases: Vec<f32> =
            (0..padded).map(|row| if row < self.rows.len() { row as f32 } else { f32::NAN }).collect();
        let norms = vec![2.0; self.probes.len()];
        let probe_scales: Vec<f32> = (0..self.probes.len()).map(|probe| 1.0 + (probe % 2) as f32).collect();
        let cuts = vec![cut; self.probes.len()];
        let panels = Panels { groups: self.groups, codes: &codes, measures: &measures, biases: &biases };
        let tiles =
            Tiles { codes: &words, starts: &starts, scales: &probe_scales, norms: &norms, cuts: &cuts };
        let (mut found, mut hits, mut panel) = (Vec::new(), Vec::new(), 0);
        while panel < padded / PANEL {
            panel = self.kernel.scan(&panels, &tiles, panel..padded / PANEL, &mut hits);
            for hit in &hits {
                for (row, upper) in hit.upper.iter().enumerate() {
                    assert_eq!(hit.reached >> row & 1 == 1, *upper >= cut);
                }
                let rows = hit.upper.iter().enumerate().filter(|(_, upper)| **upper >= cut);
                found.extend(
                    rows.map(|(row, upper)| (hit.panel as usize * PANEL + row, hit.probe as usize, *upper)),
                );
            }
        }
        found.sort_by_key(|(row, probe, _)| (*row, *probe));
        found
    }

    fn expected(&self, cut: f32) -> Vec<(usize, usize, f32)> {
        let mut expected = Vec::new();
        for (row, components) in self.rows.iter().enumerate() {
            for (probe, factors) in self.probes.iter().enumerate() {
                let sum: i64 =
                    components.iter().zip(factors).map(|(a, b)| i64::from(*a) * i64::from(*b)).sum();
                let scale = ((1 + row % 3) * (1 + probe % 2)) as f64;
                let upper = (sum as f64 * scale + row as f64 + 2.0 * (row % 5) as f64) as f32;
                if upper >= cut {
                    expected.push((row, probe, upper));
                }
            }
        }
        expected
    }
}

#[test]
fn measures_are_rounded_up_to_eight_bits_and_no_further() {
    for value in [0.0, 1.0, 1.5, 0.003_921_6, 1e-30, 3.999_999_8, f32::MIN_POSITIVE] {
        let half = half_precise(value);
        assert!(half >= value && half <= value * (1.0 + 1.0 / 128.0), "{value} {half}");
        let measures = Measures::new(half, value);
        assert_eq!([measures.scale(), measures.error()].map(f32::to_bits), [half.to_bits(); 2]);
    }
    assert_eq!(Measures::default(), Measures::new(0.0, 0.0));
}

#[test]
fn the_portable_kernel_is_always_there_and_comes_last() {
    assert_eq!(Kernel::present().last().map(|kernel| kernel.instructions), Some(Instructions::Portable));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Sums up to 2^24 are exact in `f32`, so every kernel must give the very numbers.
    #[test]
    fn kernels_give_the_sums(rows in 1_usize..70, probes in 1_usize..40, groups in 1_usize..40, seed in 0_u64..1000) {
        for kernel in Kernel::present() {
            let work = Work::new(kernel, (rows, probes, groups), seed);
            for cut in [f32::MIN, 0.0, 20_000.0, f32::INFINITY] {
                prop_assert_eq!(work.scan(cut), work.expected(cut), "{:?} cut {}", kernel.instructions, cut);
            }
        }
    }
}

/// The largest components that the grid allows, in every segment, with all signs: what would overflow first.
#[test]
fn sums_at_the_limits_do_not_overflow() {
    for kernel in Kernel::present() {
        let grid = &kernel.grid;
        // The longest rows stand alone, so that no factor takes their score beyond what `f32` holds exactly.
        for (groups, rows, probes) in [(1, 17, 5), (8, 17, 5), (32, 17, 5), (128, 1, 1)] {
            let dim = groups * GROUP;
            let full = |limit: i32| {
                let many = dim.min(grid.segment.saturating_mul(GROUP)) as f64;
                let magnitude = f64::from(limit.abs()).min(grid.norm / many.sqrt()) as i32;
                vec![magnitude * limit.signum(); dim]
            };
            let sparse =
                |limit: i32| (0..dim).map(|c| if c % 32 < 2 { limit } else { 0 }).collect::<Vec<i32>>();
            let shapes: [&dyn Fn(i32) -> Vec<i32>; 2] = [&full, &sparse];
            for shape in shapes {
                for (row_sign, probe_sign) in [(1, 1), (1, -1), (-1, 1), (-1, -1)] {
                    let probe = shape(grid.probe * probe_sign).into_iter().map(|c| c as i8).collect();
                    let row = shape(grid.row).into_iter().map(|c| c * row_sign).collect();
                    let work = Work { kernel, groups, rows: vec![row; rows], probes: vec![probe; probes] };
                    let name = kernel.instructions;
                    assert_eq!(work.scan(f32::MIN), work.expected(f32::MIN), "{name:?} {groups}");
                }
            }
        }
    }
}
