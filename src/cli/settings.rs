//! Flags that every command takes: where the configuration comes from.

use std::path::PathBuf;

use clap::Args;

use crate::config::{self, ConfigError, Prober, Settings, Sources};

#[derive(Debug, Args)]
pub(super) struct SettingsArgs {
    /// Configuration file (YAML); its keys stand in config/lookalike.yaml.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set one key of the configuration, over file and environment; may be repeated.
    #[arg(long = "set", global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl SettingsArgs {
    /// The settings, with a command's own flags (as `key.path=value`) over all else.
    pub(super) fn load(&self, own: impl IntoIterator<Item = String>) -> Result<Settings, ConfigError> {
        let flags = self.set.iter().cloned().chain(own).collect();
        let mut settings = config::load(&Sources::from_process(self.config.clone(), flags))?;
        // This program can be the process in which drivers are tried.
        if let Ok(program) = std::env::current_exe() {
            settings.backend.opencl.prober = Prober::Program(program);
        }
        Ok(settings)
    }
}
