//! The pictures of a calibration: scores of pairs, the trade between false positives and misses, and where the wished-for rate is kept.

use super::drawing::Drawing;
use super::percent;
use super::plot::{Axis, BLUE, GREEN, Mark, ORANGE, Point, Scale, Series, curves, histogram, map};
use crate::quality::calibrate::pairs::PairScores;
use crate::quality::calibrate::{Calibration, Rates, Recommendation, cut};

/// Cells of the map that is drawn, and points of a curve.
const MAP: (usize, usize) = (60, 40);
const POINTS: usize = 120;

/// Pictures and their names.
pub(super) fn pictures(
    calibration: &Calibration,
    best: &Recommendation,
    pairs: &PairScores,
) -> [(&'static str, Drawing); 3] {
    [("scores", scores(best, pairs)), ("det", trade_off(calibration, best)), ("map", kept(calibration, best))]
}

/// What is recommended, and what it is called.
fn recommended(best: &Recommendation) -> Vec<(&'static str, Rates)> {
    let kinds = [("estimated", best.estimated), ("promised", best.promised)];
    kinds.into_iter().filter_map(|(kind, pair)| Some((kind, pair?.rates))).collect()
}

fn scores(best: &Recommendation, pairs: &PairScores) -> Drawing {
    let wide = |scores: &[f32]| scores.iter().copied().map(f64::from).collect::<Vec<f64>>();
    let (same, different) = (wide(&pairs.same), wide(&pairs.different));
    let series = [
        Series { name: "same person", colour: BLUE, values: &same },
        Series { name: "different", colour: ORANGE, values: &different },
    ];
    let recommended = recommended(best);
    let thresholds: Vec<Mark<'_>> =
        recommended.iter().map(|(kind, rates)| (f64::from(rates.threshold), *kind)).collect();
    histogram("Scores of pairs, and thresholds", "score", &series, &thresholds)
}

/// Detection error trade-off, along the threshold: without a margin and with the recommended ones.
fn trade_off(calibration: &Calibration, best: &Recommendation) -> Drawing {
    let (low, high) = span(calibration);
    let curve = |margin: f32| -> Vec<(f64, f64)> {
        steps(low, high, POINTS).iter().map(|threshold| calibration.shares(cut(*threshold, margin))).collect()
    };
    let recommended = recommended(best);
    // Each margin once.
    let mut margins = vec![("no margin", 0.0_f32, ORANGE)];
    for ((kind, rates), colour) in recommended.iter().zip([GREEN, BLUE]) {
        if margins.iter().all(|(_, margin, _)| margin.to_bits() != rates.min_margin.to_bits()) {
            margins.push((kind, rates.min_margin, colour));
        }
    }
    let values: Vec<Vec<(f64, f64)>> = margins.iter().map(|(_, margin, _)| curve(*margin)).collect();
    let lines = margins.iter().zip(&values);
    let series: Vec<_> =
        lines.map(|((name, _, colour), values)| Series { name, colour: *colour, values }).collect();
    let points: Vec<Point<'_>> = recommended
        .iter()
        .map(|(kind, rates)| (calibration.shares(cut(rates.threshold, rates.min_margin)), *kind))
        .collect();
    let least = 0.5 / calibration.non_mated().len().max(1) as f64;
    let axis = |label| Axis { label, low: least, high: 1.0, scale: Scale::Logarithmic };
    let axes = (axis("strangers named (FPIR)"), axis("persons missed (FNIR)"));
    curves("False positives and misses", axes, &series, &points)
}

/// Who is named where no more than the wished-for rate was found.
fn kept(calibration: &Calibration, best: &Recommendation) -> Drawing {
    let (low, high) = span(calibration);
    let most = calibration.most_margin().max(1e-3);
    let middle =
        |low: f32, high: f32, at: usize, of: usize| low + (high - low) * (at as f32 + 0.5) / of as f32;
    let cell = |row: usize, column: usize| {
        let under = cut(middle(low, high, column, MAP.0), middle(0.0, most, row, MAP.1));
        let (named, missed) = calibration.shares(under);
        if named <= best.wished { 1.0 - missed } else { 0.0 }
    };
    let values: Vec<Vec<f64>> =
        (0..MAP.1).map(|row| (0..MAP.0).map(|column| cell(row, column)).collect()).collect();
    let axis = |label, low: f32, high: f32| Axis {
        label,
        low: f64::from(low),
        high: f64::from(high),
        scale: Scale::Linear,
    };
    let title = format!("Persons named, where at most {} of strangers were", percent(Some(best.wished)));
    let recommended = recommended(best);
    let points: Vec<Point<'_>> = recommended
        .iter()
        .map(|(kind, rates)| ((f64::from(rates.threshold), f64::from(rates.min_margin)), *kind))
        .collect();
    map(&title, (axis("threshold", low, high), axis("least margin", 0.0, most)), &values, &points)
}

/// From the score that all but one in twenty strangers reach to the one that one in twenty persons does.
pub(super) fn span(calibration: &Calibration) -> (f32, f32) {
    let strangers = calibration.non_mated();
    let low = strangers.get(strangers.len() * 19 / 20).map_or(-1.0, |one| one.score);
    let mut scores: Vec<f32> = calibration.mated().iter().map(|one| one.score).collect();
    scores.sort_by(f32::total_cmp);
    let high = scores.get(scores.len() * 19 / 20).copied().unwrap_or(1.0);
    if low < high { (low, high) } else { (-1.0, 1.0) }
}

/// So many even steps.
pub(super) fn steps(low: f32, high: f32, count: usize) -> Vec<f32> {
    (0..count).map(|step| low + (high - low) * step as f32 / (count - 1) as f32).collect()
}
