//! A source file and what of it is code: comments and the insides of literals are told apart from it.

/// One file.
#[derive(Debug)]
pub(crate) struct Source {
    path: String,
    text: String,
    /// The text with blanks for comments and for what stands in quotes; as many lines as the text.
    code: String,
    strings: Vec<(usize, String)>,
}

impl Source {
    /// The file `path`, from the repository's root, holding `text`.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (code, strings) = parted(text);
        Self { path: path.to_owned(), text: text.to_owned(), code, strings }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// What stands in quotes, with the line (from 1) it begins on.
    pub(crate) fn strings(&self) -> &[(usize, String)] {
        &self.strings
    }

    /// The folder or file below `src/` that this belongs to; none for `lib.rs` and `main.rs`, which see everything.
    pub(crate) fn layer(&self) -> Option<&str> {
        let below = self.path.strip_prefix("src/")?;
        match below.split_once('/') {
            Some((layer, _)) => Some(layer),
            None if ["lib.rs", "main.rs"].contains(&below) => None,
            None => below.strip_suffix(".rs"),
        }
    }

    /// Whether this file holds tests alone.
    pub(crate) fn is_test(&self) -> bool {
        self.path.starts_with("tests/") || self.path.contains("/tests/") || self.path.ends_with("/tests.rs")
    }

    /// A fault on a line.
    pub(crate) fn fault(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path)
    }

    /// Names and signs of the code, with the line each stands on.
    pub(crate) fn tokens(&self) -> Vec<(usize, &str)> {
        let mut tokens = Vec::new();
        for (line, text) in (1..).zip(self.code.lines()) {
            let mut rest = text;
            while let Some(first) = rest.chars().next() {
                let word = |c: char| c.is_alphanumeric() || c == '_';
                let end = if word(first) {
                    rest.find(|c| !word(c)).unwrap_or(rest.len())
                } else {
                    first.len_utf8()
                };
                let (token, after) = rest.split_at(end);
                if !token.trim().is_empty() {
                    tokens.push((line, token));
                }
                rest = after;
            }
        }
        tokens
    }

    /// As [`Self::tokens`], without what is compiled for tests alone.
    pub(crate) fn shipped_tokens(&self) -> Vec<(usize, &str)> {
        if self.is_test() {
            return Vec::new();
        }
        let tokens = self.tokens();
        let words: Vec<&str> = tokens.iter().map(|(_, token)| *token).collect();
        let mut shipped = Vec::new();
        let mut place = 0;
        while place < tokens.len() {
            if words[place..].starts_with(&["#", "[", "cfg", "(", "test", ")", "]"]) {
                place = end_of_item(&words, place + 7);
            } else {
                shipped.push(tokens[place]);
                place += 1;
            }
        }
        shipped
    }
}

/// The place behind the item that begins at `place`: behind its braces, or its semicolon where it has none.
fn end_of_item(words: &[&str], place: usize) -> usize {
    let mut depth = 0;
    for (offset, word) in words[place..].iter().enumerate() {
        match *word {
            "{" => depth += 1,
            "}" => depth -= 1,
            ";" if depth == 0 => return place + offset + 1,
            _ => continue,
        }
        if depth == 0 {
            return place + offset + 1;
        }
    }
    words.len()
}

/// Code with blanks for all else, and what stood in quotes.
fn parted(text: &str) -> (String, Vec<(usize, String)>) {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut strings = Vec::new();
    let (mut place, mut line) = (0, 1);
    while place < chars.len() {
        let end = match kind(&chars, place) {
            Kind::Code => {
                line += usize::from(chars[place] == '\n');
                code.push(chars[place]);
                place += 1;
                continue;
            }
            Kind::Comment(end) => end,
            Kind::Quoted(end) => {
                strings.push((line, chars[place..end].iter().collect()));
                end
            }
        };
        code.extend(chars[place..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
        line += chars[place..end].iter().filter(|c| **c == '\n').count();
        place = end;
    }
    (code, strings)
}

enum Kind {
    Code,
    /// Up to this place.
    Comment(usize),
    Quoted(usize),
}

/// What begins at `place`.
fn kind(chars: &[char], place: usize) -> Kind {
    let rest = &chars[place..];
    let upto = |end: Option<usize>| place + end.unwrap_or(rest.len());
    match rest {
        ['/', '/', ..] => Kind::Comment(upto(rest.iter().position(|c| *c == '\n'))),
        ['/', '*', ..] => Kind::Comment(upto(end_of_block_comment(rest))),
        ['"', ..] => Kind::Quoted(upto(end_of_quotes(rest, '"'))),
        // A character, not a lifetime.
        ['\'', '\\', ..] | ['\'', _, '\'', ..] => Kind::Quoted(upto(end_of_quotes(rest, '\''))),
        ['r', '#' | '"', ..] if place == 0 || !is_word(chars[place - 1]) => match end_of_raw(rest) {
            Some(end) => Kind::Quoted(place + end),
            None => Kind::Code,
        },
        _ => Kind::Code,
    }
}

fn is_word(c: char) -> bool {
    // `br"..."` is raw too.
    c != 'b' && (c.is_alphanumeric() || c == '_')
}

fn end_of_block_comment(rest: &[char]) -> Option<usize> {
    let mut depth = 0;
    let mut place = 0;
    while place < rest.len() {
        match rest[place..] {
            ['/', '*', ..] => (depth, place) = (depth + 1, place + 2),
            ['*', '/', ..] => (depth, place) = (depth - 1, place + 2),
            _ => place += 1,
        }
        if depth == 0 {
            return Some(place);
        }
    }
    None
}

fn end_of_quotes(rest: &[char], quote: char) -> Option<usize> {
    let mut place = 1;
    while place < rest.len() {
        match rest[place] {
            '\\' => place += 2,
            c if c == quote => return Some(place + 1),
            _ => place += 1,
        }
    }
    None
}

/// `r"..."` with any number of `#`; a raw identifier such as `r#type` is none.
fn end_of_raw(rest: &[char]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
    if rest.get(1 + hashes) != Some(&'"') {
        return None;
    }
    let end = |place: usize| {
        rest[place] == '"' && rest[place + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes
    };
    let close = (2 + hashes..rest.len()).find(|place| end(*place))?;
    Some(close + 1 + hashes)
}
