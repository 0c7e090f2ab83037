//! Every kernel of the family on PoCL, against plain `f64`. They fail where PoCL is missing.
//!
//! How scores are computed (`dot.cl`, `block.cl`) and how lists are kept (`lists.cl`, `lanes.cl`) meet in `item_scores` alone, so
//! every way of the one is run with one of the other, and every way of the other with one of each form of the one.

use std::cell::RefCell;
use std::sync::Arc;

use super::variant::{
    Accumulators, Block, BlockProbes, BlockRows, Dot, Lanes, ProbePlace, ProbeTile, Single, Strategy, Turns,
    Unroll, Variant, Width,
};
use super::{Stage, Trial, Tuning, measure, wanted};
use crate::backend::opencl::OpenClBackend;
use crate::backend::opencl::rows::Rows;
use crate::backend::opencl::tests::{no_skips, open, settings, some_skips, unit_rows};
use crate::backend::opencl::tune::{Made, check, check_candidates, exact_scores};
use crate::backend::{Ask, Backend, Loaded, RowSet, ScreenJob, Screened};
use crate::config::OpenClSettings;
use crate::domain::Matrix;

/// Rows and probes with the real scores.
struct Bench {
    backend: OpenClBackend,
    rows: Rows,
    /// The same rows, as they serve.
    loaded: RefCell<Box<dyn Loaded>>,
    probes: Matrix,
    skips: Vec<RowSet>,
    exact: Vec<Vec<f64>>,
}

/// How much is compared with how much.
#[derive(Clone, Copy)]
struct Size {
    rows: usize,
    probes: usize,
    dim: usize,
    chunk_rows: usize,
}

impl Bench {
    fn new(Size { rows, probes, dim, chunk_rows }: Size) -> Self {
        let mut backend = open(&OpenClSettings { chunk_rows, ..settings() });
        let matrix = Arc::new(unit_rows(rows, dim, rows as u64));
        let loaded = RefCell::new(backend.load(&matrix).unwrap());
        let probes = unit_rows(probes, dim, 1_000_000);
        let placement = backend.placement(matrix.rows());
        let on_device =
            Rows::load(&backend.engine.borrow().device, &matrix, placement, &backend.budget).unwrap();
        let exact = (0..probes.rows()).map(|probe| exact_scores(probes.row(probe), &matrix)).collect();
        let skips = some_skips(probes.rows(), rows);
        Self { backend, rows: on_device, loaded, probes, skips, exact }
    }

    /// Serves more rows a probe than a list holds.
    fn check_scores(&self, variant: Variant) {
        let usual = Tuning::NARROW;
        self.backend.engine.borrow_mut().tuning = Tuning { few: variant, many: variant, ..usual };
        let mut loaded = self.loaded.borrow_mut();
        let asks: Vec<Ask<'_>> = self.skips.iter().map(|skip| Ask { k: 257, skip }).collect();
        let mut screened = Screened::default();
        loaded.screen(&ScreenJob { probes: &self.probes, asks: &asks, attempt: 0 }, &mut screened).unwrap();
        for (probe, (found, exact)) in screened.probes.iter().zip(&self.exact).enumerate() {
            check_candidates(found, exact, asks[probe])
                .unwrap_or_else(|wrong| panic!("{variant}, every score, probe {probe}: {wrong}"));
        }
    }

    /// Runs a kernel and holds what it found for every probe against the real scores.
    fn check(&self, trial: Trial) {
        let none = no_skips(self.probes.rows());
        let skips = if trial.stage == Stage::Full { [&none, &self.skips].to_vec() } else { vec![&none] };
        for skips in skips {
            let asks: Vec<Ask<'_>> = skips.iter().map(|skip| Ask { k: trial.list, skip }).collect();
            let engine = &mut *self.backend.engine.borrow_mut();
            let measured = measure(engine, &self.rows, &self.probes, &asks, trial)
                .unwrap_or_else(|error| panic!("{}, {}: {error}", trial.variant, trial.stage));
            assert_eq!(measured.found.len(), self.probes.rows());
            let made = Made { bound: measured.bound, list: trial.list, chunk_rows: self.rows.chunk_rows() };
            for (probe, (found, exact)) in measured.found.iter().zip(&self.exact).enumerate() {
                check(found, exact, asks[probe], made).unwrap_or_else(|wrong| {
                    panic!("{}, {}, list {}, probe {probe}: {wrong}", trial.variant, trial.stage, trial.list)
                });
            }
        }
    }
}

/// Computes scores in this way for lists, and where every score is wanted.
fn check_dot(bench: &Bench, dot: Dot) {
    let variant = Variant { dot, ..Tuning::WIDE.many };
    // Eight lanes leave a few of these rows to each.
    bench.check(Trial { variant, stage: Stage::Full, list: 8 });
    bench.check_scores(variant);
}

fn singles() -> Vec<Single> {
    let mut all = Vec::new();
    for &width in Width::ALL {
        for &accumulators in Accumulators::ALL {
            for &unroll in Unroll::ALL {
                for &probe in ProbePlace::ALL {
                    all.extend(ProbeTile::ALL.iter().map(|&tile| Single {
                        width,
                        accumulators,
                        unroll,
                        probe,
                        tile,
                    }));
                }
            }
        }
    }
    all
}

fn blocks() -> Vec<Block> {
    let mut all = Vec::new();
    for &rows in BlockRows::ALL {
        for &probes in BlockProbes::ALL {
            all.extend(Turns::ALL.iter().map(|&turns| Block { rows, probes, turns }));
        }
    }
    all
}

/// A dim whose padded rows leave a rest to every way of unrolling, rows and probes that nothing divides, and several chunks; rows
/// that no list holds.
const ODD: Size = Size { rows: 269, probes: 23, dim: 93, chunk_rows: 97 };

fn check_singles(width: Width) {
    let bench = Bench::new(ODD);
    let of_width: Vec<Single> = singles().into_iter().filter(|single| single.width == width).collect();
    assert_eq!(of_width.len(), 24);
    for single in of_width {
        check_dot(&bench, Dot::Single(single));
    }
}

#[test]
fn every_dot_product_of_single_components_is_right() {
    check_singles(Width::Scalar);
}

#[test]
fn every_dot_product_of_rows_by_four_is_right() {
    check_singles(Width::RowsFour);
}

#[test]
fn every_dot_product_of_rows_by_eight_is_right() {
    check_singles(Width::RowsEight);
}

#[test]
fn every_dot_product_of_both_by_four_is_right() {
    check_singles(Width::BothFour);
}

#[test]
fn every_dot_product_of_both_by_eight_is_right() {
    check_singles(Width::BothEight);
}

#[test]
fn every_block_is_right() {
    // More probes than sixteen blocks of four, so that every number of turns leaves a rest.
    let bench = Bench::new(Size { probes: 71, ..ODD });
    let blocks = blocks();
    assert_eq!(blocks.len(), 36);
    for block in blocks {
        check_dot(&bench, Dot::Block(block));
    }
}

/// Every number of lanes with this way into a list, and every stage with one number of them.
fn check_lists(strategy: Strategy) {
    let bench = Bench::new(ODD);
    let usual = Lanes::Four;
    let narrow = Block { rows: BlockRows::Two, probes: BlockProbes::Four, turns: Turns::Four };
    for dot in [Dot::Single(Single::FLOAT4), Dot::Block(narrow)] {
        let all_lanes = Lanes::ALL.iter().map(|&lanes| (lanes, Stage::Full));
        let all_stages = Stage::ALL.into_iter().map(|stage| (usual, stage));
        for (lanes, stage) in all_lanes.chain(all_stages) {
            bench.check(Trial { variant: Variant { lanes, strategy, dot }, stage, list: 8 });
        }
    }
}

#[test]
fn every_list_by_sorted_insertion_is_right() {
    check_lists(Strategy::SortedInsertion);
}

#[test]
fn every_list_by_min_replace_is_right() {
    check_lists(Strategy::MinReplace);
}

#[test]
fn every_list_by_threshold_and_min_replace_is_right() {
    check_lists(Strategy::ThresholdMinReplace);
}

/// The named sizes, each as rows, probes, dim and list in turn (probes and lists as far as a launch and a device go).
#[test]
fn sizes_that_nothing_divides_are_right_in_every_form() {
    let forms = [Tuning::WIDE.many, Tuning::NARROW.few, Tuning::NARROW.many];
    for (rows, probes, dim, list, chunk_rows) in [
        (1, 1, 1, 8, 1),
        (7, 144, 7, 8, 1),
        (93, 7, 93, 16, 7),
        (144, 93, 144, 256, 144),
        (4096, 7, 7, 64, 1000),
        (4093, 1, 93, 128, 4096),
        (7, 13, 4096, 8, 93),
        (997, 251, 13, 32, 331),
    ] {
        let bench = Bench::new(Size { rows, probes, dim, chunk_rows });
        for variant in forms {
            bench.check(Trial { variant, stage: Stage::Full, list });
        }
    }
}

#[test]
fn each_attempt_wants_four_times_as_many_up_to_all() {
    assert_eq!(wanted(1, 0, 1000), 9);
    assert_eq!(wanted(32, 0, 1000), 40);
    assert_eq!(wanted(100, 0, 1000), 125);
    assert_eq!(wanted(100, 1, 1000), 500);
    assert_eq!(wanted(100, 2, 1000), 1000);
    assert_eq!(wanted(usize::MAX, 40, 7), 7);
    assert_eq!(wanted(5, 0, 0), 1);
}
