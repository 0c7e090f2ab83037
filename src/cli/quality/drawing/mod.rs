//! A drawing as data: shapes in their order, on white. Written as SVG ([`svg`](Drawing::svg)), with no script, no font of its own and nothing fetched
//! from elsewhere, or painted as PNG ([`png`](Drawing::png)), with a font that is compiled in, so that text shows wherever it is painted.

mod png;

use std::fmt::{Display, Write};

/// Size of letters, in pixels.
const LETTERS: f64 = 12.0;

/// A colour: red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli::quality) struct Colour(pub(in crate::cli::quality) [u8; 3]);

impl Display for Colour {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self([red, green, blue]) = self;
        write!(f, "#{red:02x}{green:02x}{blue:02x}")
    }
}

/// A place: from the left, and from the top, in pixels.
pub(in crate::cli::quality) type At = (f64, f64);

/// Which end of a text lies where it is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli::quality) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a text is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli::quality) enum Style {
    Plain,
    Bold,
    /// Upwards.
    Turned,
}

/// What is drawn.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli::quality) enum Shape {
    /// From its upper left corner, so wide and high.
    Bar {
        at: At,
        size: (f64, f64),
        colour: Colour,
        opacity: f64,
    },
    /// Through points.
    Line {
        points: Vec<At>,
        colour: Colour,
        width: f64,
    },
    Dot {
        at: At,
        radius: f64,
        colour: Colour,
        opacity: f64,
    },
    /// Its baseline's end or middle lies there.
    Text {
        at: At,
        anchor: Anchor,
        style: Style,
        text: String,
    },
}

/// Shapes on white.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli::quality) struct Drawing {
    /// Width and height, in pixels.
    pub(in crate::cli::quality) size: (f64, f64),
    pub(in crate::cli::quality) shapes: Vec<Shape>,
}

impl Drawing {
    /// As SVG text.
    pub(in crate::cli::quality) fn svg(&self) -> String {
        let (width, height) = self.size;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"{LETTERS}\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        );
        for shape in &self.shapes {
            // Writing to a string does not fail.
            let _ = writeln!(svg, "{shape}");
        }
        svg + "</svg>\n"
    }
}

/// As an element of SVG.
impl Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bar { at: (x, y), size: (width, height), colour, opacity } => write!(
                f,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\" fill-opacity=\"{opacity:.3}\"/>"
            ),
            Self::Line { points, colour, width } => {
                write!(f, "<polyline points=\"")?;
                for (place, (x, y)) in points.iter().enumerate() {
                    write!(f, "{}{x:.1},{y:.1}", if place == 0 { "" } else { " " })?;
                }
                write!(f, "\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>")
            }
            Self::Dot { at: (x, y), radius, colour, opacity } => write!(
                f,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\" fill-opacity=\"{opacity}\"/>"
            ),
            Self::Text { at: (x, y), anchor, style, text } => {
                let anchor = match anchor {
                    Anchor::Start => "start",
                    Anchor::Middle => "middle",
                    Anchor::End => "end",
                };
                write!(f, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"")?;
                match style {
                    Style::Plain => (),
                    Style::Bold => f.write_str(" font-weight=\"bold\"")?,
                    Style::Turned => write!(f, " transform=\"rotate(-90 {x:.1} {y:.1})\"")?,
                }
                write!(f, ">{}</text>", Escaped(text))
            }
        }
    }
}

/// Text as it stands in SVG and HTML.
pub(in crate::cli::quality) struct Escaped<'a>(pub(in crate::cli::quality) &'a str);

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
