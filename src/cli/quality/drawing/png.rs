//! A drawing painted. Letters are outlines of a font that is compiled in: `DejaVu Sans`, its ASCII characters (beside it stands its licence). What it does
//! not have is painted as a box, never left out.

use anyhow::Context;
use tiny_skia::{Color, FillRule, Paint, Path, PathBuilder, Pixmap, Rect, Stroke, Transform};
use ttf_parser::{Face, OutlineBuilder};

use super::{Anchor, At, Colour, Drawing, LETTERS, Shape, Style};

const FONT: &[u8] = include_bytes!("DejaVuSans-ASCII.ttf");

/// Painted pixels for one of the drawing's, each way.
const SCALE: f32 = 2.0;

/// How much thicker bold letters are, in pixels.
const BOLD: f32 = 0.6;

impl Drawing {
    /// As PNG, twice as wide and high.
    #[expect(clippy::cast_sign_loss, reason = "a drawing has a size")]
    pub(in crate::cli::quality) fn png(&self) -> anyhow::Result<Vec<u8>> {
        let face = Face::parse(FONT, 0).context("the font that is compiled in")?;
        let pixels = |length: f64| (length as f32 * SCALE).ceil() as u32;
        let canvas =
            Pixmap::new(pixels(self.size.0), pixels(self.size.1)).context("a drawing of some size")?;
        let mut canvas = Canvas { canvas, face };
        canvas.canvas.fill(Color::WHITE);
        for shape in &self.shapes {
            canvas.paint(shape);
        }
        Ok(canvas.canvas.encode_png()?)
    }
}

struct Canvas<'f> {
    canvas: Pixmap,
    face: Face<'f>,
}

/// Where everything is drawn.
fn whole() -> Transform {
    Transform::from_scale(SCALE, SCALE)
}

fn paint(Colour([red, green, blue]): Colour, opacity: f64) -> Paint<'static> {
    let mut color = Color::from_rgba8(red, green, blue, 255);
    color.apply_opacity(opacity as f32);
    let mut paint = Paint::default();
    paint.set_color(color);
    paint
}

impl Canvas<'_> {
    fn paint(&mut self, shape: &Shape) {
        match shape {
            Shape::Bar { at: (x, y), size: (width, height), colour, opacity } => {
                let bar = Rect::from_xywh(*x as f32, *y as f32, *width as f32, *height as f32);
                if let Some(bar) = bar {
                    // Bars that touch show no seam.
                    let paint = Paint { anti_alias: false, ..paint(*colour, *opacity) };
                    self.canvas.fill_rect(bar, &paint, whole(), None);
                }
            }
            Shape::Line { points, colour, width } => {
                let mut path = PathBuilder::new();
                for (place, &(x, y)) in points.iter().enumerate() {
                    let (x, y) = (x as f32, y as f32);
                    if place == 0 { path.move_to(x, y) } else { path.line_to(x, y) }
                }
                self.stroke(path.finish(), *colour, (*width as f32, whole()));
            }
            Shape::Dot { at: (x, y), radius, colour, opacity } => {
                let dot = PathBuilder::from_circle(*x as f32, *y as f32, *radius as f32);
                self.fill(dot, &paint(*colour, *opacity), whole());
            }
            Shape::Text { at, anchor, style, text } => self.text(text, *at, *anchor, *style),
        }
    }

    fn fill(&mut self, path: Option<Path>, paint: &Paint<'_>, transform: Transform) {
        if let Some(path) = path {
            self.canvas.fill_path(&path, paint, FillRule::Winding, transform, None);
        }
    }

    fn stroke(&mut self, path: Option<Path>, colour: Colour, (width, transform): (f32, Transform)) {
        if let Some(path) = path {
            let stroke = Stroke { width, ..Stroke::default() };
            self.canvas.stroke_path(&path, &paint(colour, 1.0), &stroke, transform, None);
        }
    }

    fn text(&mut self, text: &str, (x, y): At, anchor: Anchor, style: Style) {
        let scale = LETTERS as f32 / f32::from(self.face.units_per_em());
        let mut letters = Letters { path: PathBuilder::new(), scale, across: 0.0 };
        for letter in text.chars() {
            let glyph = self.face.glyph_index(letter).unwrap_or_default();
            self.face.outline_glyph(glyph, &mut letters);
            letters.across += scale * f32::from(self.face.glyph_hor_advance(glyph).unwrap_or_default());
        }
        let before = match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => letters.across / 2.0,
            Anchor::End => letters.across,
        };
        let (x, y) = (x as f32, y as f32);
        let turned = if style == Style::Turned {
            Transform::from_rotate_at(-90.0, x, y)
        } else {
            Transform::identity()
        };
        let transform = Transform::from_translate(x - before, y).post_concat(turned).post_concat(whole());
        let (path, black) = (letters.path.finish(), Colour([0; 3]));
        if style == Style::Bold {
            self.stroke(path.clone(), black, (BOLD, transform));
        }
        self.fill(path, &paint(black, 1.0), transform);
    }
}

/// Outlines of letters one after the other, from a baseline at 0 on, downwards.
struct Letters {
    path: PathBuilder,
    /// Pixels a unit of the font.
    scale: f32,
    /// Where the next letter begins.
    across: f32,
}

impl Letters {
    fn at(&self, x: f32, y: f32) -> (f32, f32) {
        (self.across + x * self.scale, -y * self.scale)
    }
}

impl OutlineBuilder for Letters {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.path.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.path.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.at(x1, y1), self.at(x, y));
        self.path.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2), (x, y)) = (self.at(x1, y1), self.at(x2, y2), self.at(x, y));
        self.path.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The painted pixels, row after row: whether each is dark.
    fn dark(shapes: Vec<Shape>, size: (f64, f64)) -> Vec<Vec<bool>> {
        let png = Drawing { size, shapes }.png().unwrap();
        let pixels = Pixmap::decode_png(&png).unwrap();
        assert_eq!((f64::from(pixels.width()), f64::from(pixels.height())), (2.0 * size.0, 2.0 * size.1));
        let is_dark = |row: u32, column: u32| pixels.pixel(column, row).unwrap().green() < 128;
        (0..pixels.height())
            .map(|row| (0..pixels.width()).map(|column| is_dark(row, column)).collect())
            .collect()
    }

    fn text(text: &str, anchor: Anchor, style: Style) -> Vec<Vec<bool>> {
        let shape = Shape::Text { at: (50.0, 50.0), anchor, style, text: text.to_owned() };
        dark(vec![shape], (100.0, 100.0))
    }

    /// From the leftmost to the rightmost dark pixel, and from the topmost to the lowest.
    fn extent(dark: &[Vec<bool>]) -> [usize; 4] {
        let rows: Vec<usize> = (0..dark.len()).filter(|&row| dark[row].contains(&true)).collect();
        let columns: Vec<usize> =
            (0..dark[0].len()).filter(|&column| dark.iter().any(|row| row[column])).collect();
        [columns[0], columns[columns.len() - 1], rows[0], rows[rows.len() - 1]]
    }

    #[test]
    fn every_letter_that_is_written_is_painted() {
        for letter in ('!'..='~').chain(['\u{e9}', '\u{5f20}']) {
            let painted = text(&letter.to_string(), Anchor::Middle, Style::Plain);
            assert!(painted.iter().flatten().any(|dark| *dark), "{letter:?}");
        }
        assert_ne!(text("a", Anchor::Start, Style::Plain), text("b", Anchor::Start, Style::Plain));
    }

    #[test]
    fn text_lies_where_its_anchor_says() {
        let [start, _, top, base] = extent(&text("HHHH", Anchor::Start, Style::Plain));
        // Capitals are 0.73 of their size high, and stand on the baseline.
        assert!((100..106).contains(&start) && (96..=100).contains(&base) && (80..86).contains(&top));
        let [left, right, ..] = extent(&text("HHHH", Anchor::Middle, Style::Plain));
        assert!(left.abs_diff(199 - right) <= 2 && left < 90, "{left} {right}");
        let [_, end, ..] = extent(&text("HHHH", Anchor::End, Style::Plain));
        assert!((94..100).contains(&end), "{end}");
        let [_, _, top, bottom] = extent(&text("HHHH", Anchor::Middle, Style::Turned));
        assert!(top.abs_diff(199 - bottom) <= 2 && top < 90, "{top} {bottom}");
        let count = |style| text("H", Anchor::Start, style).iter().flatten().filter(|dark| **dark).count();
        assert!(count(Style::Bold) > count(Style::Plain));
    }

    #[test]
    fn shapes_are_painted_where_they_are() {
        let colour = Colour([0, 0, 0]);
        let bar = Shape::Bar { at: (10.0, 20.0), size: (30.0, 5.0), colour, opacity: 1.0 };
        assert_eq!(extent(&dark(vec![bar], (100.0, 50.0))), [20, 79, 40, 49]);
        let dot = Shape::Dot { at: (50.0, 25.0), radius: 5.0, colour, opacity: 1.0 };
        assert_eq!(extent(&dark(vec![dot], (100.0, 50.0))), [90, 109, 40, 59]);
        let line = Shape::Line { points: vec![(10.0, 10.0), (10.0, 40.0), (90.0, 40.0)], colour, width: 2.0 };
        assert_eq!(extent(&dark(vec![line], (100.0, 50.0))), [18, 179, 20, 81]);
    }
}
