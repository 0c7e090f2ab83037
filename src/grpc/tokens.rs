//! Who may change things: bearer tokens, of which a file holds hashes (`server.tokens`).
//!
//! A first form: one role, `admin`, that guards what changes a running server. Invariants: no token is in a file, a log or an answer, only its
//! SHA-256; a file with a line that cannot be read is refused whole.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use sha2::{Digest, Sha256};
use thiserror::Error;
use tonic::Status;
use tonic::metadata::MetadataMap;

/// Largest file that is read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// How a token is told.
const CARRIED: &str =
    "send it as authorization: Bearer TOKEN; on the command line, --token-file FILE or LOOKALIKE_TOKEN";

/// Most tokens.
const MAX_TOKENS: usize = 1000;

/// The tokens that are taken: who each belongs to, by its hash.
#[derive(Default)]
pub struct Tokens(HashMap<[u8; 32], String>);

/// Why a file of tokens is not taken.
#[derive(Debug, Error)]
pub enum TokensError {
    /// It cannot be read.
    #[error("server.tokens: {path}: {error}")]
    Io {
        /// Which.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// A line of it.
    #[error(
        "server.tokens: {path}: line {line}: expected \"admin\", a SHA-256 in 64 hexadecimal digits, and a name"
    )]
    Line {
        /// Which.
        path: String,
        /// From 1. What stands there is not told: it may be a token.
        line: usize,
    },
    /// More than it may hold.
    #[error("server.tokens: {path}: expected at most {MAX_TOKENS} tokens in 1 MiB, got more")]
    TooMany {
        /// Which.
        path: String,
    },
}

impl Tokens {
    /// Reads a file: a line a token, `admin`, the token's SHA-256 and a name; blank lines and those that begin with `#` are skipped.
    pub fn load(path: &Path) -> Result<Self, TokensError> {
        let name = || path.display().to_string();
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text))
            .map_err(|error| TokensError::Io { path: name(), error })?;
        let mut tokens = HashMap::new();
        for (place, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let (hash, owner) =
                parsed(line).ok_or_else(|| TokensError::Line { path: name(), line: place + 1 })?;
            tokens.insert(hash, owner);
        }
        if tokens.len() > MAX_TOKENS || text.len() as u64 > MAX_FILE_BYTES {
            return Err(TokensError::TooMany { path: name() });
        }
        Ok(Self(tokens))
    }

    /// The name of whoever carries an `authorization: Bearer ...` of these.
    pub(super) fn admin(&self, metadata: &MetadataMap) -> Result<&str, Status> {
        let told = metadata.get("authorization").and_then(|value| value.to_str().ok());
        let token = told.and_then(|told| told.strip_prefix("Bearer ")).map(str::trim);
        let token = token.ok_or_else(|| {
            Status::unauthenticated(format!("expected an admin's token (server.tokens), got none: {CARRIED}"))
        })?;
        let unknown = || {
            Status::unauthenticated(format!(
                "expected an admin's token (server.tokens), got one that it does not name: {CARRIED}"
            ))
        };
        self.owner(token).ok_or_else(unknown)
    }

    /// The name of whoever carries this token.
    pub(super) fn owner(&self, token: &str) -> Option<&str> {
        // What is looked up is a hash: the time it takes tells nothing of the tokens.
        let hash: [u8; 32] = Sha256::digest(token).into();
        self.0.get(&hash).map(String::as_str)
    }
}

fn parsed(line: &str) -> Option<([u8; 32], String)> {
    let mut words = line.split_whitespace();
    let (role, digits, name) = (words.next()?, words.next()?, words.next()?);
    if role != "admin" || digits.len() != 64 || !digits.is_ascii() || words.next().is_some() {
        return None;
    }
    let mut hash = [0; 32];
    for (place, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * place..2 * place + 2], 16).ok()?;
    }
    Some((hash, name.to_owned()))
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// SHA-256 of "secret".
    const HASH: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    fn load(text: &str) -> Result<Tokens, TokensError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        Tokens::load(file.path())
    }

    fn admin(tokens: &Tokens, header: Option<&str>) -> Option<String> {
        let mut metadata = MetadataMap::new();
        if let Some(header) = header {
            metadata.insert("authorization", header.parse().unwrap());
        }
        tokens.admin(&metadata).ok().map(str::to_owned)
    }

    #[test]
    fn whoever_carries_a_token_is_known_by_name() {
        let tokens = load(&format!("# admins\n\nadmin {HASH} anna\n")).unwrap();
        assert_eq!(admin(&tokens, Some("Bearer secret")).as_deref(), Some("anna"));
        for other in
            [None, Some(""), Some("secret"), Some("Bearer"), Some("Bearer Secret"), Some("Basic secret")]
        {
            assert_eq!(admin(&tokens, other), None, "{other:?}");
        }
        let hashed = format!("Bearer {HASH}");
        assert_eq!(admin(&tokens, Some(&hashed)), None, "the hash is no token");
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named_and_not_repeated() {
        let upper = HASH.to_uppercase();
        assert!(load(&format!("admin {upper} anna")).is_ok());
        for bad in [
            "admin secret anna".to_owned(),
            format!("user {HASH} anna"),
            format!("admin {HASH}"),
            format!("admin {HASH} anna miller"),
            format!("admin {}zz anna", &HASH[2..]),
            format!("admin {HASH}00 anna"),
        ] {
            let error = load(&format!("# one\n{bad}")).unwrap_err().to_string();
            assert!(error.contains("line 2: expected \"admin\"") && !error.contains(&HASH[..8]), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(matches!(Tokens::load("/no/such/file".as_ref()), Err(TokensError::Io { .. })));
        let many: Vec<String> = (0..1001).map(|number| format!("admin {number:064x} anna\n")).collect();
        assert!(matches!(load(&many.concat()), Err(TokensError::TooMany { .. })));
    }
}
