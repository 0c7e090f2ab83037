//! One kernel of the family, as data: what `kernels/dot.cl`, `block.cl`, `lists.cl` and `lanes.cl` are compiled with.
//!
//! Every set is closed, so that a variant that is not in the family cannot be written down, neither in code nor in a file.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A closed set of numbers.
macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $value:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(into = "u32", try_from = "u32")]
        pub(in crate::backend::opencl) enum $name {
            $(#[doc = stringify!($value)] $variant,)+
        }

        impl $name {
            /// All of them, ascending.
            pub(in crate::backend::opencl) const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The number.
            pub(in crate::backend::opencl) const fn get(self) -> usize {
                match self {
                    $(Self::$variant => $value,)+
                }
            }
        }

        impl From<$name> for u32 {
            fn from(number: $name) -> Self {
                number.get() as Self
            }
        }

        impl TryFrom<u32> for $name {
            type Error = String;

            fn try_from(number: u32) -> Result<Self, String> {
                let found = Self::ALL.iter().find(|one| one.get() == number as usize);
                found.copied().ok_or_else(|| {
                    let all: Vec<String> = Self::ALL.iter().map(|one| one.get().to_string()).collect();
                    format!("expected one of {}, got {number}", all.join(", "))
                })
            }
        }
    };
}

numbers! {
    /// Work-items that share a segment's rows for one probe.
    Lanes { One = 1, Two = 2, Four = 4, Eight = 8, Sixteen = 16, ThirtyTwo = 32 }
}

numbers! {
    /// Sums that a dot product is gathered in.
    Accumulators { One = 1, Four = 4 }
}

numbers! {
    /// Steps of the dot product's loop that are written out in one round.
    Unroll { One = 1, Two = 2, Four = 4 }
}

numbers! {
    /// Most probes that lie interleaved in memory.
    ProbeTile { One = 1, Sixteen = 16 }
}

numbers! {
    /// Rows that a work-item scores at once against a block of probes.
    BlockRows { One = 1, Two = 2, Four = 4, Eight = 8 }
}

numbers! {
    /// Probes of a block.
    BlockProbes { Four = 4, Eight = 8, Sixteen = 16 }
}

numbers! {
    /// Blocks of probes that take turns at the same rows.
    Turns { One = 1, Four = 4, Sixteen = 16 }
}

/// How many components one load takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::backend::opencl) enum Width {
    /// One, of rows and of probes.
    Scalar,
    /// Four of a row, one of a probe.
    RowsFour,
    /// Eight of a row, one of a probe.
    RowsEight,
    /// Four of both.
    BothFour,
    /// Eight of both.
    BothEight,
}

impl Width {
    /// All of them.
    pub(in crate::backend::opencl) const ALL: &'static [Self] =
        &[Self::Scalar, Self::RowsFour, Self::RowsEight, Self::BothFour, Self::BothEight];

    /// Of a row.
    fn row(self) -> usize {
        match self {
            Self::Scalar => 1,
            Self::RowsFour | Self::BothFour => 4,
            Self::RowsEight | Self::BothEight => 8,
        }
    }

    /// Of a probe.
    fn probe(self) -> usize {
        match self {
            Self::Scalar | Self::RowsFour | Self::RowsEight => 1,
            Self::BothFour => 4,
            Self::BothEight => 8,
        }
    }
}

/// Where a work-item reads its probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::backend::opencl) enum ProbePlace {
    /// Where it lies.
    InMemory,
    /// In a private array that it was copied into.
    Private,
}

impl ProbePlace {
    /// Both.
    pub(in crate::backend::opencl) const ALL: &'static [Self] = &[Self::InMemory, Self::Private];
}

/// How a row enters a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::backend::opencl) enum Strategy {
    /// Scores descend; lower ones move aside.
    SortedInsertion,
    /// The new row takes the place of the lowest, which is read for every row.
    MinReplace,
    /// The same, with the lowest score kept at hand.
    ThresholdMinReplace,
}

impl Strategy {
    /// All of them.
    pub(in crate::backend::opencl) const ALL: &'static [Self] =
        &[Self::SortedInsertion, Self::MinReplace, Self::ThresholdMinReplace];

    fn number(self) -> usize {
        match self {
            Self::SortedInsertion => 0,
            Self::MinReplace => 1,
            Self::ThresholdMinReplace => 2,
        }
    }
}

/// How a work-item scores one row against one probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::backend::opencl) struct Single {
    pub(in crate::backend::opencl) width: Width,
    pub(in crate::backend::opencl) accumulators: Accumulators,
    pub(in crate::backend::opencl) unroll: Unroll,
    pub(in crate::backend::opencl) probe: ProbePlace,
    pub(in crate::backend::opencl) tile: ProbeTile,
}

impl Single {
    /// Where the probe lies, four components at a time: the fastest on a Mali-G610 (DESIGN.md, section 1).
    pub(in crate::backend::opencl) const FLOAT4: Self = Self {
        width: Width::BothFour,
        accumulators: Accumulators::Four,
        unroll: Unroll::One,
        probe: ProbePlace::InMemory,
        tile: ProbeTile::Sixteen,
    };

    /// Loads, sums and steps in a few words.
    pub(in crate::backend::opencl) fn sums(self) -> String {
        let Self { width, accumulators, unroll, .. } = self;
        let unroll = if unroll == Unroll::One { String::new() } else { format!(", unroll {}", unroll.get()) };
        format!("{width} x{}{unroll}", accumulators.get())
    }
}

/// The experiment with sums: those of DESIGN.md, section 1, and what lies between them.
pub(in crate::backend::opencl) const SUMS: [(Width, Accumulators, Unroll); 7] = [
    (Width::BothFour, Accumulators::One, Unroll::One),
    (Width::BothFour, Accumulators::One, Unroll::Four),
    (Width::BothFour, Accumulators::Four, Unroll::One),
    (Width::BothFour, Accumulators::Four, Unroll::Two),
    (Width::BothFour, Accumulators::Four, Unroll::Four),
    (Width::BothEight, Accumulators::Four, Unroll::One),
    (Width::BothEight, Accumulators::Four, Unroll::Two),
];

/// How a work-item scores several rows against several probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::backend::opencl) struct Block {
    pub(in crate::backend::opencl) rows: BlockRows,
    pub(in crate::backend::opencl) probes: BlockProbes,
    pub(in crate::backend::opencl) turns: Turns,
}

impl Block {
    /// What fills the sixteen registers of AVX2 and keeps the rows in a core's cache.
    pub(in crate::backend::opencl) const FOUR_BY_SIXTEEN: Self =
        Self { rows: BlockRows::Four, probes: BlockProbes::Sixteen, turns: Turns::Four };
}

/// What a work-item scores in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::backend::opencl) enum Dot {
    /// One row and one probe; vectors lie along the components.
    Single(Single),
    /// Some of both; vectors lie across the probes.
    Block(Block),
}

/// One kernel of the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::backend::opencl) struct Variant {
    pub(in crate::backend::opencl) lanes: Lanes,
    pub(in crate::backend::opencl) strategy: Strategy,
    pub(in crate::backend::opencl) dot: Dot,
}

/// How probes lie in the device's memory, as `dot.cl` draws it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::backend::opencl) struct Layout {
    /// Probes that there is room for.
    pub(in crate::backend::opencl) query_count: usize,
    /// Probes interleaved; divides `query_count`.
    pub(in crate::backend::opencl) tile: usize,
    /// Components of a probe that lie together; divides a row's stride.
    pub(in crate::backend::opencl) width: usize,
}

impl Variant {
    /// Probes that a work-item scores in one step.
    pub(in crate::backend::opencl) fn probes_per_item(self) -> usize {
        match self.dot {
            Dot::Single(_) => 1,
            Dot::Block(block) => block.probes.get(),
        }
    }

    /// Such blocks of probes that a work-item scans for.
    pub(in crate::backend::opencl) fn blocks_per_item(self) -> usize {
        match self.dot {
            Dot::Single(_) => 1,
            Dot::Block(block) => block.turns.get(),
        }
    }

    /// Rows that a work-item scores in one step.
    pub(in crate::backend::opencl) fn rows_per_item(self) -> usize {
        match self.dot {
            Dot::Single(_) => 1,
            Dot::Block(block) => block.rows.get(),
        }
    }

    /// Of a launch that has room for `query_count` probes, a power of two; a whole block of probes at least.
    pub(in crate::backend::opencl) fn layout(self, query_count: usize) -> Layout {
        match self.dot {
            Dot::Single(single) => {
                Layout { query_count, tile: query_count.min(single.tile.get()), width: single.width.probe() }
            }
            Dot::Block(block) => {
                let tile = block.probes.get();
                Layout { query_count: query_count.max(tile), tile, width: 1 }
            }
        }
    }

    /// What the kernels are compiled with, beside the sizes of the work.
    pub(in crate::backend::opencl) fn parameters(self) -> Vec<(&'static str, usize)> {
        let mut parameters =
            vec![("LANES_PER_QUERY", self.lanes.get()), ("STRATEGY", self.strategy.number())];
        match self.dot {
            Dot::Single(Single { width, accumulators, unroll, probe, tile: _ }) => parameters.extend([
                ("ROW_WIDTH", width.row()),
                ("ACCUMULATORS", accumulators.get()),
                ("UNROLL", unroll.get()),
                ("PRIVATE_PROBE", usize::from(probe == ProbePlace::Private)),
            ]),
            Dot::Block(Block { rows, probes, turns }) => parameters.extend([
                ("ROWS_PER_ITEM", rows.get()),
                ("PROBES_PER_ITEM", probes.get()),
                ("BLOCKS_PER_ITEM", turns.get()),
            ]),
        }
        parameters
    }
}

impl fmt::Display for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scalar => "scalar",
            Self::RowsFour => "rows float4",
            Self::RowsEight => "rows float8",
            Self::BothFour => "rows and probes float4",
            Self::BothEight => "rows and probes float8",
        })
    }
}

impl fmt::Display for ProbePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InMemory => "probe in memory",
            Self::Private => "probe in a private array",
        })
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SortedInsertion => "sorted insertion",
            Self::MinReplace => "min-replace",
            Self::ThresholdMinReplace => "threshold + min-replace",
        })
    }
}

impl fmt::Display for Dot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single(single) => {
                f.write_str(&single.sums())?;
                if single.probe == ProbePlace::Private {
                    write!(f, ", {}", single.probe)?;
                }
                write!(f, ", tile {}", single.tile.get())
            }
            Self::Block(Block { rows, probes, turns }) => {
                write!(f, "{} rows x {} probes", rows.get(), probes.get())?;
                if turns.get() > 1 {
                    write!(f, " x {} turns", turns.get())?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lanes = self.lanes.get();
        write!(f, "{lanes} lane{}, {}, {}", if lanes == 1 { "" } else { "s" }, self.dot, self.strategy)
    }
}
