//! What a child process does: it answers one question, a line of JSON after another, and ends.

use std::io::{self, Write};

use crate::config::{self, CacheDir, OpenClSettings, Sources};

use super::{Line, Question};
use crate::backend::opencl::driver::platform;
use crate::backend::opencl::{OpenClBackend, Share, selftest};

/// Answers a question. The text is for a process that asked by starting this one.
pub fn answer(question: Question, out: &mut dyn Write) -> io::Result<()> {
    let last = match question {
        Question::List { leave } => {
            let mut told = Ok(());
            let found = platform::find(&leave, |step| {
                let line = say(out, &Line::Step(step));
                told = std::mem::replace(&mut told, Ok(())).and(line);
            });
            told?;
            Line::Listed(found)
        }
        Question::Test { device, scan, kernel_dir, cache_dir } => {
            let cache_dir = cache_dir.map_or(CacheDir::Off, CacheDir::Folder);
            let defaults = config::load(&Sources::default()).map_err(io::Error::other)?.backend.opencl;
            let settings = OpenClSettings { scan, kernel_dir, cache_dir, ..defaults };
            Line::Tested(selftest::run(|chunk_rows| {
                let settings = OpenClSettings { chunk_rows, ..settings.clone() };
                OpenClBackend::open_device(&settings, &device, Share::WHOLE)
            }))
        }
        Question::Open { library } => Line::Opened(platform::open_library(&library)),
    };
    say(out, &last)
}

/// One line, at once: it must be read even if the next step ends this process.
fn say(out: &mut dyn Write, line: &Line) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    out.write_all(&text)?;
    out.flush()
}
