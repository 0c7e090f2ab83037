//! A few metrics read back out of the text that is rendered of all, for the console page: what it shows is what Prometheus sees.

use super::labels::{Code, DecisionKind, Label, Method};
use super::metrics::{DECISIONS, INFLIGHT, QUEUE_DEPTH, REQUEST_DURATION, REQUESTS};

/// Of the methods that answer callers.
const ANSWERING: [Method; 2] = [Method::Search, Method::Recognize];

/// Totals since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Searches and recognitions answered.
    pub answered: f64,
    /// Searches and recognitions that ended otherwise.
    pub refused: f64,
    /// How many took at most so long, in seconds; rising in both.
    pub took: Vec<(f64, f64)>,
    /// Probes by decision.
    pub decisions: Vec<(&'static str, f64)>,
    /// Calls being answered now.
    pub in_flight: f64,
    /// Scans that wait now.
    pub waiting: f64,
}

impl Figures {
    /// Out of the text of all metrics.
    pub fn of(rendered: &str) -> Self {
        let mut figures = Self::default();
        for line in rendered.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            figures.take(name, labels, value);
        }
        figures
    }

    fn take(&mut self, name: &str, labels: &str, value: f64) {
        let answering = || {
            let method = label(labels, "method");
            ANSWERING.iter().any(|one| method == Some(one.as_str()))
        };
        if name == REQUESTS.name && answering() {
            let ok = label(labels, "code") == Some(Code::Ok.as_str());
            *(if ok { &mut self.answered } else { &mut self.refused }) += value;
        } else if name.strip_suffix("_bucket") == Some(REQUEST_DURATION.name) && answering() {
            let Some(end) = label(labels, "le").and_then(|end| end.parse::<f64>().ok()) else { return };
            match self.took.iter_mut().find(|(at, _)| at.total_cmp(&end).is_eq()) {
                Some((_, count)) => *count += value,
                None => self.took.push((end, value)),
            }
        } else if name == DECISIONS.name {
            let decision = label(labels, "decision");
            let known = DecisionKind::ALL.iter().find(|kind| decision == Some(kind.as_str()));
            self.decisions.extend(known.map(|kind| (kind.as_str(), value)));
            let place = |name: &str| DecisionKind::ALL.iter().position(|kind| kind.as_str() == name);
            self.decisions.sort_by_key(|(name, _)| place(name));
        } else if name == INFLIGHT.name {
            self.in_flight = value;
        } else if name == QUEUE_DEPTH.name {
            self.waiting = value;
        }
    }

    /// What happened since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let earlier =
            |end: f64| before.took.iter().find(|(at, _)| at.total_cmp(&end).is_eq()).map_or(0.0, |one| one.1);
        Self {
            answered: self.answered - before.answered,
            refused: self.refused - before.refused,
            took: self.took.iter().map(|(end, count)| (*end, count - earlier(*end))).collect(),
            ..self.clone()
        }
    }

    /// Seconds that this share of calls did not exceed, to the end of a bucket; `None` where there was none.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let all = self.took.last().map(|(_, count)| *count).filter(|count| *count > 0.0)?;
        let within = self.took.iter().find(|(end, count)| *count >= share * all && end.is_finite());
        within.or(self.took.iter().rfind(|(end, _)| end.is_finite())).map(|(end, _)| *end)
    }
}

/// The value of a label, of those whose values hold no quotes.
fn label<'a>(labels: &'a str, key: &str) -> Option<&'a str> {
    let mut pairs = labels.trim_end_matches('}').split(',');
    pairs.find_map(|pair| pair.strip_prefix(key)?.strip_prefix("=\"")?.strip_suffix('"'))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::record::{decision_made, queue_depth, request_done};
    use super::super::recorder::rendered;
    use super::*;

    #[test]
    fn figures_are_what_was_recorded() {
        let first = Figures::of(&rendered(|| ()));
        assert_eq!(first.quantile(0.99), None);
        assert_eq!(first.decisions.len(), DecisionKind::ALL.len());
        let text = rendered(|| {
            for ms in [1, 2, 40] {
                request_done(Method::Recognize, Code::Ok, Duration::from_millis(ms));
            }
            request_done(Method::Search, Code::Internal, Duration::from_millis(3));
            request_done(Method::GetInfo, Code::Ok, Duration::from_secs(3));
            decision_made(DecisionKind::Ambiguous);
            queue_depth(4);
        });
        let figures = Figures::of(&text);
        let told = [figures.answered, figures.refused, figures.waiting, figures.in_flight];
        assert_eq!(told.map(|value| value.to_string()), ["3", "1", "4", "0"]);
        assert!(figures.decisions.contains(&("ambiguous", 1.0)));
        assert_eq!(figures.quantile(0.5), Some(0.002_5));
        assert_eq!(figures.quantile(0.99), Some(0.05));
        let since = figures.since(&figures);
        assert_eq!((since.answered.to_string().as_str(), since.quantile(0.5)), ("0", None));
        assert_eq!(figures.since(&first), figures);
    }
}
