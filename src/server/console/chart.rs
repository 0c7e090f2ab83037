//! Small charts as inline SVG, with their numbers beside them for who does not see them.

use std::fmt::Write as _;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 72.0;

/// What a line chart shows.
pub(super) struct Line<'a> {
    /// Its name, for who hears the page.
    pub(super) name: &'a str,
    /// One value a stretch; gaps where there is none.
    pub(super) values: &'a [Option<f64>],
    /// The range that is drawn at least.
    pub(super) least: (f64, f64),
    /// The end that matters, which is written out.
    pub(super) end: End,
    /// A value in words.
    pub(super) show: fn(f64) -> String,
}

/// An end of what was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The most.
    Most,
    /// The least.
    Least,
}

/// A line over time, its latest value and the end that matters written out.
pub(super) fn line(chart: &Line<'_>) -> String {
    let known = || chart.values.iter().flatten().copied();
    let high = known().fold(chart.least.1, f64::max);
    let low = known().fold(chart.least.0, f64::min);
    let span = if high > low { high - low } else { 1.0 };
    let step = WIDTH / (chart.values.len().max(2) - 1) as f64;
    let mut path = String::new();
    let mut pen_down = false;
    for (place, value) in chart.values.iter().enumerate() {
        let Some(value) = value else {
            pen_down = false;
            continue;
        };
        let (x, y) = (place as f64 * step, HEIGHT - (value - low) / span * (HEIGHT - 4.0) - 2.0);
        // A value that stands alone is a dot.
        let _ = if pen_down { write!(path, "L{x:.1} {y:.1}") } else { write!(path, "M{x:.1} {y:.1}h.01") };
        pen_down = true;
    }
    let last = known().last().map(chart.show);
    let (word, extreme) = match chart.end {
        End::Most => ("at most", known().reduce(f64::max)),
        End::Least => ("at least", known().reduce(f64::min)),
    };
    let extreme = extreme.map(chart.show).map(|extreme| format!(", {word} {extreme}")).unwrap_or_default();
    let (shown, said) = match last {
        Some(last) => (format!("<strong>{last}</strong>{extreme}"), format!("{last} now{extreme}")),
        None => ("none yet".to_owned(), "none yet".to_owned()),
    };
    let name = chart.name;
    format!(
        "<figure class=\"chart\"><figcaption>{name}: {shown}</figcaption>\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{name} over the last hour: {said}\" \
         preserveAspectRatio=\"none\"><path d=\"{path}\"/></svg></figure>"
    )
}

/// A share of a whole as a bar.
pub(super) fn bar(share: f64) -> String {
    let width = (100.0 * share.clamp(0.0, 1.0)).round();
    format!(
        "<svg class=\"bar\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\
         <rect class=\"whole\" width=\"100\" height=\"8\"/><rect width=\"{width}\" height=\"8\"/></svg>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_gaps_and_says_its_numbers() {
        let values = [Some(0.0), Some(10.0), None, Some(5.0)];
        let show = |value: f64| format!("{value:.0} a second");
        let of = |values| Line { name: "Requests", values, least: (0.0, 1.0), end: End::Most, show };
        let svg = line(&of(&values));
        assert!(svg.contains("d=\"M0.0 70.0h.01L160.0 2.0M480.0 36.0h.01\""), "{svg}");
        assert!(svg.contains("<strong>5 a second</strong>, at most 10 a second"), "{svg}");
        let least = line(&Line { end: End::Least, ..of(&values) });
        assert!(least.contains("<strong>5 a second</strong>, at least 0 a second"), "{least}");
        let empty = line(&of(&[]));
        assert!(empty.contains("d=\"\"") && empty.contains("none yet"), "{empty}");
        assert!(bar(2.0).contains("width=\"100\" height=\"8\"/></svg>"));
    }
}
