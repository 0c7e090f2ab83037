//! Names of identities by their numbers, in two blocks of memory.

use crate::gallery::compact::Texts;

/// The names of one gallery's identities.
#[derive(Debug, Default)]
pub(super) struct IdentityNames {
    /// Numbers, and where their names start; by number once [`Self::sorted`].
    starts: Vec<(i64, u64)>,
    names: Texts,
}

impl IdentityNames {
    /// Adds an identity. None is found before the names are sorted.
    pub(super) fn add(&mut self, number: i64, name: &str) {
        self.starts.push((number, self.names.push(name)));
    }

    /// These names, ready to be asked for.
    pub(super) fn sorted(mut self) -> Self {
        self.starts.sort_unstable();
        self
    }

    /// The name of an identity's number.
    pub(super) fn get(&self, number: i64) -> Option<&str> {
        let found = self.starts.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(self.names.get(self.starts[found].1))
    }

    /// All names, by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.starts.iter().map(|(_, start)| self.names.get(*start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_their_numbers_in_whatever_order_they_came() {
        let mut names = IdentityNames::default();
        for (number, name) in [(7, "bob"), (i64::MAX, "eve"), (-3, "ann")] {
            names.add(number, name);
        }
        let names = names.sorted();
        assert_eq!(
            [-3, 7, i64::MAX, 0].map(|number| names.get(number)),
            [Some("ann"), Some("bob"), Some("eve"), None]
        );
        assert_eq!(names.iter().collect::<Vec<_>>(), ["ann", "bob", "eve"]);
    }
}
