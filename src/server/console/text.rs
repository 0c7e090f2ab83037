//! How things are written on the page.

use std::time::{Duration, UNIX_EPOCH};

/// Text that stands for itself in HTML, in an attribute too.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

/// A share as a percentage.
pub(super) fn percent(share: f64) -> String {
    format!("{} %", number(100.0 * share))
}

/// A number without digits that nobody needs.
pub(super) fn number(value: f64) -> String {
    if value == 0.0 || (1e-3..1e15).contains(&value.abs()) {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        format!("{value:.2e}")
    }
}

/// Seconds in the unit that suits them.
pub(super) fn seconds(value: f64) -> String {
    if value < 1e-3 {
        format!("{} µs", number(value * 1e6))
    } else if value < 1.0 {
        format!("{} ms", number(value * 1e3))
    } else {
        format!("{} s", number(value))
    }
}

/// Milliseconds since 1970 as date and time in UTC.
pub(super) fn time(ms: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(ms)).to_string().replace('T', " ")
}

/// How long, to the second.
pub(super) fn duration(elapsed: Duration) -> String {
    humantime::format_duration(Duration::from_secs(elapsed.as_secs())).to_string()
}

/// Longest cell that is not broken over lines, in characters.
const SHORT: usize = 24;

/// How many characters of a piece of HTML are seen.
fn seen(html: &str) -> usize {
    let mut tag = false;
    let text = html.chars().filter(|c| {
        let within = tag || *c == '<';
        tag = within && *c != '>';
        !within
    });
    text.count()
}

/// A table: its name, its columns, and rows of cells that are HTML already.
pub(super) fn table(caption: &str, columns: &[&str], rows: &[Vec<String>]) -> String {
    let head = |column: &&str| format!("<th scope=\"col\">{}</th>", escaped(column));
    let heads = columns.iter().map(head).collect::<Vec<_>>().concat();
    // What is short is not broken over lines.
    let cell = |cell: &String| {
        let class = if seen(cell) <= SHORT { " class=\"short\"" } else { "" };
        format!("<td{class}>{cell}</td>")
    };
    let row = |cells: &Vec<String>| {
        ["<tr>", &cells.iter().map(cell).collect::<Vec<_>>().concat(), "</tr>"].concat()
    };
    let body = rows.iter().map(row).collect::<Vec<_>>().concat();
    format!(
        "<div class=\"wide\"><table aria-label=\"{}\"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>",
        escaped(caption)
    )
}

/// Yes or no, in words and in colour.
pub(super) fn mark(good: bool, words: (&str, &str)) -> String {
    let (class, word) = if good { ("good", words.0) } else { ("bad", words.1) };
    format!("<span class=\"{class}\">{word}</span>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stands_for_itself() {
        assert_eq!(escaped("<a href=\"x\">'&'"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;");
        assert!(table("a\"b", &["<c>"], &[]).contains("aria-label=\"a&quot;b\""));
        assert_eq!((seen("<b class=\"x\">not</b> met"), seen("plain"), seen("")), (7, 5, 0));
    }

    #[test]
    fn numbers_have_their_units() {
        assert_eq!([0.00005, 0.0025, 2.0].map(seconds), ["50 µs", "2.5 ms", "2 s"]);
        assert_eq!([0.01, 1.0, 0.000_000_1].map(percent), ["1 %", "100 %", "1.00e-5 %"]);
        assert_eq!(time(0), "1970-01-01 00:00:00Z");
        assert_eq!(duration(Duration::from_millis(61_500)), "1m 1s");
    }
}
