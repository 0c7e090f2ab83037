//! Rows along the few axes in which they differ most: what a row cannot make up for need not be looked at further.
//!
//! A row's shadow on an eighth of the axes tells most rows from those that a probe looks for, where embeddings lie near a plane of few
//! dimensions, as those of many models do. It costs an eighth of the arithmetic and of the memory to read; whatever passes is then
//! scored whole, so that nothing is owed to how well the axes were chosen.

use rayon::prelude::*;

use super::axes::Axes;
use super::rows::{Codes, TASK_PANELS};
use super::steps::{Centred, rounded_up, write_row};
use crate::backend::cpu::kernel::{GROUP, Kernel, Measures, PANEL, PANEL_GROUP_BYTES, Panels};
use crate::backend::cpu::multiply::{View, error_of_product};
use crate::domain::Matrix;

/// A row of fewer components is scored as fast as an outline of it would be.
const LEAST_DIM: usize = 256;

/// Components to an axis.
const COMPONENTS_AN_AXIS: usize = 8;

/// Axes come by so many: those that a kernel sums at once.
const AXES_STEP: usize = 32;

/// More axes than this would take long to find and hardly be needed.
const MOST_AXES: usize = 128;

/// Fewer rows are scanned faster than axes are found.
const LEAST_ROWS: usize = 1024;

/// How much of what rows differ in must lie along the axes: what does not, times that of a probe, must stay below how much better
/// the rows are that are looked for.
const LEAST_ALONG: f64 = 0.5;

/// The rows' shadows on some axes, quantised: about an eighth of a byte a component, and 4 bytes a row. At most how much of a row lies beside
/// the axes stands where its error would.
#[derive(Debug)]
pub(in crate::backend::cpu) struct Outline {
    axes: Axes,
    /// The centre's shadow.
    centre: Vec<f32>,
    codes: Codes,
    /// How far a shadow may be from where it was computed to be.
    blur: f64,
    /// Largest norm of a shadow as quantised.
    reach: f64,
    /// Largest norm of a shadow's error.
    worst_error: f64,
}

impl Outline {
    /// Of rows that are worth it, on the threads of the current pool.
    pub(super) fn new(rows: &Matrix, centre: &[f32], kernel: &Kernel) -> Option<Self> {
        if rows.dim() < LEAST_DIM || rows.rows() < LEAST_ROWS {
            return None;
        }
        let count = (rows.dim() / COMPONENTS_AN_AXIS / AXES_STEP * AXES_STEP).min(MOST_AXES);
        let (axes, along) = Axes::find(rows, centre, count)?;
        (along >= LEAST_ALONG).then(|| Self::along(axes, rows, centre, kernel))
    }

    /// Of any rows, along any axes.
    pub(super) fn along(axes: Axes, rows: &Matrix, whole_centre: &[f32], kernel: &Kernel) -> Self {
        let centre = axes.project(View::new(whole_centre, 1, rows.dim()));
        // Two shadows are taken from each other, of vectors whose norms are at most 1 + 1e-5, on axes no longer than 1.
        let blur = 2.0 * (axes.count() as f64).sqrt() * error_of_product(rows.dim(), 1.0 + 1e-4);
        let mut codes = Codes::new(rows.rows(), axes.count(), kernel);
        let groups = codes.groups;
        let (reach, worst_error) = codes
            .tasks()
            .enumerate()
            .map(|(task, (bytes, measures))| {
                let first = task * TASK_PANELS * PANEL;
                let count = measures.len().min(rows.rows() - first);
                let shadows = axes.project(View::of(rows, first, count));
                let mut steps = vec![0; groups * GROUP];
                let (mut reach, mut worst_error) = (0.0_f64, 0.0_f64);
                for (row, shadow) in shadows.chunks_exact(axes.count()).enumerate() {
                    let shadow = Centred { vector: shadow, centre: &centre };
                    let found = shadow.quantize(&kernel.grid, kernel.grid.row, &mut steps);
                    let panel = &mut bytes[row / PANEL * groups * PANEL_GROUP_BYTES..];
                    write_row(
                        &mut panel[..groups * PANEL_GROUP_BYTES],
                        row % PANEL,
                        &steps,
                        kernel.grid.offset,
                    );
                    let whole = Centred { vector: rows.row(first + row), centre: whole_centre };
                    measures[row] = Measures::new(found.scale, rest(whole.norm(), found.norm, blur));
                    (reach, worst_error) = (reach.max(found.reach), worst_error.max(found.error));
                }
                (reach, worst_error)
            })
            .reduce(|| (0.0, 0.0), |a, b| (a.0.max(b.0), a.1.max(b.1)));
        Self { axes, centre, codes, blur, reach, worst_error }
    }

    /// Panels whose scores' upper ends lack what [`slack`](Self::slack) says.
    pub(super) fn panels<'a>(&'a self, biases: &'a [f32]) -> Panels<'a> {
        Panels { groups: self.codes.groups, codes: &self.codes.bytes, measures: &self.codes.measures, biases }
    }

    pub(super) fn axes(&self) -> &Axes {
        &self.axes
    }

    /// The centre's shadow, to be subtracted from those of probes.
    pub(super) fn centre(&self) -> &[f32] {
        &self.centre
    }

    /// At most how much of a probe lies beside the axes, by its norm and that of its shadow.
    pub(super) fn rest(&self, norm: f64, shadow_norm: f64) -> f32 {
        rest(norm, shadow_norm, self.blur)
    }

    /// What quantising may take from the product of any row's shadow and a probe's, by the norm of that and of its error:
    /// `|d| |s r| + |z| |e|`, blur included.
    pub(super) fn slack(&self, shadow_norm: f64, error: f64) -> f64 {
        (error + self.blur) * self.reach + (shadow_norm + self.blur) * (self.worst_error + self.blur)
    }

    /// Bytes held.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let numbers = self.codes.measures.len() + self.centre.len() * (1 + self.axes.dim());
        self.codes.bytes.len() + numbers * size_of::<f32>()
    }
}

/// `sqrt(norm^2 - |shadow|^2)`, not less than it is. The last term is more than `f64` sums may err.
fn rest(norm: f64, shadow_norm: f64, blur: f64) -> f32 {
    let shadow = (shadow_norm - blur).max(0.0);
    rounded_up((norm * norm - shadow * shadow).max(0.0).sqrt() + 1e-6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_no_less_than_it_is() {
        for (norm, shadow) in [(1.0_f64, 0.6_f64), (1.0, 1.0), (2.0, 0.0), (1e-9, 1e-9), (0.3, 0.299_999_999)]
        {
            for blur in [0.0, 1e-4] {
                let real = (norm * norm - shadow * shadow).max(0.0).sqrt();
                // The shadow was computed as long as it can be for what it is.
                let found = f64::from(rest(norm, shadow + blur, blur));
                assert!(found >= real && found <= real + 1e-5, "{found} {real}");
                assert!(f64::from(rest(norm, shadow - blur, blur)) >= real);
            }
        }
    }
}
