//! Bringing rows into the buffers that will hold them, a little at a time: from the host, or out of the buffers of the generation before.
//!
//! ```text
//! former  chunk 0 |aaaaaaaaaa|  chunk 1 |bbbbcc....|
//!                   \\\\\\ copied on the device
//! later   chunk 0 |x|aaaaaaaa|  chunk 1 |aabbbbyycc|      x, y: written by the host
//! ```

use std::ops::Range;
use std::rc::Rc;

use super::{Layout, Resident};
use crate::backend::BackendError;
use crate::backend::opencl::driver::device::Device;
use crate::domain::{Kept, Matrix};

/// Bytes of a step: a scan that comes meanwhile waits so long at most.
const STEP_BYTES: usize = 4 << 20;

/// Commands of a step, where they are of few bytes each.
const STEP_PIECES: usize = 64;

/// Rows within one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spot {
    chunk: usize,
    /// Within the chunk.
    row: usize,
}

/// What is brought by one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    from: From,
    to: Spot,
    rows: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// The host's rows from this one on.
    Host(usize),
    /// The former generation's.
    Former(Spot),
}

/// What is still to be brought.
#[derive(Debug)]
pub(super) struct Filling {
    former: Option<Rc<Resident>>,
    /// The next one last.
    pieces: Vec<Piece>,
}

impl Filling {
    /// All rows of `layout`, of `stride` values each.
    pub(super) fn new(layout: &Layout, stride: usize, former: Option<(&Rc<Resident>, &[Kept])>) -> Self {
        let most = (STEP_BYTES / (stride * size_of::<f32>())).max(1);
        let kept = former.map(|(resident, kept)| (&resident.layout, kept));
        let mut pieces = plan(layout, kept, most);
        pieces.reverse();
        let copied = |piece: &Piece| if matches!(piece.from, From::Former(_)) { piece.rows } else { 0 };
        let copied: usize = pieces.iter().map(copied).sum();
        if copied > 0 {
            tracing::debug!(copied, rows = layout.range.len(), "rows that stay are copied on the device");
        }
        Self { former: former.map(|(resident, _)| Rc::clone(resident)), pieces }
    }

    /// Brings some rows; whether all are there.
    pub(super) fn step(
        &mut self,
        device: &Device,
        matrix: &Matrix,
        into: &Resident,
    ) -> Result<bool, BackendError> {
        let stride = matrix.stride();
        let (mut bytes, mut count) = (0, 0);
        while bytes < STEP_BYTES && count < STEP_PIECES {
            let Some(Piece { from, to, rows }) = self.pieces.pop() else { return Ok(true) };
            let target = (&into.chunks[to.chunk], to.row * stride);
            match (from, &self.former) {
                (From::Former(from), Some(former)) => {
                    device.copy((&former.chunks[from.chunk], from.row * stride), target, rows * stride)?;
                }
                (From::Host(first), _) => device.write_at(target, matrix.block(first, rows))?,
                // No plan has it.
                (From::Former(_), None) => {}
            }
            bytes += rows * stride * size_of::<f32>();
            count += 1;
        }
        Ok(self.pieces.is_empty())
    }
}

/// How all rows of `layout` come there, in their order, at most so many at once.
fn plan(layout: &Layout, former: Option<(&Layout, &[Kept])>, most: usize) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut next = layout.range.start;
    if let Some((former, kept)) = former {
        for stretch in kept {
            let Some(Kept { from, to, count }) = within(*stretch, &former.range, &layout.range) else {
                continue;
            };
            parted(layout, next..to, most, |row| (From::Host(row), usize::MAX), &mut pieces);
            let copied = |row: usize| {
                let from = from + (row - to);
                (From::Former(former.spot(from)), former.left(from))
            };
            parted(layout, to..to + count, most, copied, &mut pieces);
            next = to + count;
        }
    }
    parted(layout, next..layout.range.end, most, |row| (From::Host(row), usize::MAX), &mut pieces);
    pieces
}

/// The part of a stretch whose rows are in these ranges, before and after.
fn within(stretch: Kept, from: &Range<usize>, to: &Range<usize>) -> Option<Kept> {
    let before = from.start.saturating_sub(stretch.from).max(to.start.saturating_sub(stretch.to));
    let end = from.end.saturating_sub(stretch.from).min(to.end.saturating_sub(stretch.to)).min(stretch.count);
    (before < end).then(|| Kept { from: stretch.from + before, to: stretch.to + before, count: end - before })
}

/// Parts rows of `layout` where chunks end, at home or where they come from; `from` says where a row comes from, and how many stand there
/// in one piece.
fn parted(
    layout: &Layout,
    rows: Range<usize>,
    most: usize,
    from: impl Fn(usize) -> (From, usize),
    into: &mut Vec<Piece>,
) {
    let mut row = rows.start;
    while row < rows.end {
        let (from, there) = from(row);
        let count = most.min(there).min(layout.left(row)).min(rows.end - row);
        into.push(Piece { from, to: layout.spot(row), rows: count });
        row += count;
    }
}

impl Layout {
    /// Where a row of the gallery lies.
    fn spot(&self, row: usize) -> Spot {
        let place = row - self.range.start;
        Spot { chunk: place / self.per_chunk, row: place % self.per_chunk }
    }

    /// How many rows its chunk has from it on.
    fn left(&self, row: usize) -> usize {
        self.per_chunk - (row - self.range.start) % self.per_chunk
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout(range: Range<usize>, per_chunk: usize) -> Layout {
        Layout { range, per_chunk }
    }

    #[test]
    fn without_a_former_generation_all_rows_come_from_the_host() {
        let spot = |chunk, row| Spot { chunk, row };
        let piece = |first, to, rows| Piece { from: From::Host(first), to, rows };
        assert_eq!(
            plan(&layout(10..17, 4), None, 3),
            [piece(10, spot(0, 0), 3), piece(13, spot(0, 3), 1), piece(14, spot(1, 0), 3)]
        );
        assert_eq!(plan(&layout(5..5, 4), None, 3), []);
    }

    proptest! {
        /// Every row is brought once, in order, and to where it belongs: from the former generation if and only if it is kept and there.
        #[test]
        fn a_plan_brings_every_row_from_where_it_is(
            ranges in (0_usize..40, 0_usize..60, 0_usize..40, 0_usize..60),
            sizes in (1_usize..20, 1_usize..20, 1_usize..15),
            steps in proptest::collection::vec((0_usize..9, 0_usize..30, 1_usize..20), 0..6),
        ) {
            let (to, from) = (ranges.0..ranges.0 + ranges.1, ranges.2..ranges.2 + ranges.3);
            let (later, former) = (layout(to.clone(), sizes.0), layout(from.clone(), sizes.1));
            let mut next = 0;
            let kept: Vec<Kept> = steps.iter().map(|&(gap, from, count)| {
                let kept = Kept { from, to: next + gap, count };
                next += gap + count;
                kept
            }).collect();
            let mut row = to.start;
            for piece in plan(&later, Some((&former, &kept)), sizes.2) {
                prop_assert!(piece.rows > 0 && piece.rows <= sizes.2);
                prop_assert_eq!(piece.to, later.spot(row));
                prop_assert!(piece.rows <= later.left(row));
                for offset in 0..piece.rows {
                    let row = row + offset;
                    let stretch = kept.iter().find(|kept| (kept.to..kept.to + kept.count).contains(&row));
                    let source = stretch.map(|kept| kept.from + (row - kept.to)).filter(|row| from.contains(row));
                    match piece.from {
                        From::Host(first) => {
                            prop_assert_eq!(first + offset, row);
                            prop_assert_eq!(source, None);
                        }
                        From::Former(spot) => {
                            let source = source.map(|row| former.spot(row));
                            prop_assert_eq!(source, Some(Spot { row: spot.row + offset, ..spot }));
                        }
                    }
                }
                row += piece.rows;
            }
            prop_assert_eq!(row, to.end);
        }
    }
}
