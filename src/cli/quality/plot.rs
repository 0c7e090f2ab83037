//! Histograms, curves, points and maps with axes.

use super::drawing::{Anchor, Colour, Drawing, Shape, Style};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
/// Where the drawing begins and ends within the picture.
const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = HEIGHT - 56.0;

/// Colours that colour-blind readers can tell apart (Okabe and Ito).
pub(super) const BLUE: Colour = Colour([0x00, 0x72, 0xb2]);
pub(super) const ORANGE: Colour = Colour([0xd5, 0x5e, 0x00]);
pub(super) const GREEN: Colour = Colour([0x00, 0x9e, 0x73]);
pub(super) const GREY: Colour = Colour([0x77; 3]);

/// Lines of the grid, and those that mark a value.
const PALE: Colour = Colour([0xdd; 3]);
const BLACK: Colour = Colour([0x00; 3]);

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
    pub(super) colour: Colour,
    pub(super) values: &'a [T],
}

/// A value that is marked, and what it is.
pub(super) type Mark<'a> = (f64, &'a str);

/// A place that is marked, and what it is.
pub(super) type Point<'a> = ((f64, f64), &'a str);

/// How often values of each series fall where, each series as shares of its own; `marks` are lines across.
pub(super) fn histogram(title: &str, label: &str, series: &[Series<'_, f64>], marks: &[Mark<'_>]) -> Drawing {
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
) -> Drawing {
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
) -> Drawing {
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
) -> Drawing {
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
    shapes: Vec<Shape>,
}

impl<'a> Picture<'a> {
    fn new(title: &str, x: Axis<'a>, y: Axis<'a>) -> Self {
        let mut picture = Self { x, y, shapes: Vec::new() };
        picture.set((LEFT, 22.0), (Anchor::Start, Style::Bold), title);
        for tick in x.ticks() {
            let at = picture.across(tick);
            picture.stroke(((at, TOP), (at, BOTTOM)), PALE);
            picture.text((at, BOTTOM + 16.0), Anchor::Middle, &number(tick));
        }
        for tick in y.ticks() {
            let at = picture.down(tick);
            picture.stroke(((LEFT, at), (RIGHT, at)), PALE);
            picture.text((LEFT - 6.0, at + 4.0), Anchor::End, &number(tick));
        }
        picture.text((f64::midpoint(LEFT, RIGHT), HEIGHT - 14.0), Anchor::Middle, x.label);
        picture.set((14.0, f64::midpoint(TOP, BOTTOM)), (Anchor::Middle, Style::Turned), y.label);
        picture
    }

    fn across(&self, value: f64) -> f64 {
        LEFT + self.x.at(value) * (RIGHT - LEFT)
    }

    fn down(&self, value: f64) -> f64 {
        BOTTOM - self.y.at(value) * (BOTTOM - TOP)
    }

    fn text(&mut self, at: (f64, f64), anchor: Anchor, text: &str) {
        self.set(at, (anchor, Style::Plain), text);
    }

    fn set(&mut self, at: (f64, f64), (anchor, style): (Anchor, Style), text: &str) {
        self.shapes.push(Shape::Text { at, anchor, style, text: text.to_owned() });
    }

    fn stroke(&mut self, (from, to): ((f64, f64), (f64, f64)), colour: Colour) {
        self.shapes.push(Shape::Line { points: vec![from, to], colour, width: 1.0 });
    }

    fn bar(&mut self, across: (f64, f64), up: (f64, f64), (colour, opacity): (Colour, f64)) {
        let (left, right) = (self.across(across.0), self.across(across.1));
        let (bottom, top) = (self.down(up.0), self.down(up.1));
        let size = (right - left, bottom - top);
        self.shapes.push(Shape::Bar { at: (left, top), size, colour, opacity });
    }

    fn line(&mut self, points: &[(f64, f64)], colour: Colour) {
        let points = points.iter().map(|&(x, y)| (self.across(x), self.down(y))).collect();
        self.shapes.push(Shape::Line { points, colour, width: 2.0 });
    }

    fn dots(&mut self, points: &[(f64, f64)], (colour, radius): (Colour, f64)) {
        for &(x, y) in points {
            let at = (self.across(x), self.down(y));
            self.shapes.push(Shape::Dot { at, radius, colour, opacity: 0.7 });
        }
    }

    /// Dots with names above them, each higher than the one before, so that neighbors' can be read; below, where there is no room above.
    fn points(&mut self, points: &[Point<'_>], look: (Colour, f64)) {
        for (place, &((x, y), name)) in points.iter().enumerate() {
            self.dots(&[(x, y)], look);
            let (across, down, lines) = (self.across(x), self.down(y), LINE * place as f64);
            let above = down - 8.0 - lines;
            let at = if above > TOP + LINE { above } else { down + 18.0 + lines };
            // What lies at the right end has its name to the left.
            let anchor = if across < RIGHT - 80.0 { Anchor::Start } else { Anchor::End };
            self.text((across, at), anchor, name);
        }
    }

    fn marks(&mut self, marks: &[Mark<'_>]) {
        for (place, &(value, name)) in marks.iter().enumerate() {
            let at = self.across(value);
            self.stroke(((at, TOP), (at, BOTTOM)), BLACK);
            self.text((at + 4.0, TOP + 12.0 + LINE * place as f64), Anchor::Start, name);
        }
    }

    fn marks_of_y(&mut self, marks: &[Mark<'_>]) {
        for &(value, name) in marks {
            let at = self.down(value);
            self.stroke(((LEFT, at), (RIGHT, at)), BLACK);
            self.text((RIGHT - 4.0, at - 4.0), Anchor::End, name);
        }
    }

    fn finish<'n>(mut self, legend: impl Iterator<Item = (&'n str, Colour)>) -> Drawing {
        let mut x = RIGHT;
        for (name, colour) in legend {
            // About seven pixels a letter.
            x -= 7.0 * name.chars().count() as f64 + 24.0;
            self.shapes.push(Shape::Bar { at: (x, 12.0), size: (10.0, 10.0), colour, opacity: 1.0 });
            self.text((x + 14.0, 22.0), Anchor::Start, name);
        }
        Drawing { size: (WIDTH, HEIGHT), shapes: self.shapes }
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
            histogram("<script>", "a & b", &[Series { name: "x\"y", colour: BLUE, values: &[0.5] }], &[])
                .svg();
        assert!(svg.contains("&lt;script&gt;") && svg.contains("a &amp; b") && svg.contains("x&quot;y"));
        assert!(!svg.contains("<script"));
    }

    #[test]
    fn a_histogram_of_nothing_is_a_picture_too() {
        let svg =
            histogram("none", "score", &[Series { name: "no", colour: BLUE, values: &[] }], &[(0.5, "t")])
                .svg();
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && !svg.contains("NaN"));
    }
}
