//! Plain Rust: what the other kernels are compared with. It runs everywhere, but the matrix crate's `f32` is faster, so it is used only
//! where the settings name it.

use std::ops::Range;

use super::{ENOUGH_HITS, GROUP, Grid, Hit, Kernel, PANEL, PANEL_GROUP_BYTES, Panels, Tiles};
use crate::config::Instructions;

const OFFSET: u8 = 128;

pub(super) const KERNEL: Kernel = Kernel {
    instructions: Instructions::Portable,
    grid: Grid { row: 127, probe: 127, offset: OFFSET, segment: usize::MAX, norm: f64::INFINITY, tile: 1 },
    start: |components| super::start_in_32_bits(OFFSET, components),
    is_present: || true,
    scan,
    peak,
    peak_products: PANEL_GROUP_BYTES as u64,
};

fn scan(panels: &Panels<'_>, tiles: &Tiles<'_>, range: Range<usize>, hits: &mut Vec<Hit>) -> usize {
    let groups = panels.groups;
    for panel in range.clone() {
        let codes =
            &panels.codes[panel * groups * PANEL_GROUP_BYTES..(panel + 1) * groups * PANEL_GROUP_BYTES];
        let rows = panel * PANEL..(panel + 1) * PANEL;
        let (measures, biases) = (&panels.measures[rows.clone()], &panels.biases[rows]);
        for (probe, words) in tiles.codes.chunks_exact(groups).enumerate() {
            let sums = products(codes, words, tiles.starts[probe]);
            let mut upper = [0.0_f32; PANEL];
            for row in 0..PANEL {
                let rest = measures[row].error() * tiles.norms[probe] + biases[row];
                upper[row] = sums[row] as f32 * (measures[row].scale() * tiles.scales[probe]) + rest;
            }
            let reaches = |row: usize| u32::from(upper[row] >= tiles.cuts[probe]) << row;
            let reached = (0..PANEL).map(reaches).fold(0, |all, row| all | row);
            if reached != 0 {
                hits.push(Hit { panel: panel as u32, probe: probe as u32, reached, upper });
            }
        }
        if hits.len() >= ENOUGH_HITS {
            return panel + 1;
        }
    }
    range.end
}

/// The products of one panel's rows with one probe.
fn products(codes: &[u8], words: &[i32], start: i32) -> [i32; PANEL] {
    let mut sums = [start; PANEL];
    for (group, word) in codes.as_chunks::<PANEL_GROUP_BYTES>().0.iter().zip(words) {
        add_products(&mut sums, group, word.to_le_bytes());
    }
    sums
}

#[inline]
fn add_products(sums: &mut [i32; PANEL], group: &[u8; PANEL_GROUP_BYTES], word: [u8; GROUP]) {
    let word = word.map(|byte| i16::from(byte.cast_signed()));
    for (sum, row) in sums.iter_mut().zip(group.as_chunks::<GROUP>().0) {
        for (code, component) in row.iter().zip(word) {
            *sum += i32::from(i16::from(*code)) * i32::from(component);
        }
    }
}

fn peak(rounds: u64) {
    let (mut sums, mut group) = ([0_i32; PANEL], [3_u8; PANEL_GROUP_BYTES]);
    for _ in 0..rounds {
        group = std::hint::black_box(group);
        add_products(&mut sums, &group, [1, 2, 3, 4]);
    }
    std::hint::black_box(sums);
}
