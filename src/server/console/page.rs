//! The page: the service, what it serves and by what; the rollout stands in its own file.

use super::chart::{Line, bar, line};
use super::history::Stretch;
use super::text::{duration, escaped, mark, number, percent, seconds, table};
use super::{Console, rollout};
use crate::backend::opencl::DeviceRecord;
use crate::recognize::{Recognizer, Seat};
use crate::telemetry::{Figures, Label};

/// All of it.
pub(super) fn whole(console: &Console) -> String {
    let changing = live(console);
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>Lookalike</title>\
         <link rel=\"stylesheet\" href=\"/console/style.css\"><script src=\"/console/live.js\" defer></script></head><body>\
         <header><h1>Lookalike</h1><span class=\"faint\">{}</span>\
         <button id=\"toggle\" type=\"button\" aria-pressed=\"false\" hidden>Pause updates</button>\
         <a href=\"/metrics\">Metrics</a><span id=\"state\" role=\"status\" class=\"bad\"></span></header>\
         <main id=\"live\">{changing}</main></body></html>",
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
    let rate = Line { name: "Requests a second", values: &rates, least: (0.0, 1.0), show: number };
    let latency = Line { name: "p99 latency", values: &p99, least: (0.0, 0.001), show: seconds };
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
    let answering = recognizer.answering();
    let mut rows = Vec::new();
    for (seat, role) in [(Seat::Standing, "configured"), (Seat::Candidate, "compared with it")] {
        let Ok(engine) = recognizer.engine_of(seat) else { continue };
        // Nothing stands in for the candidate.
        let shown = if seat == Seat::Standing { usize::MAX } else { 1 };
        for (place, backend) in engine.choice().backends.iter().enumerate().take(shown) {
            let (role, up) =
                if place == 0 { (role, engine.is_up()) } else { ("in its place, should it fail", true) };
            rows.push(vec![
                backend.backend.as_str().to_owned(),
                escaped(&backend.device),
                escaped(&backend.driver),
                role.to_owned(),
                mark(up, ("up", "down")),
                if place == 0 && seat == answering { "yes" } else { "" }.to_owned(),
            ]);
        }
    }
    let columns = ["backend", "device", "driver", "role", "state", "answers"];
    let why = escaped(&recognizer.standing().choice().sentence);
    let backends = table("Backends", &columns, &rows);
    let devices = devices(recognizer);
    format!(
        "<section aria-labelledby=\"backends\"><h2 id=\"backends\">Backends and devices</h2><p>{why}</p>{backends}{devices}</section>"
    )
}

fn devices(recognizer: &Recognizer) -> String {
    let seats = [Seat::Standing, Seat::Candidate];
    let survey = seats.iter().find_map(|seat| recognizer.engine_of(*seat).ok()?.choice().survey.as_ref());
    let Some(survey) = survey else { return String::new() };
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
