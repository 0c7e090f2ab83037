//! The rollout: agreement over time, what differed, the gate and how much it lacks, the latest disagreements side by side.

use super::Console;
use super::chart::{End, Line, bar, line};
use super::history::Stretch;
use super::text::{escaped, mark, number, percent, seconds, table, time};
use crate::config::Promotion;
use crate::domain::bounds::{CONFIDENCE, interval};
use crate::grpc::TURN_ON;
use crate::shadow::gate::{self, Condition};
use crate::shadow::record::{Record, SideRecord};
use crate::shadow::sketch::Sketch;
use crate::shadow::{Next, Report, Shadow};
use crate::telemetry::{GateCondition, Label, ShadowKind};

/// Disagreements shown.
const SHOWN: usize = 10;

pub(super) fn section(console: &Console, stretches: &[Stretch]) -> String {
    let body = match console.serving.shadow_if_any() {
        Some(shadow) => running(console, &shadow, stretches),
        None if console.serving.recognizer().is_ok() => format!("<p>Shadow mode is off: {TURN_ON}.</p>"),
        None => "<p>The server is loading or stopping.</p>".to_owned(),
    };
    format!("<section aria-labelledby=\"rollout\"><h2 id=\"rollout\">Rollout</h2>{body}</section>")
}

fn running(console: &Console, shadow: &Shadow, stretches: &[Stretch]) -> String {
    let report = shadow.report();
    let wishes = if console.serving.has_tokens() {
        wishes(&report)
    } else {
        "<p class=\"faint\">To change anything from here, name a file of tokens (server.tokens); lookalike shadow does it from the \
         command line.</p>"
            .to_owned()
    };
    let agreement: Vec<Option<f64>> = stretches.iter().map(|one| one.agreement).collect();
    let chart = line(&Line {
        name: "Agreement",
        values: &agreement,
        least: (0.9, 1.0),
        end: End::Least,
        show: percent,
    });
    [
        state(&report),
        wishes,
        format!("<div class=\"charts\">{chart}</div>"),
        kinds(&report),
        latencies(&report),
        gate(&report),
        disagreements(&shadow.latest(SHOWN, &[])),
    ]
    .concat()
}

fn state(report: &Report) -> String {
    let machine = |machine: &crate::shadow::record::Machine| {
        format!("<strong>{}</strong> ({})", escaped(&machine.backend), escaped(&machine.device))
    };
    let rollout = &report.rollout;
    if let Some((opening, told)) = &report.opening {
        let class = if opening.failures > 0 || opening.next == Next::Never { "bad" } else { "faint" };
        let primary = machine(&report.machines.primary);
        return format!(
            "<p>{primary} answers.</p><p class=\"{class}\">{}.</p>{}",
            escaped(told),
            changed(report)
        );
    }
    let standing = if rollout.promoted { "promoted" } else { "shadowing" };
    let now = format!(
        "<p>{standing}: {} answers, {} is compared on {} of requests; {} probes compared since {}, {} waiting.</p>",
        machine(&report.machines.primary),
        machine(&report.machines.shadow),
        percent(report.sampling),
        report.evidence.compared(),
        time(report.evidence.since_ms),
        report.queued,
    );
    let breaker = if report.breaker_open {
        "<p class=\"bad\">The shadow fails again and again, and is left alone for a while.</p>"
    } else {
        ""
    };
    [now.as_str(), &changed(report), breaker].concat()
}

/// How the rollout last moved, and why.
fn changed(report: &Report) -> String {
    let rollout = &report.rollout;
    if rollout.changed_ms == 0 {
        return String::new();
    }
    let how = if rollout.promoted { "Promoted" } else { "Demoted" };
    let held = if rollout.held && report.promotion == Promotion::Automatic {
        " Automatic promotion is off until an operator promotes."
    } else {
        ""
    };
    format!("<p>{how} {} ({}).{held}</p>", time(rollout.changed_ms), escaped(&rollout.because))
}

/// What an admin may do; each asks for the token.
fn wishes(report: &Report) -> String {
    let token = "<label>token <input name=\"token\" type=\"password\" autocomplete=\"off\" required></label>";
    let (act, word) = if report.rollout.promoted { ("demote", "Demote") } else { ("promote", "Promote") };
    // Says what is wrong with what was sent, where a script sent it.
    let told = "<span class=\"bad told\" role=\"alert\"></span>";
    format!(
        "<details id=\"change\"><summary>Change</summary>\
         <form method=\"post\" action=\"/console/sampling\"><label>sampling <input name=\"percent\" type=\"number\" min=\"0\" \
         max=\"100\" step=\"any\" value=\"{}\" required> %</label>{token}<button>Set</button>{told}</form>\
         <form method=\"post\" action=\"/console/{act}\"><label>reason <input name=\"reason\" maxlength=\"200\"></label>{token}\
         <button>{word}</button>{told}</form></details>",
        number(100.0 * report.sampling)
    )
}

fn kinds(report: &Report) -> String {
    let evidence = &report.evidence;
    let row = |kind: &ShadowKind| {
        let whole = evidence.whole_of(*kind);
        let count = evidence.of(*kind);
        let (low, high) = interval(count, whole, CONFIDENCE);
        let share = if whole == 0 { 0.0 } else { count as f64 / whole as f64 };
        vec![
            kind.as_str().to_owned(),
            count.to_string(),
            format!("{} {}", bar(share), percent(share)),
            format!("{} to {}", percent(low), percent(high)),
        ]
    };
    let rows: Vec<Vec<String>> = ShadowKind::ALL.iter().map(row).collect();
    let columns = ["most serious difference", "probes", "share", "95 % bounds"];
    format!("<h3>Comparisons</h3>{}", table("Comparisons", &columns, &rows))
}

fn latencies(report: &Report) -> String {
    let row = |name: &str, seen: &Sketch, show: &dyn Fn(f64) -> String| {
        let at = |share| seen.quantile(share).map_or_else(|| "-".to_owned(), show);
        vec![name.to_owned(), at(0.5), at(0.9), at(0.99), at(1.0)]
    };
    let took = |ns: f64| seconds(ns / 1e9);
    let latency = &report.evidence.latency_ns;
    let rows = [
        row("latency of the primary", &latency.primary, &took),
        row("latency of the shadow", &latency.shadow, &took),
        row("score error of the shadow", &report.evidence.score_error, &number),
    ];
    let name = "Latency and score error";
    format!("<h3>{name}</h3>{}", table(name, &["measured", "p50", "p90", "p99", "most"], &rows))
}

fn gate(report: &Report) -> String {
    let row = |one: &Condition| {
        vec![
            one.condition.as_str().replace('_', " "),
            mark(one.met, ("met", "not met")),
            one.value.map_or_else(|| "nothing yet".to_owned(), number),
            number(one.limit),
            lacking(one),
        ]
    };
    let rows: Vec<Vec<String>> = report.conditions.iter().map(row).collect();
    let fit = gate::is_met(&report.conditions) && report.opening.is_none();
    let met = mark(fit, ("the gate is met", "the gate is not met"));
    format!(
        "<h3>Gate: {met}</h3>{}",
        table("Gate", &["condition", "state", "measured", "limit", "missing"], &rows)
    )
}

/// How much a condition lacks.
fn lacking(one: &Condition) -> String {
    match (one.met, one.value, one.condition) {
        (true, _, _) => String::new(),
        (false, Some(value), GateCondition::Comparisons) => format!("{} more", number(one.limit - value)),
        // None of so many would do: (1 - limit)^n = 1 - confidence.
        (false, _, GateCondition::HardRate) if one.limit > 0.0 && one.limit < 1.0 => {
            let needed = ((1.0 - CONFIDENCE).ln() / (-one.limit).ln_1p()).ceil();
            format!("{} comparisons with none", number(needed))
        }
        (false, None, _) => "a first measurement".to_owned(),
        (false, Some(value), _) => format!("{} too much", number(value - one.limit)),
    }
}

fn disagreements(latest: &[std::sync::Arc<Record>]) -> String {
    if latest.is_empty() {
        return "<h3>Latest disagreements</h3><p>None.</p>".to_owned();
    }
    let all = latest.iter().map(|record| disagreement(record)).collect::<Vec<_>>().concat();
    format!("<h3>Latest disagreements</h3>{all}")
}

fn disagreement(record: &Record) -> String {
    let error = if record.error.is_empty() {
        String::new()
    } else {
        format!("<p class=\"bad\">{}</p>", escaped(&record.error))
    };
    format!(
        "<details id=\"d-{id}\"><summary><strong>{}</strong> {} <span class=\"faint\">{} generation {}, request {}</span></summary>\
         {error}<div class=\"sides\">{}{}</div><p class=\"faint\">lookalike shadow replay {id}</p></details>",
        escaped(&record.kinds.join(", ")),
        time(record.at_ms),
        escaped(&record.gallery),
        record.generation,
        escaped(&record.request_id),
        side("primary", &record.sides.primary),
        side("shadow", &record.sides.shadow),
        id = escaped(&record.id),
    )
}

fn side(role: &str, side: &SideRecord) -> String {
    let rows: Vec<Vec<String>> = side
        .top
        .iter()
        .map(|row| {
            vec![
                row.index.to_string(),
                escaped(&row.identity),
                escaped(&row.prototype_id),
                format!("{:.6}", row.score),
                row.raw.map_or_else(|| "not offered".to_owned(), |raw| format!("{raw:.6}")),
            ]
        })
        .collect();
    let decision = if side.decision.is_empty() { "no decision" } else { &side.decision };
    let wrong = if side.wrong_scores { ", <span class=\"bad\">scores computed wrongly</span>" } else { "" };
    let name = format!("{role}: {}", side.backend);
    format!(
        "<div><p><strong>{}</strong> {}{wrong}</p>{}</div>",
        escaped(&name),
        escaped(&decision.replace('_', " ")),
        table(&name, &["index", "person", "prototype", "score", "as computed"], &rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_says_what_it_lacks() {
        let lacks = |condition, value, limit| lacking(&Condition { condition, met: false, value, limit });
        assert_eq!(lacks(GateCondition::Comparisons, Some(40.0), 100.0), "60 more");
        assert_eq!(lacks(GateCondition::HardRate, Some(0.5), 0.0001), "29956 comparisons with none");
        assert_eq!(lacks(GateCondition::Latency, None, 1.0), "a first measurement");
        assert_eq!(lacks(GateCondition::Soft, Some(0.25), 0.0), "0.25 too much");
        let met = Condition { condition: GateCondition::Soft, met: true, value: Some(0.0), limit: 0.0 };
        assert_eq!(lacking(&met), "");
    }
}
