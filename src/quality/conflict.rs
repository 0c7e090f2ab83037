//! Does a new prototype look like somebody else? One function says so, whoever asks.

use serde::Serialize;

use super::standing::{Standing, in_order};
use super::validate::Place;
use crate::gallery::Snapshot;
use crate::recognize::decision::Cut;

/// A prototype that is nearer to another identity than to its own.
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
}

/// The conflict of a prototype, if it is in one: with another prototype of its person, where one of another person is nearer; as the first of its
/// person, where one of another person reaches that person's threshold. `standing` is its standing in the gallery that it would be in.
pub fn conflict(snapshot: &Snapshot, standing: &Standing, cut: impl Fn(usize) -> Cut) -> Option<Conflict> {
    let other = *standing.rivals.first()?;
    let in_conflict = match &standing.own {
        Some(own) => in_order(snapshot, &other, own).is_lt(),
        None => other.score >= cut(snapshot.identity_of(other.row as usize)).threshold.get(),
    };
    let row = snapshot.row(standing.row);
    in_conflict.then(|| Conflict {
        identity: snapshot.identity(standing.identity).name.to_owned(),
        prototype_id: row.prototype_id.to_owned(),
        own: standing.own.map(|own| Place::of(snapshot, own)),
        other: Place::of(snapshot, other),
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
    fn found(own: Option<f32>, other: Option<f32>) -> Option<String> {
        let ranked = |row: u32, score: f32| Ranked { row, score, raw: None };
        let standing = Standing {
            row: 1,
            identity: 0,
            own: own.map(|score| ranked(0, score)),
            rivals: other.map(|score| ranked(2, score)).into_iter().collect(),
        };
        let cut =
            |_| Cut { threshold: Threshold::parse(0.5).unwrap(), min_margin: Margin::parse(0.0).unwrap() };
        conflict(&snapshot(), &standing, cut).map(|found| found.other.identity)
    }

    #[test]
    fn who_is_nearer_to_another_is_in_conflict_with_that_one() {
        assert_eq!(found(Some(0.6), Some(0.7)).as_deref(), Some("bob"));
        assert_eq!(found(Some(0.7), Some(0.6)), None);
        // Of equals the earlier prototype is the nearer: ann's.
        assert_eq!(found(Some(0.7), Some(0.7)), None);
        assert_eq!(found(Some(0.1), Some(0.2)).as_deref(), Some("bob"));
        assert_eq!(found(Some(0.7), None), None);
    }

    #[test]
    fn the_first_of_a_person_is_in_conflict_with_whom_it_would_be_taken_for() {
        assert_eq!(found(None, Some(0.5)).as_deref(), Some("bob"));
        assert_eq!(found(None, Some(0.49)), None);
        assert_eq!(found(None, None), None);
    }
}
