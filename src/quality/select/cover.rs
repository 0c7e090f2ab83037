//! Which few of many sets have the largest union: greedily, then by exchanges.

/// For each of `n` embeddings the set of those that it covers; none covers itself.
#[derive(Clone, Debug)]
pub(super) struct Covers {
    n: usize,
    /// Words of 64 bits a set.
    words: usize,
    bits: Vec<u64>,
}

impl Covers {
    /// `covers(prototype, probe)` is asked for each two different ones.
    pub(super) fn new(n: usize, covers: impl Fn(usize, usize) -> bool) -> Self {
        let words = n.div_ceil(64);
        let mut bits = vec![0; n * words];
        for prototype in 0..n {
            for probe in (0..n).filter(|&probe| probe != prototype && covers(prototype, probe)) {
                bits[prototype * words + probe / 64] |= 1 << (probe % 64);
            }
        }
        Self { n, words, bits }
    }

    fn set(&self, one: usize) -> &[u64] {
        &self.bits[one * self.words..][..self.words]
    }

    fn union<'c>(&self, chosen: impl IntoIterator<Item = &'c usize>) -> Vec<u64> {
        let mut union = vec![0; self.words];
        for &one in chosen {
            add(&mut union, self.set(one));
        }
        union
    }

    /// How many are covered by any of these.
    pub(super) fn union_len(&self, chosen: &[usize]) -> usize {
        count(&self.union(chosen))
    }

    /// How many each covers that those before it do not.
    pub(super) fn gains(&self, chosen: &[usize]) -> Vec<usize> {
        let mut union = vec![0; self.words];
        let gain = |one: &usize| {
            let before = count(&union);
            add(&mut union, self.set(*one));
            count(&union) - before
        };
        chosen.iter().map(gain).collect()
    }

    /// Adds to `fixed`, up to `most` in all, as long as something is gained. The added ones stand in the order of their gains.
    pub(super) fn complete(&self, fixed: Vec<usize>, most: usize) -> Vec<usize> {
        let keep = fixed.len();
        let mut chosen = self.grow(fixed, most);
        while let Some(better) = self.exchange(&chosen, keep) {
            chosen = better;
        }
        // Exchanges may have made one of the others superfluous.
        let mut at = chosen.len();
        while at > keep {
            at -= 1;
            let without: Vec<usize> = [&chosen[..at], &chosen[at + 1..]].concat();
            if self.union_len(&without) == self.union_len(&chosen) {
                chosen = without;
            }
        }
        let added = chosen.split_off(keep);
        self.in_order_of_gain(chosen, added)
    }

    /// Adds whatever gains most (the first of equals), as long as something is gained.
    fn grow(&self, mut chosen: Vec<usize>, most: usize) -> Vec<usize> {
        let mut union = self.union(&chosen);
        while chosen.len() < most {
            let covered = count(&union);
            let Some((one, best)) = self.best_with(&union) else { break };
            if best == covered {
                break;
            }
            add(&mut union, self.set(one));
            chosen.push(one);
        }
        chosen
    }

    /// The one with which the union becomes largest (the first of equals), and how large.
    fn best_with(&self, union: &[u64]) -> Option<(usize, usize)> {
        let joined = |one: usize| -> usize {
            let pairs = union.iter().zip(self.set(one));
            pairs.map(|(a, b)| (a | b).count_ones() as usize).sum()
        };
        (0..self.n).map(|one| (one, joined(one))).max_by_key(|(one, joined)| (*joined, self.n - one))
    }

    /// The best exchange of one that need not be kept for another, if any covers more.
    fn exchange(&self, chosen: &[usize], keep: usize) -> Option<Vec<usize>> {
        let mut best = (self.union_len(chosen), None);
        for at in keep..chosen.len() {
            let others = chosen[..at].iter().chain(&chosen[at + 1..]);
            if let Some((one, covered)) = self.best_with(&self.union(others))
                && covered > best.0
            {
                best = (covered, Some((at, one)));
            }
        }
        let (at, one) = best.1?;
        let mut better = chosen.to_vec();
        better[at] = one;
        Some(better)
    }

    fn in_order_of_gain(&self, mut chosen: Vec<usize>, mut added: Vec<usize>) -> Vec<usize> {
        added.sort_unstable();
        while !added.is_empty() {
            let gain = |one: usize| {
                let mut with = chosen.clone();
                with.push(one);
                self.union_len(&with)
            };
            let gains: Vec<usize> = added.iter().map(|&one| gain(one)).collect();
            let best = (0..added.len()).max_by_key(|&at| (gains[at], added.len() - at)).unwrap_or(0);
            chosen.push(added.remove(best));
        }
        chosen
    }
}

fn add(union: &mut [u64], set: &[u64]) {
    for (union, set) in union.iter_mut().zip(set) {
        *union |= set;
    }
}

fn count(set: &[u64]) -> usize {
    set.iter().map(|word| word.count_ones() as usize).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(n: usize, sets: &[&[usize]]) -> Covers {
        Covers::new(n, |prototype, probe| sets.get(prototype).is_some_and(|set| set.contains(&probe)))
    }

    #[test]
    fn the_greatest_gain_comes_first_and_nothing_is_added_for_nothing() {
        let covers = of(6, &[&[1, 2], &[0, 2, 3], &[4], &[0, 1]]);
        assert_eq!(covers.complete(Vec::new(), 9), [1, 0, 2]);
        assert_eq!(covers.gains(&[1, 0, 2]), [3, 1, 1]);
        assert_eq!(covers.complete(Vec::new(), 1), [1]);
        assert_eq!(covers.complete(vec![2], 2), [2, 1]);
        assert_eq!(of(3, &[]).complete(Vec::new(), 2), [0; 0]);
    }

    /// Greedily 4 + 1; the two that share out the six need an exchange.
    #[test]
    fn an_exchange_covers_what_greed_missed() {
        let covers = of(12, &[&[6, 7, 9, 10], &[6, 7, 8], &[9, 10, 11]]);
        assert_eq!(covers.grow(Vec::new(), 2), [0, 1]);
        assert_eq!(covers.union_len(&covers.complete(Vec::new(), 2)), 6);
    }

    proptest! {
        /// Never more than allowed, never a useless one, the fixed ones first, and at least as good as greed.
        #[test]
        fn a_completion_is_sound(
            n in 1_usize..40, seed in prop::collection::vec(any::<u64>(), 40), fixed in 0_usize..3, most in 1_usize..6,
        ) {
            let covers = Covers::new(n, |a, b| seed[a] >> b & 1 == 1 && seed[b] >> a & 3 == 1);
            let fixed: Vec<usize> = (0..fixed.min(n).min(most)).collect();
            let chosen = covers.complete(fixed.clone(), most);
            prop_assert!(chosen.len() <= most);
            prop_assert_eq!(&chosen[..fixed.len()], &fixed[..]);
            prop_assert!(covers.gains(&chosen)[fixed.len()..].iter().all(|gain| *gain > 0));
            prop_assert!(covers.union_len(&chosen) >= covers.union_len(&covers.grow(fixed, most)));
        }
    }
}
