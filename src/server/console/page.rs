//! The page: the service, what it serves and by what; the rollout stands in its own file.

use super::chart::{End, Line, bar, line};
use super::history::Stretch;
use super::text::{duration, escaped, mark, number, percent, seconds, table};
use super::{Console, rollout};
use crate::backend::opencl::DeviceRecord;
use crate::recognize::{BackendAccount, Part, Recognizer};
use crate::telemetry::{Figures, Label};

/// Most characters of a path that are repeated.
const MAX_PATH_CHARS: usize = 100;

/// All of it.
pub(super) fn whole(console: &Console) -> String {
    let changing = live(console);
    document(
        "<script src=\"/console/live.js\" defer></script>",
        "<button id=\"toggle\" type=\"button\" aria-pressed=\"false\" hidden>Pause updates</button>\
         <a href=\"/metrics\">Metrics</a><span id=\"state\" role=\"status\"></span>",
        &format!("<main id=\"live\">{changing}</main>"),
    )
}

/// Says why nothing was changed.
pub(super) fn refused(faults: &[String]) -> String {
    let all: Vec<String> = faults.iter().map(|fault| format!("<li>{}</li>", escaped(fault))).collect();
    let list = format!("<ul id=\"refusal\">{}</ul>", all.concat());
    aside("Nothing was changed", &list)
}

/// Says that nothing is served at this path.
pub(super) fn nothing_at(path: &str) -> String {
    let shown: String = path.chars().take(MAX_PATH_CHARS).collect();
    let told = format!(
        "<p>Nothing is served at <code>{}</code>. There are <code>/console</code>, <code>/metrics</code>, <code>/healthz</code> and \
         <code>/readyz</code>.</p>",
        escaped(&shown)
    );
    aside("No such page", &told)
}

/// A page beside the console, with the way back.
fn aside(heading: &str, body: &str) -> String {
    let main = format!(
        "<main><section aria-labelledby=\"aside\"><h2 id=\"aside\">{heading}</h2>{body}\
         <p><a href=\"/console\">Back to the console</a></p></section></main>"
    );
    document("", "", &main)
}

fn document(script: &str, tools: &str, main: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>Lookalike</title>\
         <link rel=\"stylesheet\" href=\"/console/style.css\">{script}</head><body>\
         <header><h1>Lookalike</h1><span class=\"faint\">{}</span>{tools}</header>{main}</body></html>",
        env!("CARGO_PKG_VERSION")
    )
}

/// What changes.
pub(super) fn live(console: &Console) -> String {
    let stretches = console.history.stretches();
    let figures = console.history.latest().map(|sample| sample.figures).unwrap_or_default();
    let ready = mark(console.health.is_ready(), ("serving", "not serving: loading, draining or failed"));
    let up = duration(console.serving.started().elapsed());
    let mut page = format!(
        "<section aria-labelledby=\"service\"><h2 id=\"service\">Service</h2><p class=\"line\"><span>{ready}</span>\
         <span>up for {up}</span><span>{} in flight</span><span>{} scans waiting</span><span>{} answered, {} refused</span></p>",
        number(figures.in_flight),
        number(figures.waiting),
        number(figures.answered),
        number(figures.refused),
    );
    page.push_str(&charts(&stretches));
    page.push_str(&decisions(&figures));
    page.push_str("</section>");
    if let Ok(recognizer) = console.serving.recognizer() {
        page.push_str(&galleries(&recognizer));
        page.push_str(&backends(&recognizer));
    }
    page.push_str(&rollout::section(console, &stretches));
    page
}

fn charts(stretches: &[Stretch]) -> String {
    let rates: Vec<Option<f64>> = stretches.iter().map(|one| Some(one.rate)).collect();
    let p99: Vec<Option<f64>> = stretches.iter().map(|one| one.p99).collect();
    let rate =
        Line { name: "Requests a second", values: &rates, least: (0.0, 1.0), end: End::Most, show: number };
    let latency =
        Line { name: "p99 latency", values: &p99, least: (0.0, 0.001), end: End::Most, show: seconds };
    format!("<div class=\"charts\">{}{}</div>", line(&rate), line(&latency))
}

fn decisions(figures: &Figures) -> String {
    let all: f64 = figures.decisions.iter().map(|(_, count)| count).sum();
    let row = |(decision, count): &(&str, f64)| {
        let share = if all > 0.0 { count / all } else { 0.0 };
        vec![decision.replace('_', " "), number(*count), format!("{} {}", bar(share), percent(share))]
    };
    let rows: Vec<Vec<String>> = figures.decisions.iter().map(row).collect();
    format!("<h3>Decisions</h3>{}", table("Decisions", &["decision", "probes", "share"], &rows))
}

fn galleries(recognizer: &Recognizer) -> String {
    let row = |snapshot: std::sync::Arc<crate::gallery::Snapshot>| {
        let profile = snapshot.profile();
        let (threshold, margin) = recognizer.defaults_of(&snapshot);
        vec![
            escaped(&profile.name),
            snapshot.identity_count().to_string(),
            snapshot.row_count().to_string(),
            profile.dim.to_string(),
            profile.generation.to_string(),
            escaped(&profile.model_id),
            format!("{} / {}", threshold.get(), margin.get()),
        ]
    };
    let rows: Vec<Vec<String>> = recognizer.galleries().map(row).collect();
    let columns = ["gallery", "persons", "prototypes", "dim", "generation", "model", "threshold / margin"];
    format!(
        "<section aria-labelledby=\"galleries\"><h2 id=\"galleries\">Galleries</h2>{}</section>",
        table("Galleries", &columns, &rows)
    )
}

fn backends(recognizer: &Recognizer) -> String {
    let account = recognizer.account();
    let row = |told: &BackendAccount| {
        let does = match told.part {
            Part::Primary => "answers",
            Part::Shadow => "is compared with what answers",
            Part::Fallback => "answers in its place, should it fail",
            Part::Idle => "scans nothing: the first was faster for every batch",
        };
        vec![
            told.description.backend.as_str().to_owned(),
            escaped(&told.description.device),
            escaped(&told.description.driver),
            told.part.as_str().to_owned(),
            does.to_owned(),
            mark(told.up, ("up", "down")),
        ]
    };
    let rows: Vec<Vec<String>> = account.backends.iter().map(row).collect();
    let columns = ["backend", "device", "driver", "role", "does", "state"];
    let why = escaped(&account.sentence);
    let backends = table("Backends", &columns, &rows);
    let devices = devices(recognizer);
    format!(
        "<section aria-labelledby=\"backends\"><h2 id=\"backends\">Backends and devices</h2><p>{why}</p>{backends}{devices}</section>"
    )
}

fn devices(recognizer: &Recognizer) -> String {
    let Some(survey) = recognizer.survey() else { return String::new() };
    let row = |device: &DeviceRecord| {
        vec![
            escaped(&device.name),
            device.kind.as_str().to_owned(),
            escaped(&device.platform),
            escaped(&device.driver),
            format!("{} MiB", device.global_memory_bytes >> 20),
            mark(device.usable, ("usable", "not used")),
            escaped(&device.reason),
        ]
    };
    let rows: Vec<Vec<String>> = survey.devices.iter().map(row).collect();
    let columns = ["device", "kind", "platform", "driver", "memory", "state", "why"];
    format!("<h3>Devices</h3>{}", table("Devices", &columns, &rows))
}
