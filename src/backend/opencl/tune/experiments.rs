//! The experiments of DESIGN.md, section 1, as data: which variants each one compares.

use crate::backend::opencl::lanes::{
    Block, BlockProbes, BlockRows, Dot, Lanes, ProbePlace, ProbeTile, SUMS, Single, Stage, Strategy, Trial,
    Turns, Variant, Width,
};

/// What one experiment varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    /// Work-items a probe.
    Lanes,
    /// How far a scan goes.
    Stages,
    /// Components a load.
    Width,
    /// Sums and steps of the dot product.
    Sums,
    /// Where the probe is read.
    Registers,
    /// How a row enters a list.
    Strategy,
    /// Rows of a list.
    ListSize,
    /// Probes interleaved in memory.
    Interleaving,
    /// Rows and probes a work-item.
    Block,
    /// Blocks of probes that take turns.
    Turns,
}

/// One line of an experiment's table.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    /// What is varied, in words.
    pub(super) label: String,
    /// What is run.
    pub(super) trial: Trial,
}

/// The form of dot product that an axis has something to vary of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Any,
    Single,
    Block,
}

impl Axis {
    /// In the order of DESIGN.md's table; the last three are beyond it.
    pub(super) const ALL: [Self; 10] = [
        Self::Lanes,
        Self::Stages,
        Self::Width,
        Self::Sums,
        Self::Registers,
        Self::Strategy,
        Self::ListSize,
        Self::Interleaving,
        Self::Block,
        Self::Turns,
    ];

    /// Those that make another variant that serves as well, in the order in which the best is looked for: first what changes most.
    pub(super) const DESCENT: [Self; 8] = [
        Self::Block,
        Self::Turns,
        Self::Width,
        Self::Sums,
        Self::Registers,
        Self::Interleaving,
        Self::Lanes,
        Self::Strategy,
    ];

    /// The experiment's name.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Lanes => "lanes per probe",
            Self::Stages => "stages",
            Self::Width => "vector width",
            Self::Sums => "accumulators",
            Self::Registers => "register pressure",
            Self::Strategy => "top-k strategy",
            Self::ListSize => "top-k size",
            Self::Interleaving => "probes interleaved",
            Self::Block => "rows x probes a work-item",
            Self::Turns => "blocks that take turns",
        }
    }

    fn form(self) -> Form {
        match self {
            Self::Width | Self::Sums | Self::Registers | Self::Interleaving => Form::Single,
            Self::Turns => Form::Block,
            Self::Lanes | Self::Stages | Self::Strategy | Self::ListSize | Self::Block => Form::Any,
        }
    }

    /// This experiment around `base`, with another form of dot product where the base's has nothing to vary.
    pub(super) fn table(self, base: Trial) -> Vec<Choice> {
        let dot = match self.form() {
            Form::Any => base.variant.dot,
            Form::Single => Dot::Single(single(base)),
            Form::Block => Dot::Block(block(base)),
        };
        self.options(Trial { variant: Variant { dot, ..base.variant }, ..base })
    }

    /// What one step along this axis leads to from `base`; nothing where its dot product has nothing to vary.
    pub(super) fn steps(self, base: Trial) -> Vec<Choice> {
        let fits = match (self.form(), base.variant.dot) {
            (Form::Any, _) | (Form::Single, Dot::Single(_)) | (Form::Block, Dot::Block(_)) => true,
            (Form::Single, Dot::Block(_)) | (Form::Block, Dot::Single(_)) => false,
        };
        if fits { self.options(base) } else { Vec::new() }
    }

    fn options(self, base: Trial) -> Vec<Choice> {
        let of_trial = |label: String, trial: Trial| Choice { label, trial };
        let of_variant = |label: String, variant: Variant| of_trial(label, Trial { variant, ..base });
        let of_dot = |label: String, dot: Dot| of_variant(label, Variant { dot, ..base.variant });
        let of_single = |label: String, single: Single| of_dot(label, Dot::Single(single));
        let (single, block) = (single(base), block(base));
        match self {
            Self::Lanes => map(Lanes::ALL, |lanes| {
                of_variant(lanes.get().to_string(), Variant { lanes, ..base.variant })
            }),
            Self::Stages => map(&Stage::ALL, |stage| of_trial(stage.to_string(), Trial { stage, ..base })),
            Self::Width => map(Width::ALL, |width| of_single(width.to_string(), Single { width, ..single })),
            Self::Sums => map(&SUMS, |(width, accumulators, unroll)| {
                let sums = Single { width, accumulators, unroll, ..single };
                of_single(sums.sums(), sums)
            }),
            Self::Registers => {
                map(ProbePlace::ALL, |probe| of_single(probe.to_string(), Single { probe, ..single }))
            }
            Self::Strategy => map(Strategy::ALL, |strategy| {
                of_variant(strategy.to_string(), Variant { strategy, ..base.variant })
            }),
            Self::ListSize => {
                map(&[8, 16, 32, 64], |list: usize| of_trial(list.to_string(), Trial { list, ..base }))
            }
            Self::Interleaving => {
                map(ProbeTile::ALL, |tile| of_single(tile.get().to_string(), Single { tile, ..single }))
            }
            Self::Block => {
                let mut all = vec![of_single("1 x 1".to_owned(), single)];
                for &rows in BlockRows::ALL {
                    all.extend(map(BlockProbes::ALL, |probes| {
                        let label = format!("{} x {}", rows.get(), probes.get());
                        of_dot(label, Dot::Block(Block { rows, probes, ..block }))
                    }));
                }
                all
            }
            Self::Turns => {
                map(Turns::ALL, |turns| of_dot(turns.get().to_string(), Dot::Block(Block { turns, ..block })))
            }
        }
    }
}

fn map<T: Copy>(all: &[T], option: impl Fn(T) -> Choice) -> Vec<Choice> {
    all.iter().map(|one| option(*one)).collect()
}

/// The base's, or the usual one.
fn single(base: Trial) -> Single {
    match base.variant.dot {
        Dot::Single(single) => single,
        Dot::Block(_) => Single::FLOAT4,
    }
}

/// The base's, or the usual one.
fn block(base: Trial) -> Block {
    match base.variant.dot {
        Dot::Block(block) => block,
        Dot::Single(_) => Block::FOUR_BY_SIXTEEN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::opencl::lanes::Tuning;

    fn trial(variant: Variant) -> Trial {
        Trial { variant, stage: Stage::Full, list: 32 }
    }

    #[test]
    fn every_experiment_compares_different_things_and_the_base_is_among_them() {
        for base in [Tuning::WIDE.many, Tuning::NARROW.many, Tuning::NARROW.few].map(trial) {
            for axis in Axis::ALL {
                let table = axis.table(base);
                for (place, option) in table.iter().enumerate() {
                    let again = table[..place].iter().any(|other| other.trial == option.trial);
                    assert!(!again, "{} {} twice", axis.as_str(), option.label);
                }
                assert!(table.len() >= 2, "{}", axis.as_str());
                let steps = axis.steps(base);
                assert!(steps.is_empty() || steps.iter().any(|one| one.trial == base), "{}", axis.as_str());
            }
        }
    }

    #[test]
    fn the_search_leads_to_what_serves_alone() {
        for axis in Axis::DESCENT {
            let steps = axis.steps(trial(Tuning::WIDE.many));
            assert!(steps.iter().all(|one| (one.trial.stage, one.trial.list) == (Stage::Full, 32)));
        }
    }
}
