//! Which rows of a generation the one before it had already.
//!
//! Rows stand by identity, so a prototype that comes or goes moves all rows behind it: they are found again by the names of
//! identities and prototypes, and compared by their values.

use std::sync::Arc;

use super::Snapshot;
use crate::domain::Kept;

/// Fewer rows than this in a row are not worth a copy of their own.
const FEWEST: usize = 64;

impl Snapshot {
    /// The rows that `former` has too, with the same values: ascending and disjoint by where they stand in `self`; short stretches are
    /// left out.
    ///
    /// Reads all embeddings of both: not for a thread that others wait for.
    pub fn kept_of(&self, former: &Self) -> Arc<[Kept]> {
        let mut stretches = Stretches::default();
        if self.matrix().dim() == former.matrix().dim() {
            let mut beside = 0;
            for (place, identity) in self.identities().enumerate() {
                // Most identities follow one another as they did before.
                let Some(was) = former.place_by(&identity.name.read(), beside) else { continue };
                beside = was + 1;
                self.match_identity(place, former, was, &mut stretches);
            }
        }
        stretches.end()
    }

    /// Adds what an identity's rows have in common with those of the identity at `was` in `former`.
    fn match_identity(&self, place: usize, former: &Self, was: usize, into: &mut Stretches) {
        let owned = former.rows_of(was);
        let mut from = owned.start;
        for to in self.rows_of(place) {
            let is_at = |from: usize| self.matrix().row(to) == former.matrix().row(from);
            if from >= owned.end || !is_at(from) {
                let id = self.row(to).prototype_id.read();
                match former.prototype_in(was, &id) {
                    Some(found) if is_at(found) => from = found,
                    Some(_) | None => continue,
                }
            }
            into.add(from, to);
            from += 1;
        }
    }

    /// The place of the identity of that name, which is likely to be `guess`.
    fn place_by(&self, name: &str, guess: usize) -> Option<usize> {
        let right = guess < self.identity_count() && self.identity(guess).name.read() == name;
        if right { Some(guess) } else { self.place_of(name) }
    }
}

/// Stretches of rows, the last of which may grow.
#[derive(Default)]
struct Stretches {
    done: Vec<Kept>,
    last: Option<Kept>,
}

impl Stretches {
    fn add(&mut self, from: usize, to: usize) {
        match &mut self.last {
            Some(last) if (last.from + last.count, last.to + last.count) == (from, to) => last.count += 1,
            _ => {
                self.close();
                self.last = Some(Kept { from, to, count: 1 });
            }
        }
    }

    fn close(&mut self) {
        self.done.extend(self.last.take().filter(|last| last.count >= FEWEST));
    }

    fn end(mut self) -> Arc<[Kept]> {
        self.close();
        self.done.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Embedding, NormPolicy, Origin, Prototype, PrototypeKey};
    use crate::gallery::GalleryProfile;
    use proptest::prelude::*;

    /// A gallery of these prototypes, in this order: identity, id, and what tells its embedding from others.
    fn gallery(prototypes: &[(usize, usize, u16)]) -> Snapshot {
        let of = |(index, &(identity, id, value)): (usize, &(usize, usize, u16))| {
            let (y, x) = (f32::from(value) / 1e4).sin_cos();
            let prototype = Prototype {
                key: PrototypeKey { identity: format!("identity {identity}"), id: id.to_string() },
                source: String::new(),
                origin: Origin::Import,
                created_ms: 0,
                embedding: Embedding::parse(vec![x, y], 2, NormPolicy::Normalise).unwrap(),
            };
            (index as u64, prototype)
        };
        let prototypes = prototypes.iter().enumerate().map(of).collect();
        Snapshot::new(GalleryProfile::named("made", 2), Vec::new(), prototypes)
    }

    fn numbered(identities: usize, each: usize) -> Vec<(usize, usize, u16)> {
        let one = |place: usize| (place / each, place % each, place as u16);
        (0..identities * each).map(one).collect()
    }

    #[test]
    fn rows_are_found_again_where_others_came_went_and_changed() {
        let all = numbered(10, 100);
        let former = gallery(&all);
        let one = |from, to, count| Kept { from, to, count };
        assert_eq!(*former.kept_of(&former), [one(0, 0, 1000)]);
        let mut later = all.clone();
        later[500].2 = 60_000; // changed
        later.remove(250); // gone
        later.push((1, 777, 61_000)); // come: the last row of its identity
        let expected = [one(0, 0, 200), one(200, 201, 50), one(251, 251, 249), one(501, 501, 499)];
        let expected: Vec<Kept> = expected.into_iter().filter(|kept| kept.count >= FEWEST).collect();
        assert_eq!(*gallery(&later).kept_of(&former), *expected);
        // Whole identities change places.
        later = all[300..].iter().chain(&all[..300]).copied().collect();
        assert_eq!(*gallery(&later).kept_of(&former), [one(300, 0, 700), one(0, 700, 300)]);
        assert!(gallery(&[]).kept_of(&former).is_empty());
        assert!(former.kept_of(&gallery(&[])).is_empty());
    }

    #[test]
    fn nothing_is_kept_of_another_dimension() {
        let former = Snapshot::new(GalleryProfile::named("made", 3), Vec::new(), Vec::new());
        assert!(gallery(&numbered(2, 100)).kept_of(&former).is_empty());
    }

    proptest! {
        #[test]
        fn what_is_kept_is_the_same_and_stands_in_order(
            changes in proptest::collection::vec((0_usize..600, 0_u8..4, any::<u16>()), 0..12)
        ) {
            let all = numbered(3, 200);
            let (former, mut later) = (gallery(&all), all);
            for (place, change, value) in changes {
                let place = place.min(later.len() - 1);
                match change {
                    0 => drop(later.remove(place)),
                    1 => later[place].2 = value,
                    2 => later.swap(place, value as usize % 500),
                    _ => later.insert(place, (value as usize % 5, 1000 + later.len() + value as usize, value)),
                }
            }
            let mut seen = std::collections::HashSet::new();
            later.retain(|(identity, id, _)| seen.insert((*identity, *id)));
            let later = gallery(&later);
            let mut next = 0;
            for &Kept { from, to, count } in &*later.kept_of(&former) {
                prop_assert!(to >= next && count >= FEWEST);
                next = to + count;
                for row in 0..count {
                    prop_assert_eq!(later.matrix().row(to + row), former.matrix().row(from + row));
                }
            }
        }
    }
}
