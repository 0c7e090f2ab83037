//! `lookalike select`, `validate` and the like: recognition quality, measured and improved. What is computed stands in `crate::quality`; here are
//! flags, files, tables and pictures.

mod audit;
mod calibrate;
mod cluster;
mod drawing;
mod html;
mod pictures;
mod plot;
mod probes;
mod select;
mod validate;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

pub(super) use audit::{AuditArgs, run as audit};
pub(super) use calibrate::{CalibrateArgs, run as calibrate};
pub(super) use cluster::{ClusterArgs, run as cluster};
pub(super) use select::{SelectArgs, run as select};
pub(super) use validate::{ValidateArgs, run as validate};

use super::Usage;
use super::gallery::OneArgs;
use super::settings::SettingsArgs;
use crate::config::Settings;
use crate::domain::{Embedding, Margin, NormPolicy, Prototype, PrototypeKey, Threshold};
use crate::engine::Engine;
use crate::gallery::store::Store;
use crate::gallery::{GalleryProfile, PrototypeRecord, Snapshot, formats};
use crate::quality::ask::Asking;
use crate::recognize::Recognizer;

/// Labelled embeddings: a gallery's, or a file's.
#[derive(Debug, Args)]
pub(super) struct FacesArgs {
    #[command(flatten)]
    gallery: OneArgs,
    /// Take labelled embeddings from a file instead of a gallery: .npy, or JSON lines ({"id","identity","source","embedding":[...]}).
    #[arg(long, value_name = "FILE")]
    embeddings: Option<PathBuf>,
    /// Who the rows of an .npy are: a line a row, identity/prototype-id, or CSV (`identity,prototype_id,source`).
    #[arg(long, value_name = "FILE", requires = "embeddings")]
    labels: Option<PathBuf>,
}

impl FacesArgs {
    /// The embeddings, ready for scanning.
    fn snapshot(&self, settings: &SettingsArgs) -> anyhow::Result<Snapshot> {
        let Some(file) = &self.embeddings else {
            let folder = self.gallery.folder.path(settings)?;
            let snapshot = Store::open_read_only(&folder)?.snapshot(&self.gallery.gallery)?;
            if snapshot.is_empty() {
                return Err(anyhow!("gallery {:?}: expected prototypes, got none", self.gallery.gallery));
            }
            return Ok(snapshot);
        };
        let records = formats::read_prototypes(file, self.labels.as_deref(), &mut |_| ())?;
        let dim = records[0].embedding.len();
        let prototypes =
            records.into_iter().zip(0..).map(|(record, index)| Ok((index, prototype(record, dim)?)));
        let prototypes = prototypes.collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Snapshot::new(GalleryProfile::named(&self.gallery.gallery, dim), Vec::new(), prototypes))
    }
}

fn prototype(record: PrototypeRecord, dim: usize) -> anyhow::Result<Prototype> {
    let place = record.place;
    let embedding = Embedding::parse(record.embedding, dim, NormPolicy::Normalise);
    Ok(Prototype {
        key: PrototypeKey { identity: record.identity, id: record.id },
        source: record.source,
        origin: record.origin,
        created_ms: 0,
        embedding: embedding.with_context(|| format!("{place}: embedding"))?,
    })
}

/// The threshold and margin that go over a gallery's own.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct CutArgs {
    /// Least score of the best identity, -1 to 1; else the identity's, the gallery's or the configuration's.
    #[arg(long, value_name = "SCORE", allow_negative_numbers = true)]
    threshold: Option<f32>,
    /// Least lead over any other identity, 0 to 2; else likewise.
    #[arg(long, value_name = "DIFFERENCE", allow_negative_numbers = true)]
    min_margin: Option<f32>,
}

impl CutArgs {
    fn parse(self) -> Result<(Option<Threshold>, Option<Margin>), Usage> {
        let threshold = self.threshold.map(Threshold::parse).transpose();
        let min_margin = self.min_margin.map(Margin::parse).transpose();
        Ok((
            threshold.map_err(|error| Usage(format!("--threshold: {error}")))?,
            min_margin.map_err(|error| Usage(format!("--min-margin: {error}")))?,
        ))
    }
}

/// A gallery and who answers about it.
pub(super) struct Ready {
    recognizer: Recognizer,
    pub(super) snapshot: Arc<Snapshot>,
}

impl Ready {
    /// Blocks until the gallery can be scanned.
    pub(super) fn new(settings: &Settings, snapshot: Snapshot) -> anyhow::Result<Self> {
        let name = snapshot.profile().name.clone();
        let engine = Engine::start(&settings.backend, 2)?;
        let recognizer = Recognizer::load(engine, vec![snapshot], settings.recognition)?;
        let snapshot = recognizer.gallery(&name)?;
        Ok(Self { recognizer, snapshot })
    }

    pub(super) fn asking(&self, (threshold, min_margin): (Option<Threshold>, Option<Margin>)) -> Asking<'_> {
        Asking {
            recognizer: &self.recognizer,
            snapshot: &self.snapshot,
            threshold,
            min_margin,
            unique_in_group: false,
        }
    }

    /// What scans.
    fn backend(&self) -> &'static str {
        use crate::telemetry::Label;
        self.recognizer.account().answers().backend.as_str()
    }
}

/// A bar on stderr, where that is a terminal.
struct Steps(ProgressBar);

impl Steps {
    fn new(what: &'static str) -> Self {
        let bar = ProgressBar::new(0).with_message(what);
        if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    fn show(&self, done: usize, of: usize) {
        self.0.set_length(of as u64);
        self.0.set_position(done as u64);
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A share as people read it, or a dash for none.
fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}
