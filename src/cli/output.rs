//! Where results go, and how they look.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use anyhow::Context;
use clap::ValueEnum;
use comfy_table::{Table, presets};
use serde::Serialize;

/// How a result looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people.
    Table,
    /// The response in proto3's JSON mapping.
    Json,
    /// One probe a line.
    Jsonl,
}

/// How a result looks that has no probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PlainFormat {
    /// For people.
    Table,
    /// One JSON document.
    Json,
}

/// The process's stdout, for the result alone.
#[derive(Debug)]
pub(super) struct Output(BufWriter<File>);

impl Output {
    /// Sets stdout apart for results: what else writes to it (drivers print there) lands on stderr from now on.
    pub(super) fn take_stdout() -> anyhow::Result<Self> {
        let stdout = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3).context("stdout")?;
        rustix::stdio::dup2_stdout(rustix::stdio::stderr()).context("stdout")?;
        Ok(Self(BufWriter::new(stdout.into())))
    }

    /// Writes out what is buffered.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.0.flush()
    }

    /// One line of text.
    pub(super) fn line(&mut self, text: impl std::fmt::Display) -> io::Result<()> {
        writeln!(self.0, "{text}")
    }

    /// One JSON document over several lines. What holds `f32` comes as a type of its own, not as [`serde_json::Value`], to which every number is an
    /// `f64`: 0.909 would read 0.9089999794960022.
    pub(super) fn json(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        serde_json::to_writer_pretty(&mut self.0, value)?;
        Ok(writeln!(self.0)?)
    }

    /// One JSON document on a line.
    pub(super) fn json_line(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        serde_json::to_writer(&mut self.0, value)?;
        Ok(writeln!(self.0)?)
    }

    /// For results that are written piece by piece.
    pub(super) fn stream(&mut self) -> &mut dyn Write {
        &mut self.0
    }

    /// Makes what was written so far visible.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A table with a header, in plain characters.
pub(super) fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).force_no_tty().set_header(header);
    table
}

/// A score, or a dash for none.
pub(super) fn number(value: Option<f32>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.6}"))
}
