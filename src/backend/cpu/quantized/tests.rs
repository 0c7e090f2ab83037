//! The bounds that the module's head proves, against scores in `f64`, for every pair of row and probe.

use proptest::prelude::*;

use super::axes::Axes;
use super::outline::Outline;
use super::probes::Side;
use super::*;
use crate::backend::cpu::kernel::Kernel;
use crate::backend::cpu::tests::{LIES, matrix, vector};
use crate::domain::Matrix;

/// Upper ends of all rows' scores for all probes, `[probe][row]`, by `panels`.
fn uppers(kernel: &Kernel, panels: &Panels<'_>, side: &Side, probes: usize) -> Vec<Vec<f32>> {
    let mut uppers = vec![vec![f32::NAN; panels.measures.len()]; probes];
    let cuts = vec![f32::NEG_INFINITY; probes];
    let (mut hits, mut next, end) = (Vec::new(), 0, panels.measures.len() / PANEL);
    while next < end {
        next = kernel.scan(panels, &side.tiles(&(0..probes), &cuts), next..end, &mut hits);
        for hit in &hits {
            let probe = hit.probe as usize;
            for (place, upper) in hit.upper.iter().enumerate() {
                uppers[probe][hit.panel as usize * PANEL + place] = upper + side.base(probe);
            }
        }
    }
    uppers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn no_upper_end_is_below_the_score_whole_or_in_outline(
        rows in 1_usize..70,
        dim in 32_usize..600,
        probes in 1_usize..9,
        lies in (0..LIES.len(), 0..LIES.len()),
        seed in 0_u64..1_000_000,
    ) {
        let rows = matrix(dim, (0..rows as u64).map(|row| vector(LIES[lies.0], dim, row, seed)));
        let probes = matrix(dim, (0..probes as u64).map(|p| vector(LIES[if p % 2 == 0 { lies.0 } else { lies.1 }], dim, p, seed + p % 3)));
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        for kernel in Kernel::present() {
            let mut quantized = QuantizedRows::new(&rows, kernel);
            let centre = quantized.centre().to_vec();
            // All rows at the centre: there are no axes.
            if let Some((axes, _)) = Axes::find(&rows, &centre, 32) {
                quantized.outline = Some(Outline::along(axes, &rows, &centre, kernel));
            }
            let mut filled = QuantizedProbes::default();
            filled.fill(&probes, &quantized, kernel, &pool);
            let whole = uppers(kernel, &quantized.panels(), filled.whole(), probes.rows());
            let outline = quantized.outline().map(|(_, panels)| uppers(kernel, &panels, filled.outline(), probes.rows()));
            for probe in 0..probes.rows() {
                for row in 0..rows.rows() {
                    let score = product(&probes, probe, &rows, row);
                    let upper = f64::from(whole[probe][row]);
                    let error = filled.error(probe, quantized.panels().measures[row].error());
                    prop_assert!(score <= upper && score >= upper - 2.0 * f64::from(error));
                    if let Some(outline) = &outline {
                        // No more than the norms' product, and what quantising may take.
                        prop_assert!(score <= f64::from(outline[probe][row]) && outline[probe][row] < 5.0);
                    }
                }
            }
        }
    }
}

fn product(probes: &Matrix, probe: usize, rows: &Matrix, row: usize) -> f64 {
    probes.row(probe).iter().zip(rows.row(row)).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}
