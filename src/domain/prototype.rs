//! A prototype: one stored embedding of an identity, and how it is named.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::Embedding;

/// Most bytes a gallery's, identity's or prototype's name, or a source, may have.
const MAX_NAME_BYTES: usize = 256;

/// How a prototype came to be chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// The medoid of a cluster of the identity's embeddings.
    ClusterMedoid,
    /// Added because it raised leave-one-out recognition most.
    GreedyLeaveOneOutGain,
    /// Chosen by a person.
    Manual,
    /// Came with an import.
    #[default]
    Import,
}

impl Origin {
    /// All of them, each at the place that it has as a number.
    pub const ALL: [Self; 4] = [Self::ClusterMedoid, Self::GreedyLeaveOneOutGain, Self::Manual, Self::Import];

    /// The name it has in files and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterMedoid => "cluster_medoid",
            Self::GreedyLeaveOneOutGain => "greedy_leave_one_out_gain",
            Self::Manual => "manual",
            Self::Import => "import",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Origin {
    type Err = UnknownOrigin;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|origin| origin.as_str() == name)
            .ok_or_else(|| UnknownOrigin(name.to_owned()))
    }
}

/// A name that is no [`Origin`]'s.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("expected cluster_medoid, greedy_leave_one_out_gain, manual or import, got {0:?}")]
pub struct UnknownOrigin(String);

/// What names a prototype in its gallery: its id is unique within its identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PrototypeKey {
    /// The person.
    pub identity: String,
    /// The prototype's id.
    pub id: String,
}

/// One stored embedding of an identity.
#[derive(Clone, Debug, PartialEq)]
pub struct Prototype {
    /// Its name.
    pub key: PrototypeKey,
    /// Where it came from, such as a photo's file name; may be empty.
    pub source: String,
    /// How it was chosen.
    pub origin: Origin,
    /// When it was added, in milliseconds since 1970 (UTC).
    pub created_ms: i64,
    /// Its vector.
    pub embedding: Embedding,
}

/// Why a text is not a name.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NameError {
    /// Nothing there.
    #[error("expected a name, got nothing")]
    Empty,
    /// Blanks and joiners alone, which nobody can see.
    #[error("expected a name, got blanks")]
    Blank,
    /// Longer than a name may be.
    #[error("expected at most {MAX_NAME_BYTES} bytes, got {0}")]
    TooLong(usize),
    /// A control character, such as a line break or NUL.
    #[error("expected no control characters, got {0:?}")]
    Control(char),
    /// A character that shows as nothing, or that turns the text around it: two names could look the same.
    #[error("expected no invisible or direction-changing characters, got U+{:04X}", u32::from(*.0))]
    Invisible(char),
}

/// Whether a character shows as nothing, and a name is as well without it: fillers, soft hyphens and the like, and what turns the text around it.
/// These are Unicode's `Default_Ignorable_Code_Point`s, line separators and the empty braille pattern, less what [`only_joins`].
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e001f}'
    )
}

/// Whether a character is seen by what it does to its neighbours, which some scripts and pictures cannot be written without: joiners, and selectors
/// of variants.
fn only_joins(c: char) -> bool {
    matches!(
        c,
        '\u{34f}' | '\u{180b}'..='\u{180f}' | '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0020}'..='\u{e007f}'
            | '\u{e0100}'..='\u{e01ef}'
    )
}

/// Checks a gallery's, identity's or prototype's name: 1 to 256 bytes of any script, not blanks alone, no control characters, nothing
/// invisible and nothing that changes the direction of writing.
pub fn check_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(NameError::TooLong(name.len()));
    }
    if name.chars().all(|c| only_joins(c) || c.is_whitespace() && !c.is_control()) {
        return Err(NameError::Blank);
    }
    match unprintable(name) {
        Some(control) if control.is_control() => Err(NameError::Control(control)),
        Some(invisible) => Err(NameError::Invisible(invisible)),
        None => Ok(()),
    }
}

/// The first character of a text that would do something to what it is printed on, or that nobody can see; joiners aside.
pub fn unprintable(text: &str) -> Option<char> {
    text.chars().find(|c| c.is_control() || is_invisible(*c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_script_pass_and_control_characters_do_not() {
        for name in ["person_001", "张伟", "O'Brien; DROP TABLE", "a/b c"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        assert_eq!(check_name(""), Err(NameError::Empty));
        for blank in [" ", "\u{3000} ", "\u{200d}", "\u{fe0f} \u{34f}"] {
            assert_eq!(check_name(blank), Err(NameError::Blank), "{blank:?}");
        }
        assert_eq!(check_name("a\nb"), Err(NameError::Control('\n')));
        assert_eq!(check_name(&"x".repeat(257)), Err(NameError::TooLong(257)));
    }

    #[test]
    fn what_nobody_can_see_is_in_no_name_except_for_joiners() {
        let refused = [
            '\u{ad}', '\u{61c}', '\u{200b}', '\u{200e}', '\u{2060}', '\u{2800}', '\u{3164}', '\u{feff}',
            '\u{2028}', '\u{2029}',
        ];
        let refused = refused.into_iter().chain('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}');
        for c in refused {
            assert_eq!(check_name(&format!("ann{c}a")), Err(NameError::Invisible(c)), "{c:?}");
        }
        let error = check_name("\u{202e}nna").unwrap_err().to_string();
        assert_eq!(error, "expected no invisible or direction-changing characters, got U+202E");
        for name in ["می\u{200c}خواهم", "क्\u{200d}ष", "👩\u{200d}🚀", "שרה", "❤\u{fe0f}", "葛\u{e0100}城"]
        {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn origins_are_read_back_by_their_names() {
        for (place, origin) in Origin::ALL.into_iter().enumerate() {
            assert_eq!(origin.as_str().parse(), Ok(origin));
            assert_eq!(origin as usize, place);
        }
        assert!("chosen".parse::<Origin>().is_err());
    }
}
