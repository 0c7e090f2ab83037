//! Logs: `tracing` events to stderr, for people or as JSON lines. Never to stdout, which belongs to results.

use std::io::IsTerminal as _;

use thiserror::Error;
use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{LogFormat, LogSettings};

/// Why logging could not begin.
#[derive(Debug, Error)]
pub enum LogError {
    /// The level is none; a validated configuration has one.
    #[error("log.level: expected tracing directives such as info, got {got:?}")]
    Level {
        /// What came.
        got: String,
        /// What `tracing` says of it.
        source: ParseError,
    },
}

/// Sends this process's logs to stderr as `settings` say. Only the first call in a process decides; another changes
/// nothing.
pub fn init(settings: &LogSettings) -> Result<(), LogError> {
    let colour =
        if std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()) {
            Colour::On
        } else {
            Colour::Off
        };
    let subscriber = subscriber(settings, std::io::stderr, colour)?;
    // An error here means that logs flow already: tests of one process each begin them.
    let _ = subscriber.try_init();
    Ok(())
}

/// Whether lines for people carry terminal colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Colour {
    On,
    Off,
}

fn subscriber<W>(
    settings: &LogSettings,
    writer: W,
    colour: Colour,
) -> Result<Box<dyn Subscriber + Send + Sync>, LogError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = EnvFilter::builder()
        .parse(&settings.level)
        .map_err(|source| LogError::Level { got: settings.level.clone(), source })?;
    // A line that cannot be written is lost: complaining about it on the same stderr would panic, and end requests.
    let lines =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).log_internal_errors(false);
    Ok(match settings.format {
        LogFormat::Human => Box::new(lines.with_ansi(colour == Colour::On).finish()),
        // The span's fields (the request's id) stand in `span`; its ancestors would only repeat it.
        LogFormat::Json => {
            Box::new(lines.json().flatten_event(true).with_current_span(true).with_span_list(false).finish())
        }
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use serde_json::Value;

    use super::*;

    /// Collects what is written.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn settings(level: &str, format: LogFormat) -> LogSettings {
        LogSettings { level: level.to_owned(), format }
    }

    /// What a few events within a span come to.
    fn logged(settings: &LogSettings) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = subscriber(settings, move || writer.clone(), Colour::Off).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("request", id = "r-1");
            let _entered = span.enter();
            tracing::info!(probes = 3, "answered\n\u{1b}[31m");
            tracing::debug!("not shown");
        });
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn json_is_one_flat_object_a_line_with_the_span() {
        let text = logged(&settings("info", LogFormat::Json));
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["message"], "answered\n\u{1b}[31m");
        assert_eq!(line["probes"], 3);
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["span"]["id"], "r-1");
        assert_eq!(line["span"]["name"], "request");
        let time = line["timestamp"].as_str().unwrap();
        humantime::parse_rfc3339(time).unwrap();
    }

    #[test]
    fn human_lines_name_the_span_and_cannot_paint_the_terminal() {
        let text = logged(&settings("info", LogFormat::Human));
        assert!(text.contains("request{id=\"r-1\"}"), "{text}");
        assert!(text.contains("answered") && text.contains("probes=3"), "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains("not shown"), "{text}");
    }

    #[test]
    fn directives_choose_by_target() {
        assert_eq!(logged(&settings("off", LogFormat::Human)), "");
        assert_eq!(logged(&settings("elsewhere=trace", LogFormat::Human)), "");
        let debug = logged(&settings(concat!("error,", module_path!(), "=debug"), LogFormat::Human));
        assert!(debug.contains("not shown"), "{debug}");
    }

    #[test]
    fn a_level_that_is_none_is_an_error() {
        let error = init(&settings("info,x=loud", LogFormat::Human)).unwrap_err();
        assert!(error.to_string().starts_with("log.level: expected tracing directives"), "{error}");
    }

    #[test]
    fn beginning_twice_is_harmless() {
        for format in [LogFormat::Json, LogFormat::Human] {
            init(&settings("warn", format)).unwrap();
        }
    }
}
