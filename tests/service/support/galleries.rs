//! Galleries and probes: the sample's and made ones.

use std::path::{Path, PathBuf};

use lookalike::domain::{Embedding, NormPolicy, Origin, Prototype, PrototypeKey};
use lookalike::gallery::store::{Import, ImportOptions, Store};
use lookalike::gallery::{
    DEFAULT_GALLERY, GalleryProfile, Identity, Place, PrototypeRecord, Snapshot, formats,
};
use lookalike::grpc::proto;
use serde_json::Value;
use tempfile::TempDir;

/// One prototype to be stored; its index is its place in the list.
#[derive(Clone, Debug)]
pub(crate) struct Face {
    pub(crate) identity: String,
    pub(crate) id: String,
    pub(crate) source: String,
    pub(crate) vector: Vec<f32>,
}

impl Face {
    /// From the photo `identity/id.jpg`.
    pub(crate) fn new(identity: &str, id: &str, vector: Vec<f32>) -> Self {
        let source = format!("{identity}/{id}.jpg");
        Self { identity: identity.to_owned(), id: id.to_owned(), source, vector }
    }
}

/// A file of the sample gallery.
pub(crate) fn sample_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sample").join(name)
}

/// The sample gallery's prototypes.
pub(crate) fn sample_faces() -> Vec<Face> {
    let (vectors, labels) = (sample_file("gallery.npy"), sample_file("gallery.csv"));
    let records = formats::read_prototypes(&vectors, Some(&labels), &mut |_| ()).unwrap();
    let face = |record: PrototypeRecord| Face {
        identity: record.identity,
        id: record.id,
        source: record.source,
        vector: record.embedding,
    };
    records.into_iter().map(face).collect()
}

/// The sample's probes: id and vector.
pub(crate) fn sample_probes() -> Vec<(String, Vec<f32>)> {
    let probes = formats::read_probes(&sample_file("probes.jsonl")).unwrap();
    probes.into_iter().map(|probe| (probe.id, probe.embedding)).collect()
}

/// What NumPy computed for the sample.
pub(crate) fn expected() -> Value {
    serde_json::from_slice(&std::fs::read(sample_file("expected.json")).unwrap()).unwrap()
}

/// A data folder with these faces in its default gallery.
pub(crate) fn data_folder(faces: &[Face]) -> TempDir {
    data_folder_as(ImportOptions::default(), faces)
}

/// As [`data_folder`], with settings of the gallery's own.
pub(crate) fn data_folder_as(options: ImportOptions, faces: &[Face]) -> TempDir {
    let folder = TempDir::new().unwrap();
    let place = Place::file(Path::new("made"));
    let record = |(row, face): (usize, &Face)| PrototypeRecord {
        identity: face.identity.clone(),
        id: face.id.clone(),
        source: face.source.clone(),
        origin: Origin::Import,
        embedding: face.vector.clone(),
        place: place.row(row as u64),
    };
    let records = faces.iter().enumerate().map(record).collect();
    let import = Import { gallery: DEFAULT_GALLERY, options, records };
    Store::create_or_open(folder.path()).unwrap().import(import, &mut |_| ()).unwrap();
    folder
}

/// A default gallery of these faces in memory.
pub(crate) fn snapshot(dim: usize, faces: &[Face]) -> Snapshot {
    snapshot_of(GalleryProfile::named(DEFAULT_GALLERY, dim), Vec::new(), faces)
}

/// As [`snapshot`], with settings of the gallery's own; `identities` are those with thresholds or margins of their own.
pub(crate) fn snapshot_of(profile: GalleryProfile, identities: Vec<Identity>, faces: &[Face]) -> Snapshot {
    let prototypes = faces.iter().enumerate().map(|(index, face)| {
        let prototype = Prototype {
            key: PrototypeKey { identity: face.identity.clone(), id: face.id.clone() },
            source: face.source.clone(),
            origin: Origin::Import,
            created_ms: 0,
            embedding: unit(&face.vector),
        };
        (index as u64, prototype)
    });
    Snapshot::new(profile, identities, prototypes.collect())
}

/// A vector as the service will hold it.
pub(crate) fn unit(vector: &[f32]) -> Embedding {
    Embedding::parse(vector.to_vec(), vector.len(), NormPolicy::Normalise).unwrap()
}

/// A vector as `values`.
pub(crate) fn values(vector: &[f32]) -> proto::Embedding {
    proto::Embedding { values: vector.to_vec(), ..Default::default() }
}

/// A vector as `packed`.
pub(crate) fn packed(vector: &[f32]) -> proto::Embedding {
    let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
    proto::Embedding { packed: bytes.into(), ..Default::default() }
}

/// A probe that leaves out nothing.
pub(crate) fn probe(id: &str, vector: &[f32]) -> proto::Probe {
    proto::Probe { id: id.to_owned(), embedding: Some(packed(vector)), ..Default::default() }
}
