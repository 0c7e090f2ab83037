//! `lookalike check-config`.

use anyhow::Context;

use super::output::Output;
use super::settings::SettingsArgs;
use crate::gallery::store::{Store, StoreError};
use crate::grpc::Tokens;
use crate::shadow::check_record;

pub(super) fn run(settings: &SettingsArgs, output: &mut Output) -> anyhow::Result<()> {
    let settings = settings.load([])?;
    settings.server.tokens.as_deref().map(Tokens::load).transpose()?;
    if settings.shadow.enabled {
        check_record(&settings.shadow.record).context("every key is valid, but one names a wrong place")?;
    }
    let path = &settings.storage.path;
    match Store::open_read_only(path).and_then(|store| store.galleries()) {
        Ok(galleries) => {
            let names: Vec<&str> = galleries.iter().map(|gallery| gallery.profile.name.as_str()).collect();
            output.line("the configuration is valid")?;
            Ok(output.line(format_args!("galleries in {}: {}", path.display(), names.join(", ")))?)
        }
        // What is configured is right; that there is nothing to serve yet is no fault of it.
        Err(StoreError::NoFolder(_) | StoreError::NoDatabase(_)) => {
            output.line("the configuration is valid")?;
            Ok(output.line(format_args!(
                "no galleries in {} yet: lookalike gallery import --data puts them there, and serve wants them",
                path.display()
            ))?)
        }
        Err(error) => Err(anyhow::Error::new(error).context("every key is valid, but storage.path")),
    }
}
