//! Flags that every command takes: where the configuration comes from.

use std::path::PathBuf;

use clap::Args;

use crate::config::{self, ConfigError, OwnSetting, Prober, Settings, Sources};

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
    /// The settings, with a command's own over all else.
    pub(super) fn load(&self, own: impl IntoIterator<Item = OwnSetting>) -> Result<Settings, ConfigError> {
        let own = own.into_iter().collect();
        let mut settings = config::load(&Sources::from_process(self.config.clone(), self.set.clone(), own))?;
        // This program can be the process in which drivers are tried.
        if let Ok(program) = std::env::current_exe() {
            settings.backend.opencl.prober = Prober::Program(program);
        }
        Ok(settings)
    }
}
