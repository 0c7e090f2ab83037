//! The gallery metrics: summed, or one series a gallery where the operator opted in.
//!
//! Names of galleries are the one label that is no closed set, so it is bounded here.

use std::collections::{BTreeMap, BTreeSet};

use super::metrics::{GALLERY_GENERATION, GALLERY_IDENTITIES, GALLERY_PROTOTYPES};
use super::record::open_gauge;

/// Most galleries that get a series of their own; the others are summed under [`OTHERS`].
const MAX_NAMED: usize = 1000;

/// The label of galleries beyond the limit.
const OTHERS: &str = "(others)";

/// Whether gallery metrics carry the gallery's name: the operator's choice (`metrics.gallery_label`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GalleryLabel {
    /// They are sums over all galleries.
    Off,
    /// They do.
    Name,
}

/// What is served of a gallery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GalleryFigures {
    /// Prototypes held.
    pub prototypes: u64,
    /// Identities held.
    pub identities: u64,
    /// The generation.
    pub generation: u64,
}

/// The gallery metrics of a server.
#[derive(Debug)]
pub struct GalleryGauges {
    label: GalleryLabel,
    /// The names shown so far. A series cannot be taken back: that of a gallery that went falls to 0.
    shown: BTreeSet<String>,
}

impl GalleryGauges {
    /// Gallery metrics with or without names; nothing is shown yet.
    pub fn new(label: GalleryLabel) -> Self {
        Self { label, shown: BTreeSet::new() }
    }

    /// Shows all the galleries that are served now, by name.
    pub fn show<'a>(&mut self, galleries: impl IntoIterator<Item = (&'a str, GalleryFigures)>) {
        let mut series = self.zeros();
        for (name, figures) in galleries {
            let sum = series.entry(self.labels(name)).or_default();
            sum.prototypes += figures.prototypes;
            sum.identities += figures.identities;
            sum.generation += figures.generation;
        }
        for (labels, sum) in series {
            open_gauge(&GALLERY_PROTOTYPES, &labels).set(sum.prototypes as f64);
            open_gauge(&GALLERY_IDENTITIES, &labels).set(sum.identities as f64);
            open_gauge(&GALLERY_GENERATION, &labels).set(sum.generation as f64);
        }
    }

    /// Every series shown so far, empty.
    fn zeros(&self) -> BTreeMap<Vec<String>, GalleryFigures> {
        let labels: Vec<Vec<String>> = match self.label {
            GalleryLabel::Off => vec![Vec::new()],
            GalleryLabel::Name => self.shown.iter().map(|name| vec![name.clone()]).collect(),
        };
        labels.into_iter().map(|labels| (labels, GalleryFigures::default())).collect()
    }

    /// The labels of a gallery's series.
    fn labels(&mut self, name: &str) -> Vec<String> {
        match self.label {
            GalleryLabel::Off => Vec::new(),
            GalleryLabel::Name => {
                let room = self.shown.len() < MAX_NAMED || self.shown.contains(name);
                let name = if room { name } else { OTHERS };
                self.shown.insert(name.to_owned());
                vec![name.to_owned()]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::recorder::rendered;
    use super::*;

    const FIGURES: GalleryFigures = GalleryFigures { prototypes: 5, identities: 2, generation: 7 };

    /// The lines of the gallery metrics, sorted.
    fn shown(what: impl FnOnce()) -> Vec<String> {
        let text = rendered(what);
        let lines = text.lines().filter(|line| line.starts_with("lookalike_gallery_"));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    }

    #[test]
    fn without_names_galleries_are_summed() {
        let lines = shown(|| GalleryGauges::new(GalleryLabel::Off).show([("a", FIGURES), ("b", FIGURES)]));
        assert_eq!(
            lines,
            [
                "lookalike_gallery_generation 14",
                "lookalike_gallery_identities 4",
                "lookalike_gallery_prototypes 10"
            ]
        );
        let lines = shown(|| GalleryGauges::new(GalleryLabel::Off).show([]));
        assert!(lines.contains(&"lookalike_gallery_prototypes 0".to_owned()), "{lines:?}");
    }

    #[test]
    fn with_names_a_gallery_that_went_falls_to_zero() {
        let lines = shown(|| {
            let mut gauges = GalleryGauges::new(GalleryLabel::Name);
            gauges.show([("a", FIGURES), ("b", FIGURES)]);
            gauges.show([("b", FIGURES)]);
        });
        assert!(lines.contains(&"lookalike_gallery_prototypes{gallery=\"a\"} 0".to_owned()), "{lines:?}");
        assert!(lines.contains(&"lookalike_gallery_prototypes{gallery=\"b\"} 5".to_owned()), "{lines:?}");
        assert_eq!(lines.len(), 6);
    }

    #[test]
    fn names_are_bounded() {
        let names: Vec<String> = (0..MAX_NAMED + 20).map(|number| format!("gallery {number}")).collect();
        let lines = shown(|| {
            let mut gauges = GalleryGauges::new(GalleryLabel::Name);
            for _ in 0..2 {
                gauges.show(names.iter().map(|name| (name.as_str(), FIGURES)));
            }
        });
        assert_eq!(lines.len(), 3 * (MAX_NAMED + 1));
        assert!(lines.contains(&"lookalike_gallery_prototypes{gallery=\"(others)\"} 100".to_owned()));
    }
}
