//! A child process that is asked one question, and what came of it.
//!
//! Invariants: asking ends within the limit, whatever the child does; the child is gone by then, with whatever it started; what it writes is
//! bounded before it is kept.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::{Fault, FaultKind, Line, Question, Step};

/// Most bytes of an answer.
const MAX_ANSWER_BYTES: u64 = 4 << 20;

/// How long a child that has answered may take to end by itself.
const FAREWELL: Duration = Duration::from_secs(1);

/// How often a child that closed its output is looked at.
const GLANCE: Duration = Duration::from_millis(2);

/// How a child is started.
pub(super) struct Child<'a> {
    /// This program.
    pub(super) program: &'a Path,
    /// How long it may take.
    pub(super) limit: Duration,
}

/// No answer came.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) fault: Fault,
    /// What was being done, as far as was told.
    pub(super) step: Option<Step>,
}

/// What came was no answer to what was asked.
pub(super) fn no_answer(step: Option<Step>) -> Failed {
    failed(FaultKind::Failed, "what came back was no answer", step)
}

fn failed(kind: FaultKind, what: &str, step: Option<Step>) -> Failed {
    let during = match &step {
        Some(Step::Devices { platform, name }) if name.is_empty() => format!(" at platform {platform}"),
        Some(Step::Devices { platform, name }) => format!(" at platform {platform} ({name})"),
        Some(Step::Platforms) => " in the OpenCL loader".to_owned(),
        None => String::new(),
    };
    Failed { fault: Fault { kind, text: format!("{what}{during}") }, step }
}

impl Child<'_> {
    /// The answer to a question.
    pub(super) fn ask(&self, question: &Question) -> Result<Line, Failed> {
        let deadline = Instant::now() + self.limit;
        let cannot = |error: io::Error| failed(FaultKind::Failed, &format!("cannot be tried: {error}"), None);
        let question = serde_json::to_string(question).map_err(|error| cannot(error.into()))?;
        let mut command = Command::new(self.program);
        command.arg("probe-opencl").arg(question).stdin(Stdio::null()).stdout(Stdio::piped());
        // A group of its own: compilers that a driver starts end with it.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut running = Running(command.spawn().map_err(cannot)?);
        let lines = running.lines().map_err(cannot)?;
        let mut step = None;
        loop {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => match serde_json::from_slice(&line) {
                    Ok(Line::Step(next)) => step = Some(next),
                    Ok(answer) => {
                        // Drivers have things to do at the end; what goes wrong there changes no answer.
                        let _ = lines.recv_timeout(FAREWELL);
                        return Ok(answer);
                    }
                    Err(_) => return Err(no_answer(step)),
                },
                Err(RecvTimeoutError::Timeout) => return Err(self.timed_out(step)),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(match running.wait_until(deadline) {
                        Some(status) => ended(status, step),
                        None => self.timed_out(step),
                    });
                }
            }
        }
    }

    fn timed_out(&self, step: Option<Step>) -> Failed {
        let what = format!("gave no answer within {:?} (backend.opencl.probe_timeout)", self.limit);
        failed(FaultKind::TimedOut, &what, step)
    }
}

/// What the end of a child that did not answer says.
fn ended(status: ExitStatus, step: Option<Step>) -> Failed {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        let name = match signal {
            4 => " (SIGILL)",
            6 => " (SIGABRT)",
            7 => " (SIGBUS)",
            8 => " (SIGFPE)",
            9 => " (SIGKILL)",
            11 => " (SIGSEGV)",
            _ => "",
        };
        return failed(FaultKind::Crashed, &format!("crashed with signal {signal}{name}"), step);
    }
    match status.code() {
        Some(0) | None => no_answer(step),
        Some(code) => failed(FaultKind::Failed, &format!("ended with exit code {code} and no answer"), step),
    }
}

/// A child that runs; ended when dropped.
struct Running(process::Child);

impl Running {
    /// The lines of its output, read by a thread: whom a driver started may hold the pipe open beyond the end.
    fn lines(&mut self) -> io::Result<Receiver<Vec<u8>>> {
        let output = self.0.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
        let (sender, lines) = mpsc::channel();
        std::thread::Builder::new().name("probe".to_owned()).spawn(move || {
            let mut output = BufReader::new(output.take(MAX_ANSWER_BYTES));
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        })?;
        Ok(lines)
    }

    /// How it ended, if it did by then.
    fn wait_until(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            match self.0.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(GLANCE),
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Ok(None) = self.0.try_wait() {
            let group = rustix::process::Pid::from_child(&self.0);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use tempfile::TempDir;

    use super::super::{Listing, list};
    use super::*;

    /// A program that is no Lookalike, and how long it may take.
    fn ask(script: &str, limit: Duration) -> (Result<Line, Failed>, Duration) {
        let (folder, started) = (program(script), Instant::now());
        let child = Child { program: &folder.path().join("program"), limit };
        (child.ask(&Question::List { leave: Vec::new() }), started.elapsed())
    }

    fn program(script: &str) -> TempDir {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("program");
        // Written by a process that is gone when it is run: a file that is open for writing cannot be.
        let written = Command::new("sh")
            .args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\""])
            .arg(&path)
            .arg(script)
            .status()
            .unwrap();
        assert!(written.success());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        folder
    }

    const ENOUGH: Duration = Duration::from_mins(1);
    const STEP: &str = r#"echo '{"Step":{"Devices":{"platform":3,"name":"Bad"}}}';"#;

    #[test]
    fn every_way_not_to_answer_is_told_apart_and_says_where() {
        for (script, kind, text) in [
            (
                format!("{STEP} kill -SEGV $$"),
                FaultKind::Crashed,
                "crashed with signal 11 (SIGSEGV) at platform 3 (Bad)",
            ),
            (
                format!("{STEP} exit 7"),
                FaultKind::Failed,
                "ended with exit code 7 and no answer at platform 3 (Bad)",
            ),
            ("exit 0".to_owned(), FaultKind::Failed, "what came back was no answer"),
            (
                format!("{STEP} echo Mali; sleep 100"),
                FaultKind::Failed,
                "what came back was no answer at platform 3 (Bad)",
            ),
            (
                "echo '{\"Step\":\"Platforms\"}'; kill -ABRT $$".to_owned(),
                FaultKind::Crashed,
                "crashed with signal 6 (SIGABRT) in the OpenCL loader",
            ),
            // It would go on for ever.
            (
                "exec yes '{\"Step\":\"Platforms\"}'".to_owned(),
                FaultKind::Failed,
                "what came back was no answer in the OpenCL loader",
            ),
        ] {
            let (answer, elapsed) = ask(&script, ENOUGH);
            let failed = answer.unwrap_err();
            assert_eq!((failed.fault.kind, failed.fault.text.as_str()), (kind, text), "{script}");
            assert!(elapsed < ENOUGH / 2, "{script}: {elapsed:?}");
        }
        let missing = Child { program: Path::new("/nonexistent"), limit: ENOUGH };
        let failed = missing.ask(&Question::List { leave: Vec::new() }).unwrap_err();
        assert!(failed.fault.text.starts_with("cannot be tried: "), "{failed:?}");
    }

    #[test]
    fn who_hangs_is_ended_with_all_that_it_started() {
        let folder = TempDir::new().unwrap();
        let pid = folder.path().join("pid");
        for hang in ["wait", "exec >&-; wait"] {
            let script = format!("{STEP} sleep 1000 & echo $! > {}; {hang}", pid.display());
            let (answer, elapsed) = ask(&script, Duration::from_secs(1));
            let failed = answer.unwrap_err();
            assert_eq!(failed.fault.kind, FaultKind::TimedOut, "{failed:?}");
            assert!(
                failed.fault.text.contains("within 1s (backend.opencl.probe_timeout) at platform 3 (Bad)")
            );
            assert!(elapsed < ENOUGH / 2, "{elapsed:?}");
            let sleeper = fs::read_to_string(&pid).unwrap();
            // It is gone, or dead and not yet fetched by whoever inherited it; on a busy machine it takes some time to die.
            let told = Instant::now();
            loop {
                let state = fs::read_to_string(format!("/proc/{}/stat", sleeper.trim())).unwrap_or_default();
                if state.is_empty() || state.contains(") Z ") || state.contains(") X ") {
                    break;
                }
                assert!(told.elapsed() < ENOUGH, "{state}");
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn a_platform_that_ends_the_child_costs_no_other() {
        let listing = r#"{"Listed":{"loader":"l","platforms":[{"name":"A","version":"1","fault":null},{"name":"","version":"","fault":null}],"devices":[],"trouble":null,"fault":null}}"#;
        let step =
            |name: &str| format!(r#"echo '{{"Step":{{"Devices":{{"platform":1,"name":"{name}"}}}}}}';"#);
        let script =
            format!("case \"$2\" in *'[1]'*) echo '{listing}';; *) {} kill -SEGV $$;; esac", step("B"));
        let folder = program(&script);
        let child = Child { program: &folder.path().join("program"), limit: ENOUGH };
        let Listing { platforms, fault, .. } = list(&child);
        assert_eq!((platforms[0].fault.clone(), fault), (None, None));
        assert_eq!(platforms[1].name, "B");
        assert_eq!(platforms[1].fault.as_ref().unwrap().kind, FaultKind::Crashed);
        // One that ends it even when it is left alone.
        let folder = program(&format!("{} kill -SEGV $$", step("B")));
        let child = Child { program: &folder.path().join("program"), limit: ENOUGH };
        let found = list(&child);
        assert_eq!(found.fault.unwrap().text, "crashed with signal 11 (SIGSEGV) at platform 1 (B)");
    }
}
