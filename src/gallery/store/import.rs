//! Taking prototypes in: all of an import or nothing.

use rusqlite::{Connection, TransactionBehavior, named_params};
use serde::Serialize;

use super::removed::Counters;
use super::writer::Writer;
use super::{
    GalleryKey, MAX_GALLERIES, MAX_PROTOTYPES, RecordProblem, Store, StoreError, find_gallery, now_ms, read,
    removed, schema,
};
use crate::domain::{MAX_DIM, Margin, NormPolicy, Threshold, check_name};
use crate::gallery::{GalleryProfile, Identity, OnProgress, PrototypeRecord};

/// What is to be imported.
#[derive(Debug)]
pub struct Import<'a> {
    /// Into which gallery; it is made, with the records' dim, where it is not there.
    pub gallery: &'a str,
    /// What the gallery is, as far as the caller cares.
    pub options: ImportOptions,
    /// The prototypes, at least one.
    pub records: Vec<PrototypeRecord>,
}

/// Settings of a gallery: applied when it is made. A gallery that is there must already have those that are said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportOptions {
    /// The model that made the embeddings. Unsaid: none.
    pub model_id: Option<String>,
    /// What happens to vectors that are not of unit length. Unsaid: they are normalised.
    pub norm: Option<NormPolicy>,
    /// The gallery's own threshold. Unsaid: none.
    pub threshold: Option<Threshold>,
    /// The gallery's own least margin. Unsaid: none.
    pub min_margin: Option<Margin>,
    /// Thresholds and margins of identities, given to those of them that the import makes.
    pub identities: Vec<Identity>,
    /// The generation that the gallery must have, 0 where it must not be there: for whoever looked at it before. Unsaid: any.
    pub generation: Option<u64>,
}

/// What an import did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    /// Into which gallery.
    pub gallery: String,
    /// Whether the gallery was made for it.
    pub created: bool,
    /// Prototypes added.
    pub prototypes: u64,
    /// Identities that are new.
    pub identities: u64,
    /// Of the added prototypes, those that were not of unit length.
    pub normalised: u64,
    /// Prototypes in the gallery now.
    pub total: u64,
    /// The gallery's generation now.
    pub generation: u64,
}

impl Store {
    /// Adds all prototypes of `import` in the order given, as one change, or none if one of them cannot be taken.
    pub fn import(
        &mut self,
        import: Import<'_>,
        on_progress: OnProgress<'_>,
    ) -> Result<ImportReport, StoreError> {
        let Some(first) = import.records.first() else {
            return Err(StoreError::NoRecords);
        };
        let dim = first.embedding.len();
        if !(1..=MAX_DIM).contains(&dim) {
            return Err(RecordProblem::Dim { got: dim }.at(first.place.clone()));
        }
        let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let found = find_gallery(&transaction, import.gallery)?;
        check_generation(&import, found)?;
        let created = found.is_none();
        let key = match found {
            Some(key) => key,
            None => create_gallery(&transaction, import.gallery, dim, &import.options)?,
        };
        let profile = read::profile(&transaction, import.gallery)?;
        check_options(&profile, &import.options)?;
        let held = read::count_prototypes(&transaction, key.number)?;
        let total = held + import.records.len() as u64;
        if total > MAX_PROTOTYPES {
            return Err(StoreError::TooManyPrototypes { gallery: profile.name, got: total });
        }
        let indices_left = schema::INDEX_END - key.next_index;
        if import.records.len() as u64 > indices_left {
            let got = import.records.len() as u64;
            return Err(StoreError::IndicesSpent { gallery: profile.name, indices_left, got });
        }
        let rows = import.records.len();
        let writer = Writer::new(&transaction, key, &profile, &import.options.identities)?;
        let written = writer.add_all(import.records, on_progress)?;
        let generation = key.generation + 1;
        let next_index = key.next_index + rows as u64;
        set_counters(&transaction, GalleryKey { next_index, generation, ..key })?;
        transaction.commit()?;
        Ok(ImportReport {
            gallery: profile.name,
            created,
            prototypes: rows as u64,
            identities: written.identities,
            normalised: written.normalised,
            total,
            generation,
        })
    }
}

/// Makes a gallery of no prototypes. Its generation stands one below that of the change that makes it, which is not over; both counters
/// go on from a removed gallery of that name.
fn create_gallery(
    db: &Connection,
    name: &str,
    dim: usize,
    options: &ImportOptions,
) -> Result<GalleryKey, StoreError> {
    check_name(name).map_err(|problem| StoreError::GalleryName { name: name.to_owned(), problem })?;
    let model_id = options.model_id.as_deref().unwrap_or_default();
    if !model_id.is_empty() {
        check_name(model_id).map_err(|problem| StoreError::ModelId { name: model_id.to_owned(), problem })?;
    }
    let (count, number): (u64, i64) =
        db.query_row("SELECT count(*), coalesce(max(id), 0) + 1 FROM galleries", [], |row| {
            Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get(1)?))
        })?;
    if count >= MAX_GALLERIES || number >= schema::NUMBER_END {
        return Err(StoreError::TooManyGalleries);
    }
    let Counters { generation, next_index } = removed::take_up(db, name)?;
    let mut insert = db.prepare(
        "INSERT INTO galleries
            (id, name, dim, model_id, require_unit, threshold, min_margin, generation, next_index, created_ms)
         VALUES (:id, :name, :dim, :model_id, :require_unit, :threshold, :min_margin, :generation, :next_index,
            :created_ms)",
    )?;
    insert.execute(named_params! {
        ":id": number,
        ":name": name,
        // At most 4096.
        ":dim": dim as u16,
        ":model_id": model_id,
        ":require_unit": options.norm == Some(NormPolicy::RequireUnit),
        ":threshold": options.threshold.map(Threshold::get),
        ":min_margin": options.min_margin.map(Margin::get),
        // Written again when the change is over; no gallery that is there has generation 0.
        ":generation": generation.max(1).cast_signed(),
        ":next_index": next_index.cast_signed(),
        ":created_ms": now_ms(),
    })?;
    Ok(GalleryKey { number, next_index, generation })
}

/// Checks that the gallery is as it was when the caller looked at it.
fn check_generation(import: &Import<'_>, found: Option<GalleryKey>) -> Result<(), StoreError> {
    let got = found.map_or(0, |key| key.generation);
    match import.options.generation {
        Some(expected) if expected != got => {
            Err(StoreError::Changed { gallery: import.gallery.to_owned(), expected, got })
        }
        Some(_) | None => Ok(()),
    }
}

/// Checks that the gallery has what the caller says it has.
fn check_options(profile: &GalleryProfile, options: &ImportOptions) -> Result<(), StoreError> {
    let differs = |option, expected: String, got: String| {
        Err(StoreError::OptionDiffers { gallery: profile.name.clone(), option, expected, got })
    };
    let number = |value: Option<f32>| value.map_or_else(|| "none".to_owned(), |value| value.to_string());
    match &options.model_id {
        Some(model_id) if *model_id != profile.model_id => {
            return differs("model id", format!("{:?}", profile.model_id), format!("{model_id:?}"));
        }
        Some(_) | None => (),
    }
    if let Some(norm) = options.norm.filter(|norm| *norm != profile.norm) {
        let word = |norm| {
            if norm == NormPolicy::RequireUnit { "on" } else { "off" }
        };
        return differs("require_unit", word(profile.norm).to_owned(), word(norm).to_owned());
    }
    if options.threshold.is_some() && options.threshold != profile.threshold {
        let [has, got] = [profile.threshold, options.threshold].map(|t| number(t.map(Threshold::get)));
        return differs("threshold", has, got);
    }
    if options.min_margin.is_some() && options.min_margin != profile.min_margin {
        let [has, got] = [profile.min_margin, options.min_margin].map(|m| number(m.map(Margin::get)));
        return differs("min_margin", has, got);
    }
    Ok(())
}

/// Writes a gallery's generation and next index.
pub(super) fn set_counters(db: &Connection, key: GalleryKey) -> Result<(), StoreError> {
    let mut update = db.prepare_cached(
        "UPDATE galleries SET generation = :generation, next_index = :next_index WHERE id = :id",
    )?;
    update.execute(named_params! {
        ":generation": key.generation.cast_signed(),
        ":next_index": key.next_index.cast_signed(),
        ":id": key.number,
    })?;
    Ok(())
}
