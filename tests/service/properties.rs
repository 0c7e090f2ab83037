//! Recognition of small random galleries against a plain implementation of what the protocol says, written here from its words.

use std::collections::BTreeMap;

use lookalike::domain::{Margin, Threshold};
use lookalike::gallery::{DEFAULT_GALLERY, GalleryProfile, Identity};
use lookalike::recognize::decision::Decision;
use lookalike::recognize::{Exclusions, Probe, RecognizeQuery};
use proptest::prelude::*;

use super::support::{CPU, Face, recognizer, snapshot_of, unit};

/// One gallery and what is asked of it.
#[derive(Clone, Debug)]
struct Case {
    dim: usize,
    /// For each prototype its identity and which of the vectors it is: few, so that many rows are alike.
    rows: Vec<(usize, usize)>,
    vectors: Vec<Vec<i8>>,
    /// Thresholds and margins of the identities' own.
    own: Vec<(Option<f32>, Option<f32>)>,
    gallery: (Option<f32>, Option<f32>),
    request: (Option<f32>, Option<f32>),
    probes: Vec<Asked>,
    max_candidates: usize,
    unique_in_group: bool,
}

#[derive(Clone, Debug)]
struct Asked {
    vector: usize,
    group: usize,
    identities: Vec<usize>,
    prototypes: Vec<usize>,
    sources: Vec<usize>,
}

const IDENTITIES: usize = 6;
const VECTORS: usize = 9;
const SOURCES: usize = 4;
const GROUPS: [&str; 3] = ["", "left", "right"];

fn cuts() -> impl Strategy<Value = (Option<f32>, Option<f32>)> {
    // Scores of 1, 0 and -1 and margins of 0 are common here, so that the bounds are met exactly.
    let threshold = prop_oneof![-1.0_f32..1.0, prop::sample::select(vec![-1.0_f32, 0.0, 1.0])];
    let margin = prop_oneof![0.0_f32..0.5, prop::sample::select(vec![0.0_f32, 1.0])];
    (prop::option::weighted(0.4, threshold), prop::option::weighted(0.4, margin))
}

fn asked() -> impl Strategy<Value = Asked> {
    let few = |end| prop::collection::vec(0..end, 0..3);
    (0..VECTORS, 0..GROUPS.len(), few(IDENTITIES + 1), few(70), few(SOURCES + 1)).prop_map(
        |(vector, group, identities, prototypes, sources)| Asked {
            vector,
            group,
            identities,
            prototypes,
            sources,
        },
    )
}

fn case() -> impl Strategy<Value = Case> {
    (1_usize..20).prop_flat_map(|dim| {
        let vector = prop::collection::vec(-3_i8..=3, dim).prop_map(|mut vector| {
            if vector.iter().all(|component| *component == 0) {
                vector[0] = 1;
            }
            vector
        });
        (
            prop::collection::vec((0..IDENTITIES, 0..VECTORS), 0..=60),
            prop::collection::vec(vector, VECTORS),
            prop::collection::vec(cuts(), IDENTITIES),
            (cuts(), cuts()),
            prop::collection::vec(asked(), 1..8),
            1_usize..9,
            any::<bool>(),
        )
            .prop_map(
                move |(rows, vectors, own, (gallery, request), probes, max_candidates, unique_in_group)| {
                    Case {
                        dim,
                        rows,
                        vectors,
                        own,
                        gallery,
                        request,
                        probes,
                        max_candidates,
                        unique_in_group,
                    }
                },
            )
    })
}

impl Case {
    fn name(identity: usize) -> String {
        format!("person/{identity}")
    }

    fn source(row: usize) -> String {
        format!("photo {}", row % SOURCES)
    }

    fn vector(&self, place: usize) -> Vec<f32> {
        self.vectors[place].iter().map(|component| f32::from(*component)).collect()
    }

    fn faces(&self) -> Vec<Face> {
        let face = |(row, (identity, vector)): (usize, &(usize, usize))| Face {
            source: Self::source(row),
            ..Face::new(&Self::name(*identity), &row.to_string(), self.vector(*vector))
        };
        self.rows.iter().enumerate().map(face).collect()
    }

    fn exclusions(asked: &Asked) -> Exclusions {
        Exclusions {
            identities: asked.identities.iter().map(|identity| Self::name(*identity)).collect(),
            // Every second one with its identity: only the right one is meant.
            prototypes: asked
                .prototypes
                .iter()
                .map(|row| {
                    if row % 2 == 0 { format!("person/{}/{row}", row % IDENTITIES) } else { row.to_string() }
                })
                .collect(),
            rows: Vec::new(),
            sources: asked.sources.iter().map(|source| format!("photo {source}")).collect(),
        }
    }
}

/// What is expected of one probe.
#[derive(Debug, PartialEq)]
struct Expected {
    decision: Decision,
    score: Option<u32>,
    margin: Option<u32>,
    threshold: f32,
    min_margin: f32,
    /// Index and score bits of each identity's best prototype.
    candidates: Vec<(u64, u32)>,
}

/// Products in `f64`, eight lanes by component modulo 8, added pairwise, rounded once.
fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let lane = |lane: usize| -> f64 {
        a.iter().zip(b).skip(lane).step_by(8).fold(0.0, |sum, (x, y)| sum + f64::from(*x) * f64::from(*y))
    };
    let pair = |first: usize| lane(first) + lane(first + 1);
    ((pair(0) + pair(2)) + (pair(4) + pair(6))) as f32 + 0.0
}

/// The plain way: every score, every identity's best, all sorted.
fn naive(case: &Case, defaults: (f32, f32)) -> Vec<Expected> {
    let mut expected: Vec<(Option<usize>, Expected)> =
        case.probes.iter().map(|asked| naive_one(case, asked, defaults)).collect();
    if case.unique_in_group {
        let claims: Vec<Option<(usize, usize, f32)>> = case
            .probes
            .iter()
            .zip(&expected)
            .map(|(asked, (best, one))| {
                let contends = asked.group > 0 && one.decision == Decision::Recognized;
                if contends { Some((asked.group, (*best)?, f32::from_bits(one.score?))) } else { None }
            })
            .collect();
        for (place, claim) in claims.iter().enumerate() {
            let Some((group, identity, score)) = claim else { continue };
            let beaten = claims.iter().enumerate().any(|(other, rival)| {
                rival.is_some_and(|(g, i, s)| {
                    (g, i) == (*group, *identity) && (s > *score || (s >= *score && other < place))
                })
            });
            if beaten {
                expected[place].1.decision = Decision::Displaced;
            }
        }
    }
    expected.into_iter().map(|(_, one)| one).collect()
}

fn naive_one(case: &Case, asked: &Asked, defaults: (f32, f32)) -> (Option<usize>, Expected) {
    let probe = unit(&case.vector(asked.vector));
    let mut best: BTreeMap<usize, (f32, usize)> = BTreeMap::new();
    for (row, (identity, vector)) in case.rows.iter().enumerate() {
        let left_out = asked.identities.contains(identity)
            || (asked.prototypes.contains(&row) && (row % 2 == 1 || row % IDENTITIES == *identity))
            || asked.sources.contains(&(row % SOURCES));
        if left_out {
            continue;
        }
        let score = cosine(probe.as_slice(), unit(&case.vector(*vector)).as_slice());
        let entry = best.entry(*identity).or_insert((score, row));
        if score > entry.0 {
            *entry = (score, row);
        }
    }
    let mut ranked: Vec<(usize, f32, usize)> =
        best.into_iter().map(|(identity, (score, row))| (identity, score, row)).collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.2.cmp(&b.2)));
    let first = ranked.first().copied();
    let own = first.map_or((None, None), |(identity, ..)| case.own[identity]);
    let threshold = case.request.0.or(own.0).or(case.gallery.0).unwrap_or(defaults.0);
    let min_margin = case.request.1.or(own.1).or(case.gallery.1).unwrap_or(defaults.1);
    let margin = match ranked[..] {
        [first, second, ..] => Some((f64::from(first.1) - f64::from(second.1)) as f32),
        [_] | [] => None,
    };
    let decision = match first {
        None => Decision::NoCandidate,
        Some((_, score, _)) if score < threshold => Decision::BelowThreshold,
        Some(_) if margin.is_some_and(|margin| margin < min_margin) => Decision::Ambiguous,
        Some(_) => Decision::Recognized,
    };
    let expected = Expected {
        decision,
        score: first.map(|(_, score, _)| score.to_bits()),
        margin: margin.map(f32::to_bits),
        threshold,
        min_margin,
        candidates: ranked
            .iter()
            .take(case.max_candidates)
            .map(|(_, score, row)| (*row as u64, score.to_bits()))
            .collect(),
    };
    (first.map(|(identity, ..)| identity), expected)
}

/// What the product says.
fn answered(case: &Case) -> Vec<Expected> {
    let threshold = |value: Option<f32>| value.map(|value| Threshold::parse(value).unwrap());
    let margin = |value: Option<f32>| value.map(|value| Margin::parse(value).unwrap());
    let identities = (0..IDENTITIES).map(|identity| Identity {
        name: Case::name(identity),
        threshold: threshold(case.own[identity].0),
        min_margin: margin(case.own[identity].1),
    });
    let profile = GalleryProfile {
        threshold: threshold(case.gallery.0),
        min_margin: margin(case.gallery.1),
        ..GalleryProfile::named(DEFAULT_GALLERY, case.dim)
    };
    let recognizer = recognizer(snapshot_of(profile, identities.collect(), &case.faces()), &CPU);
    let probe = |asked: &Asked| Probe {
        embedding: unit(&case.vector(asked.vector)),
        group: GROUPS[asked.group].to_owned(),
        exclude: Case::exclusions(asked),
    };
    let snapshot = recognizer.gallery("").unwrap().clone();
    let query = RecognizeQuery {
        snapshot: snapshot.clone(),
        probes: case.probes.iter().map(probe).collect(),
        threshold: threshold(case.request.0),
        min_margin: margin(case.request.1),
        max_candidates: case.max_candidates,
        unique_in_group: case.unique_in_group,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let answer = runtime.block_on(recognizer.recognize(query)).unwrap();
    let told = answer.recognitions.iter().map(|one| Expected {
        decision: one.verdict.decision,
        score: one.verdict.score.map(f32::to_bits),
        margin: one.verdict.margin.map(f32::to_bits),
        threshold: one.verdict.cut.threshold.get(),
        min_margin: one.verdict.cut.min_margin.get(),
        candidates: one
            .candidates
            .iter()
            .map(|ranked| (snapshot.index(ranked.row as usize), ranked.score.to_bits()))
            .collect(),
    });
    told.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn recognition_is_what_its_words_say(case in case()) {
        // The configuration's defaults (config/lookalike.yaml).
        prop_assert_eq!(answered(&case), naive(&case, (0.5, 0.05)));
    }
}
