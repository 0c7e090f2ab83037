//! `lookalike probe-opencl`: what this program starts itself as, to try an OpenCL driver. Not for people.

use clap::Args;

use super::output::Output;
use crate::backend::opencl;

#[derive(Debug, Args)]
pub(super) struct ProbeArgs {
    /// What is asked, as JSON.
    question: String,
}

pub(super) fn run(args: ProbeArgs, output: &mut Output) -> anyhow::Result<()> {
    // Whoever asked may be ended without a word: then nobody is left to end this one where a driver hangs.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    // A driver's crash is expected here and leaves no core behind.
    #[cfg(unix)]
    rustix::process::setrlimit(
        rustix::process::Resource::Core,
        rustix::process::Rlimit { current: Some(0), maximum: Some(0) },
    )?;
    Ok(opencl::answer(serde_json::from_str(&args.question)?, output.stream())?)
}
