//! The command line: one file a subcommand.
//!
//! Invariants: the result alone goes to stdout, and through [`Output`] only (drivers print to stdout too); everything for people
//! beside it goes to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage, a wrong configuration among it,
//! 3 a check found something wrong.

mod bench;
mod check_config;
mod demo;
mod devices;
mod doctor;
mod gallery;
mod output;
mod probe;
mod quality;
mod recognize;
mod search;
mod serve;
mod settings;
mod shadow;
mod signals;
mod target;
mod tune;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::ConfigError;
use crate::grpc::TokensError;
use output::Output;
use settings::SettingsArgs;

/// Recognises people by their face embeddings, exactly, over gRPC.
#[derive(Debug, Parser)]
#[command(name = "lookalike", version, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the galleries of a data folder over gRPC.
    Serve(serve::ServeArgs),
    /// See the main job done: a real server, a sample gallery, real probes, decisions.
    Demo(demo::DemoArgs),
    /// Find the nearest prototypes of probes.
    Search(search::SearchArgs),
    /// Say who probes are.
    Recognize(recognize::RecognizeArgs),
    /// Fill, inspect and check the galleries of a data folder.
    #[command(subcommand)]
    Gallery(gallery::GalleryCommand),
    /// Choose prototypes among the embeddings of each person: few, and such that the others are recognised.
    Select(quality::SelectArgs),
    /// Say how a gallery does on probes of whom it is known who they are; exit code 3 where that is not good enough.
    Validate(quality::ValidateArgs),
    /// Find the threshold and least margin for a wished-for rate of false positives, and say how certain it is; exit code 3 where the
    /// embeddings are too few to promise it.
    Calibrate(quality::CalibrateArgs),
    /// List what is doubtful in a gallery, and what would change without it. Nothing is changed.
    Audit(quality::AuditArgs),
    /// Group the probes of a batch that nobody knows, so that a person need be asked once for each group.
    Cluster(quality::ClusterArgs),
    /// Look into shadow mode on a server, and move to the other backend on what it found.
    #[command(subcommand)]
    Shadow(shadow::ShadowCommand),
    /// List the OpenCL devices, and which one would be used.
    Devices(devices::DevicesArgs),
    /// Say what OpenCL and the CPU are like here, and what to do about each trouble; exit code 3 where something is wrong.
    Doctor(doctor::DoctorArgs),
    /// Check the configuration and list every fault.
    CheckConfig,
    /// Try OpenCL drivers, as a process that may be lost by it. Lookalike starts it itself.
    #[command(name = "probe-opencl", hide = true)]
    Probe(probe::ProbeArgs),
    /// Time exact search on this machine.
    Bench(bench::BenchArgs),
    /// Measure which kernels suit the OpenCL device, and keep the best.
    Tune(tune::TuneArgs),
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    // Help and version go to the real stdout, before it is set apart.
    let cli = Cli::parse();
    let ready = signals::outlive_file_limits().map_err(anyhow::Error::from);
    let result = ready.and_then(|()| Output::take_stdout()).and_then(|mut output| {
        let result = run(cli, &mut output);
        // What a check found wrong must be read even though it fails.
        output.finish()?;
        result
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the result has read enough of it.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{}", describe(&error));
            ExitCode::from(exit_code(&error))
        }
    }
}

fn run(cli: Cli, output: &mut Output) -> anyhow::Result<()> {
    let settings = cli.settings;
    match cli.command {
        Command::Serve(args) => serve::run(&settings, args),
        Command::Demo(args) => demo::run(&settings, args, output),
        Command::Search(args) => search::run(&settings, args, output),
        Command::Recognize(args) => recognize::run(&settings, args, output),
        Command::Gallery(command) => gallery::run(&settings, command, output),
        Command::Select(args) => quality::select(&settings, args, output),
        Command::Validate(args) => quality::validate(&settings, args, output),
        Command::Calibrate(args) => quality::calibrate(&settings, args, output),
        Command::Audit(args) => quality::audit(&settings, args, output),
        Command::Cluster(args) => quality::cluster(&settings, args, output),
        Command::Shadow(command) => shadow::run(&settings, command, output),
        Command::Devices(args) => devices::run(&settings, args, output),
        Command::Doctor(args) => doctor::run(&settings, args, output),
        Command::Probe(args) => probe::run(args, output),
        Command::CheckConfig => check_config::run(&settings, output),
        Command::Bench(args) => bench::run(&settings, args, output),
        Command::Tune(args) => tune::run(&settings, args, output),
    }
}

/// A check found something wrong; what, stands on stdout.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct FoundWrong(String);

/// Arguments that do not go together.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

fn exit_code(error: &anyhow::Error) -> u8 {
    let of_tokens = |cause: &(dyn std::error::Error + 'static)| cause.is::<TokensError>();
    if error.is::<ConfigError>() || error.is::<Usage>() || error.chain().any(of_tokens) {
        2
    } else if error.is::<FoundWrong>() {
        3
    } else {
        1
    }
}

/// An error with its causes; a configuration's faults stand on lines of their own.
fn describe(error: &anyhow::Error) -> String {
    if error.is::<ConfigError>() { error.to_string() } else { format!("error: {error:#}") }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// A runtime for commands that speak gRPC.
fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
