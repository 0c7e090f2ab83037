//! Pictures as SVG text: histograms, curves and maps with axes. No script, no font of their own, nothing fetched from elsewhere.

use std::fmt::{Display, Write};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
/// Where the drawing begins and ends within the picture.
const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = HEIGHT - 56.0;

/// Colours that colour-blind readers can tell apart (Okabe and Ito).
pub(super) const BLUE: &str = "#0072b2";
pub(super) const ORANGE: &str = "#d55e00";
pub(super) const GREEN: &str = "#009e73";
pub(super) const GREY: &str = "#777777";

/// From one line of text to the next.
const LINE: f64 = 14.0;

/// Bars of a histogram.
const BINS: usize = 60;

/// How numbers are laid along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Logarithmic,
}

/// An axis: what it shows, and from where to where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis<'a> {
    pub(super) label: &'a str,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) scale: Scale,
}

impl Axis<'_> {
    /// Where a value lies: 0 at the low end, 1 at the high.
    fn at(&self, value: f64) -> f64 {
        let place = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        place.clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let step = step_of(self.high - self.low);
                let first = (self.low / step).ceil() as i64;
                let last = (self.high / step + 1e-9).floor() as i64;
                (first..=last).map(|tick| tick as f64 * step).collect()
            }
            Scale::Logarithmic => {
                let (first, last) = (self.low.log10().ceil() as i32, self.high.log10().floor() as i32);
                (first..=last).map(|power| 10.0_f64.powi(power)).collect()
            }
        }
    }
}

/// A round step of which about six fit into a span.
fn step_of(span: f64) -> f64 {
    let rough = span.max(1e-9) / 6.0;
    let power = 10.0_f64.powf(rough.log10().floor());
    let fitting = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= rough);
    fitting.unwrap_or(rough)
}

/// Numbers that are shown together, under a name and in a colour.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series<'a, T> {
    pub(super) name: &'a str,
    pub(super) colour: &'a str,
    pub(super) values: &'a [T],
}

/// A value that is marked, and what it is.
pub(super) type Mark<'a> = (f64, &'a str);

/// A place that is marked, and what it is.
pub(super) type Point<'a> = ((f64, f64), &'a str);

/// How often values of each series fall where, each series as shares of its own; `marks` are lines across.
pub(super) fn histogram(title: &str, label: &str, series: &[Series<'_, f64>], marks: &[Mark<'_>]) -> String {
    let values = || series.iter().flat_map(|one| one.values).copied().chain(marks.iter().map(|mark| mark.0));
    let (low, high) = values().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    let (low, high) = if low < high { (low, high) } else { (-1.0, 1.0) };
    #[expect(clippy::cast_sign_loss, reason = "no value is below the lowest")]
    let bin = |value: f64| (((value - low) / (high - low) * BINS as f64) as usize).min(BINS - 1);
    let shares: Vec<Vec<f64>> = series
        .iter()
        .map(|one| {
            let mut shares = vec![0.0; BINS];
            for &value in one.values {
                shares[bin(value)] += 1.0 / one.values.len() as f64;
            }
            shares
        })
        .collect();
    let most = shares.iter().flatten().copied().fold(1e-9, f64::max);
    let x = Axis { label, low, high, scale: Scale::Linear };
    let y = Axis { label: "share", low: 0.0, high: most * 1.05, scale: Scale::Linear };
    let mut picture = Picture::new(title, x, y);
    for (one, shares) in series.iter().zip(&shares) {
        for (bin, &share) in shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
            let from = low + (high - low) * bin as f64 / BINS as f64;
            let to = low + (high - low) * (bin + 1) as f64 / BINS as f64;
            picture.bar((from, to), (0.0, share), (one.colour, 0.55));
        }
    }
    picture.marks(marks);
    picture.finish(series.iter().map(|one| (one.name, one.colour)))
}

/// Lines through points.
pub(super) fn curves(
    title: &str,
    (x, y): (Axis<'_>, Axis<'_>),
    series: &[Series<'_, (f64, f64)>],
    points: &[Point<'_>],
) -> String {
    let mut picture = Picture::new(title, x, y);
    for one in series {
        picture.line(one.values, one.colour);
    }
    picture.points(points, (GREY, 4.0));
    picture.finish(series.iter().map(|one| (one.name, one.colour)))
}

/// Points of several kinds; `marks` are lines across, at values of x and of y.
pub(super) fn scatter(
    title: &str,
    (x, y): (Axis<'_>, Axis<'_>),
    series: &[Series<'_, (f64, f64)>],
    (x_marks, y_marks): (&[Mark<'_>], &[Mark<'_>]),
) -> String {
    let mut picture = Picture::new(title, x, y);
    for one in series {
        picture.dots(one.values, (one.colour, 2.5));
    }
    picture.marks(x_marks);
    picture.marks_of_y(y_marks);
    picture.finish(series.iter().map(|one| (one.name, one.colour)))
}

/// A value, 0 to 1, for every cell of a grid: `values[row][column]`, rows along y. Dark is 1; `points` are marked.
pub(super) fn map(
    title: &str,
    (x, y): (Axis<'_>, Axis<'_>),
    values: &[Vec<f64>],
    points: &[Point<'_>],
) -> String {
    let mut picture = Picture::new(title, x, y);
    let edge =
        |axis: &Axis<'_>, at: usize, of: usize| axis.low + (axis.high - axis.low) * at as f64 / of as f64;
    for (row, values_of_row) in values.iter().enumerate() {
        let between = (edge(&y, row, values.len()), edge(&y, row + 1, values.len()));
        for (column, value) in values_of_row.iter().enumerate() {
            let across = (edge(&x, column, values_of_row.len()), edge(&x, column + 1, values_of_row.len()));
            picture.bar(across, between, (BLUE, value.clamp(0.0, 1.0)));
        }
    }
    picture.points(points, (ORANGE, 5.0));
    picture.finish(std::iter::empty())
}

/// A picture being drawn.
struct Picture<'a> {
    x: Axis<'a>,
    y: Axis<'a>,
    body: String,
}

impl<'a> Picture<'a> {
    fn new(title: &str, x: Axis<'a>, y: Axis<'a>) -> Self {
        let mut picture = Self { x, y, body: String::new() };
        picture.text(
            (LEFT, 22.0),
            "start",
            format_args!("<tspan font-weight=\"bold\">{}</tspan>", Escaped(title)),
        );
        for tick in x.ticks() {
            let at = picture.across(tick);
            picture.stroke(((at, TOP), (at, BOTTOM)), "#dddddd");
            picture.text((at, BOTTOM + 16.0), "middle", number(tick));
        }
        for tick in y.ticks() {
            let at = picture.down(tick);
            picture.stroke(((LEFT, at), (RIGHT, at)), "#dddddd");
            picture.text((LEFT - 6.0, at + 4.0), "end", number(tick));
        }
        picture.text((f64::midpoint(LEFT, RIGHT), HEIGHT - 14.0), "middle", Escaped(x.label));
        picture.push(format_args!(
            "<text x=\"14\" y=\"{0:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 14 {0:.1})\">{1}</text>",
            f64::midpoint(TOP, BOTTOM),
            Escaped(y.label)
        ));
        picture
    }

    fn push(&mut self, element: impl Display) {
        // Writing to a string does not fail.
        let _ = writeln!(self.body, "{element}");
    }

    fn across(&self, value: f64) -> f64 {
        LEFT + self.x.at(value) * (RIGHT - LEFT)
    }

    fn down(&self, value: f64) -> f64 {
        BOTTOM - self.y.at(value) * (BOTTOM - TOP)
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: &str, text: impl Display) {
        self.push(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"));
    }

    fn stroke(&mut self, ((x1, y1), (x2, y2)): ((f64, f64), (f64, f64)), colour: &str) {
        self.push(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>"
        ));
    }

    fn bar(&mut self, across: (f64, f64), up: (f64, f64), (colour, opacity): (&str, f64)) {
        let (left, right) = (self.across(across.0), self.across(across.1));
        let (bottom, top) = (self.down(up.0), self.down(up.1));
        self.push(format_args!(
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\" fill-opacity=\"{opacity:.3}\"/>",
            right - left,
            bottom - top
        ));
    }

    fn line(&mut self, points: &[(f64, f64)], colour: &str) {
        let mut path = String::new();
        for &(x, y) in points {
            let _ = write!(path, "{:.1},{:.1} ", self.across(x), self.down(y));
        }
        self.push(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.trim_end()
        ));
    }

    fn dots(&mut self, points: &[(f64, f64)], (colour, radius): (&str, f64)) {
        for &(x, y) in points {
            self.push(format_args!(
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\" fill=\"{colour}\" fill-opacity=\"0.7\"/>",
                self.across(x),
                self.down(y)
            ));
        }
    }

    /// Dots with names beside them, one below the other, so that neighbors' can be read.
    fn points(&mut self, points: &[Point<'_>], look: (&str, f64)) {
        for (place, &((x, y), name)) in points.iter().enumerate() {
            self.dots(&[(x, y)], look);
            let (across, down) = (self.across(x), self.down(y) + 4.0 + LINE * place as f64);
            // What lies at the right end has its name to the left.
            let (at, anchor) =
                if across < RIGHT - 80.0 { (across + 8.0, "start") } else { (across - 8.0, "end") };
            self.text((at, down.min(BOTTOM - 4.0)), anchor, Escaped(name));
        }
    }

    fn marks(&mut self, marks: &[Mark<'_>]) {
        for (place, &(value, name)) in marks.iter().enumerate() {
            let at = self.across(value);
            self.stroke(((at, TOP), (at, BOTTOM)), "#000000");
            self.text((at + 4.0, TOP + 12.0 + LINE * place as f64), "start", Escaped(name));
        }
    }

    fn marks_of_y(&mut self, marks: &[Mark<'_>]) {
        for &(value, name) in marks {
            let at = self.down(value);
            self.stroke(((LEFT, at), (RIGHT, at)), "#000000");
            self.text((RIGHT - 4.0, at - 4.0), "end", Escaped(name));
        }
    }

    fn finish<'n>(mut self, legend: impl Iterator<Item = (&'n str, &'n str)>) -> String {
        let mut x = RIGHT;
        for (name, colour) in legend {
            // About seven pixels a letter.
            x -= 7.0 * name.chars().count() as f64 + 24.0;
            self.push(format_args!(
                "<rect x=\"{x:.1}\" y=\"12\" width=\"10\" height=\"10\" fill=\"{colour}\"/>"
            ));
            self.text((x + 14.0, 22.0), "start", Escaped(name));
        }
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{}</svg>\n",
            self.body
        )
    }
}

/// A number as a tick shows it.
fn number(value: f64) -> String {
    let value = if value.abs() < 1e-12 { 0.0 } else { value };
    if value != 0.0 && value.abs() < 1e-3 {
        format!("{value:e}")
    } else {
        format!("{}", (value * 1e6).round() / 1e6)
    }
}

/// Text as it stands in SVG and HTML.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_axis() {
        let linear = Axis { label: "", low: -0.13, high: 1.0, scale: Scale::Linear };
        assert_eq!(
            linear.ticks().iter().map(|tick| number(*tick)).collect::<Vec<_>>(),
            ["0", "0.2", "0.4", "0.6", "0.8", "1"]
        );
        let log = Axis { label: "", low: 1e-4, high: 0.5, scale: Scale::Logarithmic };
        assert_eq!(
            log.ticks().iter().map(|tick| number(*tick)).collect::<Vec<_>>(),
            ["1e-4", "0.001", "0.01", "0.1"]
        );
        assert!(log.at(0.0) <= 0.0 && log.at(1.0) >= 1.0);
    }

    #[test]
    fn names_cannot_become_markup() {
        let svg =
            histogram("<script>", "a & b", &[Series { name: "x\"y", colour: BLUE, values: &[0.5] }], &[]);
        assert!(svg.contains("&lt;script&gt;") && svg.contains("a &amp; b") && svg.contains("x&quot;y"));
        assert!(!svg.contains("<script"));
    }

    #[test]
    fn a_histogram_of_nothing_is_a_picture_too() {
        let svg =
            histogram("none", "score", &[Series { name: "no", colour: BLUE, values: &[] }], &[(0.5, "t")]);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && !svg.contains("NaN"));
    }
}
