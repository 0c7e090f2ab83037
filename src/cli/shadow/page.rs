//! The shadow's findings for people.

use comfy_table::Table;

use crate::cli::output::{Output, number, table};
use crate::grpc::proto::{
    Disagreement, GateCheck, GetReportResponse, Guilty, Quantiles, ReplayResponse, ReplayedSide,
    ShadowMachine, ShadowSide,
};

pub(super) fn report(report: &GetReportResponse, output: &mut Output) -> anyhow::Result<()> {
    let primary = machine(report.primary.as_ref());
    if let Some(opening) = &report.opening {
        output.line(format_args!("opening: {primary} answers; {}", opening.sentence))?;
    } else {
        let state = if report.promoted { "promoted" } else { "shadowing" };
        let shadow = machine(report.shadow.as_ref());
        output.line(format_args!("{state}: {primary} answers, {shadow} is compared"))?;
    }
    output.line(format_args!(
        "{} of requests sampled, {} probes compared since {}",
        percent(report.sampling),
        report.compared,
        time(report.since_ms),
    ))?;
    output.line(&report.backend_reason)?;
    if report.changed_ms > 0 {
        let how = match (&report.opening, report.promoted) {
            (Some(_), _) => "last moved",
            (None, true) => "promoted",
            (None, false) => "demoted",
        };
        output.line(format_args!("{how} {} ({})", time(report.changed_ms), report.changed_because))?;
    }
    if report.held && report.promote == "automatic" {
        output.line("automatic promotion is off until an operator promotes")?;
    }
    if report.breaker_open {
        output.line("the shadow fails again and again, and is left alone for a while")?;
    }
    let mut kinds = table(["kind", "probes", "rate", "at least (95 %)", "at most (95 %)"]);
    for kind in &report.kinds {
        let rates = [kind.rate, kind.rate_low, kind.rate_high].map(rate);
        let [seen, low, high] = rates;
        kinds.add_row([kind.kind.clone(), kind.count.to_string(), seen, low, high]);
    }
    output.line(kinds)?;
    let mut measured = table(["measured", "p50", "p90", "p99", "most"]);
    measured.add_row(quantiles("score error of the shadow", report.score_error.as_ref(), |value| {
        format!("{value:.2e}")
    }));
    let ms = |ns: f64| format!("{:.3} ms", ns / 1e6);
    measured.add_row(quantiles("latency of the primary", report.primary_latency_ns.as_ref(), ms));
    measured.add_row(quantiles("latency of the shadow", report.shadow_latency_ns.as_ref(), ms));
    output.line(measured)?;
    output.line(gate(&report.gate))?;
    let met = if report.gate_met { "met" } else { "not met" };
    Ok(output.line(format_args!("the gate is {met}; promotion is {}", report.promote))?)
}

fn gate(checks: &[GateCheck]) -> Table {
    let mut table = table(["condition", "met", "measured", "limit"]);
    for check in checks {
        let value = check.value.map_or_else(|| "-".to_owned(), plain);
        let met = if check.met { "yes" } else { "no" };
        table.add_row([check.condition.clone(), met.to_owned(), value, plain(check.limit)]);
    }
    table
}

fn quantiles(what: &str, seen: Option<&Quantiles>, show: impl Fn(f64) -> String) -> [String; 5] {
    let seen = seen.filter(|seen| seen.count > 0);
    let at = |value: fn(&Quantiles) -> f64| seen.map_or_else(|| "-".to_owned(), |seen| show(value(seen)));
    [what.to_owned(), at(|seen| seen.p50), at(|seen| seen.p90), at(|seen| seen.p99), at(|seen| seen.max)]
}

pub(super) fn disagreements(list: &[Disagreement]) -> Table {
    let mut table = table(["id", "time", "gallery", "kinds", "primary", "shadow", "score error", "error"]);
    for one in list {
        table.add_row([
            one.id.clone(),
            time(one.at_ms),
            format!("{} {}", one.gallery, one.generation),
            one.kinds.join(", "),
            said(one.primary.as_ref()),
            said(one.shadow.as_ref()),
            one.shadow.as_ref().map_or_else(String::new, |side| format!("{:.2e}", side.score_error)),
            one.error.clone(),
        ]);
    }
    table
}

pub(super) fn replayed(reply: &ReplayResponse, output: &mut Output) -> anyhow::Result<()> {
    let mut table = table(["side", "says now", "nearest", "score", "differs now", "differed then", "wrong"]);
    let reference = ReplayedSide { said: reply.reference.clone(), ..ReplayedSide::default() };
    for (name, side) in
        [("f64", Some(&reference)), ("primary", reply.primary.as_ref()), ("shadow", reply.shadow.as_ref())]
    {
        let Some(side) = side else { continue };
        let top = side.said.as_ref().and_then(|said| said.top.first());
        table.add_row([
            name.to_owned(),
            if side.error.is_empty() { said(side.said.as_ref()) } else { side.error.clone() },
            top.map_or_else(|| "-".to_owned(), |top| format!("{} ({})", top.identity, top.index)),
            number(top.map(|top| top.score)),
            side.kinds.join(", "),
            side.recorded_kinds.join(", "),
            if side.wrong { "yes" } else { "no" }.to_owned(),
        ]);
    }
    output.line(table)?;
    if !reply.same_generation {
        output.line("the recorded generation is gone: what was said then is not judged")?;
    }
    Ok(output.line(format_args!("guilty: {}", guilty(reply.guilty())))?)
}

pub(super) fn guilty(guilty: Guilty) -> &'static str {
    match guilty {
        Guilty::Unspecified => "unknown",
        Guilty::Neither => "neither",
        Guilty::Primary => "primary",
        Guilty::Shadow => "shadow",
        Guilty::Both => "both",
    }
}

/// Backend and decision of a side, or its nearest row.
fn said(side: Option<&ShadowSide>) -> String {
    let Some(side) = side else { return "-".to_owned() };
    let backend = side.machine.as_ref().map_or("", |machine| machine.backend.as_str());
    let what = match side.top.first() {
        Some(top) => format!("{} {}", side.decision, top.identity),
        None => side.decision.clone(),
    };
    format!("{backend}: {}", if what.trim().is_empty() { "nothing" } else { what.trim() })
}

fn machine(machine: Option<&ShadowMachine>) -> String {
    machine.map_or_else(|| "-".to_owned(), |machine| format!("{} ({})", machine.backend, machine.device))
}

/// A share as a percentage.
pub(super) fn percent(share: f64) -> String {
    format!("{} %", plain(100.0 * share))
}

/// A rate, which may be very small.
fn rate(rate: f64) -> String {
    if rate == 0.0 || rate >= 1e-3 { format!("{rate:.6}") } else { format!("{rate:.3e}") }
}

/// A number without digits that nobody needs.
fn plain(value: f64) -> String {
    if value == 0.0 || (1e-3..1e15).contains(&value.abs()) {
        let text = format!("{value:.4}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        format!("{value:.3e}")
    }
}

/// Milliseconds since 1970, as a time of day in UTC.
fn time(ms: u64) -> String {
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(ms);
    humantime::format_rfc3339_seconds(at).to_string()
}
