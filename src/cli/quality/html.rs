//! The report of `lookalike validate` as one HTML file: figures, pictures, and every probe that did not come out right.

use std::fmt::Write;

use super::drawing::{Colour, Escaped};
use super::percent;
use super::plot::{Axis, BLUE, GREEN, GREY, ORANGE, Scale, Series, histogram, scatter};
use super::validate::Report;
use crate::quality::validate::{Case, Outcome, Place};

/// Most probes that one picture shows one by one; of more, so many are taken evenly.
const MOST_DOTS: usize = 4000;

const STYLE: &str = "body{font-family:sans-serif;margin:2em;max-width:72em}table{border-collapse:collapse;margin:1em 0}\
td,th{border:1px solid #ccc;padding:.25em .6em;text-align:left}th{background:#f3f3f3}td.n{text-align:right}";

/// Probes that are shown alike: their name, their colour, and which they are.
type Kind = (&'static str, Colour, fn(&Case) -> bool);

/// The page; `cases` are all probes.
pub(super) fn page(report: &Report, cases: &[Case]) -> String {
    let mut page = String::new();
    let title = format!("Recognition of {}", report.gallery);
    put(
        &mut page,
        format_args!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>",
            Escaped(&title)
        ),
    );
    put(&mut page, format_args!("<style>{STYLE}</style></head><body>\n<h1>{}</h1>", Escaped(&title)));
    figures(&mut page, report);
    for missed in &report.missed {
        put(&mut page, format_args!("<p><strong>{}</strong></p>", Escaped(missed)));
    }
    pictures(&mut page, cases);
    case_table(&mut page, &report.cases);
    backends(&mut page, report);
    put(&mut page, format_args!("</body></html>"));
    page
}

fn put(page: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(page, "{line}");
}

fn figures(page: &mut String, report: &Report) {
    let counts = &report.counts;
    let rows = [
        ("prototypes", report.prototypes.to_string()),
        ("identities", report.identities.to_string()),
        ("known probes", counts.known.to_string()),
        ("recognized", counts.recognized.to_string()),
        ("below threshold", counts.below_threshold.to_string()),
        ("ambiguous", counts.ambiguous.to_string()),
        ("displaced", counts.displaced.to_string()),
        ("wrong identity", counts.wrong_identity.to_string()),
        ("coverage", percent(report.coverage)),
        ("nearest right", percent(report.top1)),
        ("strangers", counts.strangers.to_string()),
        ("strangers named", counts.strangers_named.to_string()),
        ("false positives", percent(report.false_positives)),
    ];
    put(page, format_args!("<table>"));
    for (name, value) in rows {
        put(page, format_args!("<tr><th>{name}</th><td class=\"n\">{value}</td></tr>"));
    }
    put(page, format_args!("</table>"));
}

/// Known probes by whom they are nearest to, and strangers.
fn pictures(page: &mut String, cases: &[Case]) {
    let kinds: [Kind; 3] = [
        ("known", BLUE, |case| case.is_nearest_right()),
        ("known, another comes first", GREEN, |case| case.known && !case.is_nearest_right()),
        ("strangers", ORANGE, |case| !case.known),
    ];
    let scores =
        kinds.map(|(_, _, is)| cases.iter().filter(|case| is(case)).filter_map(score).collect::<Vec<f64>>());
    let series: Vec<Series<'_, f64>> = kinds
        .iter()
        .zip(&scores)
        .filter(|(_, values)| !values.is_empty())
        .map(|((name, colour, _), values)| Series { name, colour: *colour, values })
        .collect();
    // Identities may have cuts of their own; the picture shows the first probe's.
    let cut = cases.first().map(|case| (f64::from(case.threshold), f64::from(case.min_margin)));
    let threshold: Vec<_> = cut.iter().map(|(threshold, _)| (*threshold, "threshold")).collect();
    let margin: Vec<_> = cut.iter().map(|(_, margin)| (*margin, "least margin")).collect();
    put(page, format_args!("{}", histogram("Best score", "score", &series, &threshold).svg()));
    let step = cases.len().div_ceil(MOST_DOTS).max(1);
    let points = kinds.map(|(_, _, is)| {
        let shown = cases.iter().step_by(step).filter(|case| is(case));
        shown.filter_map(|case| Some((score(case)?, f64::from(case.margin?)))).collect::<Vec<_>>()
    });
    let all = || points.iter().flatten();
    if all().next().is_none() {
        return;
    }
    let low = all().map(|point| point.0).chain(cut.map(|cut| cut.0)).fold(1.0, f64::min) - 0.01;
    let high = all().map(|point| point.1).chain(cut.map(|cut| cut.1)).fold(0.01, f64::max) * 1.05;
    let x = Axis { label: "best score", low, high: 1.01, scale: Scale::Linear };
    let y = Axis { label: "margin", low: 0.0, high, scale: Scale::Linear };
    let series: Vec<Series<'_, (f64, f64)>> = kinds
        .iter()
        .zip(&points)
        .filter(|(_, values)| !values.is_empty())
        .map(|((name, colour, _), values)| Series { name, colour: *colour, values })
        .collect();
    put(
        page,
        format_args!("{}", scatter("Best score and margin", (x, y), &series, (&threshold, &margin)).svg()),
    );
    let legend = "what lies right of the threshold and above the least margin is named";
    put(page, format_args!("<p style=\"color:{GREY}\">{legend}</p>"));
}

fn score(case: &Case) -> Option<f64> {
    case.score.map(f64::from)
}

fn case_table(page: &mut String, cases: &[Case]) {
    put(page, format_args!("<h2>What did not come out right: {}</h2>", cases.len()));
    let worst = |case: &&Case| match case.outcome {
        Outcome::StrangerNamed | Outcome::WrongIdentity => 0,
        Outcome::Ambiguous | Outcome::BelowThreshold | Outcome::Displaced => 1,
        Outcome::Recognized | Outcome::StrangerRefused => 2,
    };
    let mut cases: Vec<&Case> = cases.iter().collect();
    cases.sort_by_key(worst);
    put(
        page,
        format_args!(
            "<table><tr><th>probe</th><th>is</th><th>outcome</th><th>score</th><th>threshold</th><th>best</th><th>runner-up</th>\
             <th>margin</th><th>least margin</th></tr>"
        ),
    );
    for case in cases {
        put(
            page,
            format_args!(
                "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td><td>{}</td>\
                 <td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
                Escaped(&case.probe),
                Escaped(&case.identity),
                case.outcome.as_str(),
                crate::cli::output::number(case.score),
                case.threshold,
                Escaped(&name(case.best.as_ref())),
                Escaped(&name(case.runner_up.as_ref())),
                crate::cli::output::number(case.margin),
                case.min_margin
            ),
        );
    }
    put(page, format_args!("</table>"));
}

fn name(place: Option<&Place>) -> String {
    place.map_or_else(|| "-".to_owned(), |p| format!("{}/{} ({:.6})", p.identity, p.prototype_id, p.score))
}

fn backends(page: &mut String, report: &Report) {
    for other in &report.backends {
        put(
            page,
            format_args!(
                "<p>Against {}: {} nearest and {} decisions differ; {} of {} positions served alike; largest error {:.3e}.</p>",
                Escaped(&other.backend),
                other.top1_differing,
                other.decisions_differing,
                other.positions.served,
                other.positions.of,
                other.largest_error
            ),
        );
    }
}
