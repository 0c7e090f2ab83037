//! What a file must be and which crates it may name. Each check gives its faults, one a line.

use super::text::Source;

/// Most lines of a file.
const MAX_LINES: usize = 500;

/// Crates, and the places below `src/` that may name them.
const PLACES: [(&[&str], &[&str]); 4] = [
    (&["ocl", "ocl_core", "cl_sys"], &["backend/opencl/"]),
    (
        &[
            "tonic",
            "tonic_health",
            "tonic_prost",
            "tonic_reflection",
            "tonic_types",
            "prost",
            "prost_types",
            "pbjson",
            "pbjson_types",
        ],
        &["grpc/", "server/", "cli/"],
    ),
    (&["serde_yaml"], &["config/load.rs"]),
    (&["rusqlite"], &["gallery/store/", "gallery/store.rs"]),
];

/// Macros, methods and marks that no shipped code holds.
const FORBIDDEN_MACROS: [&str; 8] =
    ["println", "print", "eprintln", "eprint", "dbg", "todo", "unimplemented", "unreachable_unchecked"];

/// Crates named outside of their places, in tests too.
pub(crate) fn crates_out_of_place(source: &Source) -> Vec<String> {
    let below = source.path().trim_start_matches("src/");
    let tokens = source.tokens();
    let mut faults = Vec::new();
    for (place, (line, token)) in tokens.iter().enumerate() {
        let Some((_, places)) = PLACES.iter().find(|(crates, _)| crates.contains(token)) else { continue };
        let at =
            |place: Option<usize>| place.and_then(|place| tokens.get(place)).map_or("", |(_, token)| *token);
        // A path's first part or a whole import; a module or variable of that name is none.
        let heads_path = at(Some(place + 1)) == ":" && at(Some(place + 2)) == ":";
        let imported = ["use", "crate"].contains(&at(place.checked_sub(1)));
        let before = at(place.checked_sub(3));
        let in_path = before != "use" && before.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let inner = at(place.checked_sub(1)) == ":" && at(place.checked_sub(2)) == ":" && in_path;
        if (heads_path || imported) && !inner && !places.iter().any(|place| below.starts_with(place)) {
            faults.push(source.fault(*line, &format!("{token} belongs to {}", places.join(", "))));
        }
    }
    faults
}

/// Metrics named outside of `telemetry`.
pub(crate) fn metric_names_out_of_place(source: &Source) -> Vec<String> {
    if source.layer() == Some("telemetry") {
        return Vec::new();
    }
    let names_metric = |text: &str| {
        let mut names = text.split("lookalike_").skip(1).filter(|name| !name.starts_with("descriptor"));
        names.any(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
    };
    let strings = source.strings().iter().filter(|(_, text)| names_metric(text));
    strings.map(|(line, text)| source.fault(*line, &format!("a metric is named: {text}"))).collect()
}

/// No word on what the file is.
pub(crate) fn no_head(source: &Source) -> Vec<String> {
    if source.text().starts_with("//! ") {
        Vec::new()
    } else {
        vec![source.fault(1, "expected //! and what this is")]
    }
}

/// A file of another language that does not open with a comment.
pub(crate) fn no_comment_first(source: &Source) -> Vec<String> {
    let first = source.text().lines().next().unwrap_or_default();
    let comment = ["// ", "/* "]
        .iter()
        .any(|open| first.strip_prefix(open).is_some_and(|rest| !rest.trim().is_empty()));
    if comment { Vec::new() } else { vec![source.fault(1, "expected a comment that says what this is")] }
}

/// Marks of work that is not done, and output past the logs.
pub(crate) fn forbidden_words(source: &Source) -> Vec<String> {
    let marks = (1..).zip(source.text().lines()).filter_map(|(line, text)| {
        let mark = ["FIXME", "TODO", "XXX", "HACK"]
            .into_iter()
            .find(|mark| text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == *mark))?;
        Some(source.fault(line, mark))
    });
    let tokens = source.shipped_tokens();
    let macros = tokens.windows(2).filter(|pair| pair[1].1 == "!" && FORBIDDEN_MACROS.contains(&pair[0].1));
    marks.chain(macros.map(|pair| source.fault(pair[0].0, &format!("{}!", pair[0].1)))).collect()
}

/// `unwrap()` outside of tests.
pub(crate) fn unwraps(source: &Source) -> Vec<String> {
    let tokens = source.shipped_tokens();
    let unwrap = |window: &&[(usize, &str)]| {
        window[0].1 == "." && ["unwrap", "unwrap_err"].contains(&window[1].1) && window[2].1 == "("
    };
    tokens
        .windows(3)
        .filter(unwrap)
        .map(|window| source.fault(window[1].0, "unwrap() outside of tests"))
        .collect()
}

/// More lines than a file may have.
pub(crate) fn too_long(source: &Source) -> Vec<String> {
    let lines = source.text().lines().count();
    if lines <= MAX_LINES {
        Vec::new()
    } else {
        vec![source.fault(lines, &format!("expected at most {MAX_LINES} lines"))]
    }
}
