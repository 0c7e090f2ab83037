//! The order of the layers: `cli -> server -> grpc -> {quality, shadow} -> recognize -> engine -> backend -> gallery -> domain`, with `config` and
//! `telemetry` beside them.

use super::text::Source;

/// Each layer and what it may name beside itself.
const LAYERS: [(&str, &[&str]); 12] = [
    ("domain", &[]),
    ("config", &["domain"]),
    ("telemetry", &["config"]),
    ("gallery", &["domain"]),
    ("backend", &["domain", "gallery", "config", "telemetry"]),
    ("engine", &["domain", "gallery", "backend", "config", "telemetry"]),
    ("recognize", &["domain", "gallery", "backend", "engine", "config", "telemetry"]),
    ("quality", &["domain", "gallery", "backend", "engine", "recognize"]),
    ("shadow", &["domain", "gallery", "backend", "engine", "recognize", "config", "telemetry"]),
    (
        "grpc",
        &["domain", "gallery", "backend", "engine", "recognize", "quality", "shadow", "config", "telemetry"],
    ),
    (
        "server",
        &["domain", "gallery", "backend", "engine", "recognize", "shadow", "grpc", "config", "telemetry"],
    ),
    (
        "cli",
        &[
            "domain",
            "gallery",
            "backend",
            "engine",
            "recognize",
            "quality",
            "shadow",
            "grpc",
            "server",
            "config",
            "telemetry",
        ],
    ),
];

/// What a layer may name beside itself; `None` for what is no layer.
pub(crate) fn may_name(layer: &str) -> Option<&'static [&'static str]> {
    LAYERS.iter().find(|(name, _)| *name == layer).map(|(_, may)| *may)
}

/// Names of layers that a file's layer may not know, in its tests too.
pub(crate) fn against_the_order(source: &Source) -> Vec<String> {
    let Some((layer, may)) = source.layer().and_then(|layer| Some((layer, may_name(layer)?))) else {
        return Vec::new();
    };
    let forbidden = |name: &str| name != layer && may_name(name).is_some() && !may.contains(&name);
    named_layers(source)
        .into_iter()
        .filter(|(_, name)| forbidden(name))
        .map(|(line, name)| source.fault(line, &format!("{layer} may not name {name}")))
        .collect()
}

/// What stands behind `crate::`, be it one name or several in braces, and behind as many `super::` as lead to the crate's root.
fn named_layers(source: &Source) -> Vec<(usize, &str)> {
    let tokens = source.tokens();
    let depth = depth(source.path());
    let mut named = Vec::new();
    for place in 0..tokens.len() {
        let at = |offset: usize| tokens.get(place + offset).map_or("", |(_, token)| *token);
        let after_colons = |offset: usize| at(offset) == ":" && at(offset + 1) == ":";
        let path = match at(0) {
            "crate" | "lookalike" if after_colons(1) => Some(3),
            "super" if place == 0 || at(0) != tokens[place - 1].1 => {
                let supers = (0..=depth)
                    .take_while(|count| at(3 * count) == "super" && after_colons(3 * count + 1))
                    .count();
                let inner = place > 1 && tokens[place - 1].1 == ":";
                (supers >= depth && !inner).then_some(3 * supers)
            }
            _ => None,
        };
        if let Some(offset) = path {
            named.extend(names_from(&tokens[(place + offset).min(tokens.len())..]));
        }
    }
    named
}

/// How many `super::` lead from a file's module to the crate's root.
fn depth(path: &str) -> usize {
    let module = path.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    module.split('/').count()
}

/// One name, or the first of each path in braces.
fn names_from<'a>(tokens: &[(usize, &'a str)]) -> Vec<(usize, &'a str)> {
    if tokens.first().is_none_or(|(_, token)| *token != "{") {
        return tokens.first().copied().into_iter().collect();
    }
    let mut names = Vec::new();
    let mut depth = 0;
    for pair in tokens.windows(2) {
        match pair[0].1 {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => (),
        }
        if depth == 0 {
            break;
        }
        if depth == 1 && ["{", ","].contains(&pair[0].1) {
            names.push(pair[1]);
        }
    }
    names
}
