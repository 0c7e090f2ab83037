//! Does a new prototype look like somebody else? One function says so, whoever asks.

use serde::Serialize;

use super::standing::{Nearness, Standing};
use super::validate::Place;
use crate::gallery::Snapshot;
use crate::recognize::decision::Cut;

/// A prototype that is as near to another identity as to its own, or nearer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Conflict {
    /// The person it is said to be.
    pub identity: String,
    /// The prototype's id.
    pub prototype_id: String,
    /// The nearest other prototype of that person; absent for the first one.
    pub own: Option<Place>,
    /// The nearest prototype of another person.
    pub other: Place,
    /// What makes it a conflict.
    pub likeness: Likeness,
}

/// What makes a prototype look like another person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Likeness {
    /// That person has a prototype nearer than its own has.
    Nearer,
    /// That person has one exactly as near as the nearest of its own.
    AsNear,
    /// It is the first of its person, and would be taken for that one.
    TakenFor,
}

/// The conflict of a prototype, if it is in one: with another prototype of its person, where one of another person is as near or nearer; as the first of
/// its person, where one of another person reaches that person's threshold. `standing` is its standing in the gallery that it would be in.
pub fn conflict(snapshot: &Snapshot, standing: &Standing, cut: impl Fn(usize) -> Cut) -> Option<Conflict> {
    let other = *standing.rivals.first()?;
    let reached = || other.score >= cut(snapshot.identity_of(other.row as usize)).threshold.get();
    let likeness = match standing.nearness() {
        Some(Nearness::Nearer) => Likeness::Nearer,
        Some(Nearness::AsNear) => Likeness::AsNear,
        None if reached() => Likeness::TakenFor,
        Some(Nearness::Further) | None => return None,
    };
    let row = snapshot.row(standing.row);
    Some(Conflict {
        identity: snapshot.identity(standing.identity).name.read(),
        prototype_id: row.prototype_id.read(),
        own: standing.own.map(|own| Place::of(snapshot, own)),
        other: Place::of(snapshot, other),
        likeness,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Embedding, Margin, NormPolicy, Origin, Prototype, PrototypeKey, Threshold};
    use crate::engine::Ranked;
    use crate::gallery::GalleryProfile;

    fn snapshot() -> Snapshot {
        let prototypes = [("ann", "1"), ("bob", "1"), ("ann", "2")].into_iter().zip(0..);
        let prototypes = prototypes.map(|((identity, id), index)| {
            let key = PrototypeKey { identity: identity.to_owned(), id: id.to_owned() };
            let embedding = Embedding::parse(vec![1.0, index as f32], 2, NormPolicy::Normalise).unwrap();
            let (source, origin) = (String::new(), Origin::Import);
            (index, Prototype { key, source, origin, created_ms: 0, embedding })
        });
        Snapshot::new(GalleryProfile::named("made", 2), Vec::new(), prototypes.collect())
    }

    /// ann/2 with these scores to ann/1 and bob/1.
    fn found(own: Option<f32>, other: Option<f32>) -> Option<Likeness> {
        let ranked = |row: u32, score: f32| Ranked { row, score, raw: None };
        let standing = Standing {
            row: 1,
            identity: 0,
            own: own.map(|score| ranked(0, score)),
            rivals: other.map(|score| ranked(2, score)).into_iter().collect(),
        };
        let cut =
            |_| Cut { threshold: Threshold::parse(0.5).unwrap(), min_margin: Margin::parse(0.0).unwrap() };
        let found = conflict(&snapshot(), &standing, cut)?;
        assert_eq!((found.identity.as_str(), found.other.identity.as_str()), ("ann", "bob"));
        Some(found.likeness)
    }

    #[test]
    fn who_is_nearer_to_another_is_in_conflict_with_that_one() {
        assert_eq!(found(Some(0.6), Some(0.7)), Some(Likeness::Nearer));
        assert_eq!(found(Some(0.7), Some(0.6)), None);
        assert_eq!(found(Some(0.1), Some(0.2)), Some(Likeness::Nearer));
        assert_eq!(found(Some(0.7), None), None);
    }

    #[test]
    fn a_tie_is_not_nearer_but_a_conflict_all_the_same() {
        assert_eq!(found(Some(0.7), Some(0.7)), Some(Likeness::AsNear));
        assert_eq!(found(Some(1.0), Some(1.0)), Some(Likeness::AsNear));
    }

    #[test]
    fn the_first_of_a_person_is_in_conflict_with_whom_it_would_be_taken_for() {
        assert_eq!(found(None, Some(0.5)), Some(Likeness::TakenFor));
        assert_eq!(found(None, Some(0.49)), None);
        assert_eq!(found(None, None), None);
    }
}
