//! `lookalike check-config`.

use super::output::Output;
use super::settings::SettingsArgs;
use crate::gallery::store::Store;

pub(super) fn run(settings: &SettingsArgs, output: &mut Output) -> anyhow::Result<()> {
    let settings = settings.load([])?;
    output.line("the configuration is valid")?;
    let path = &settings.storage.path;
    match Store::open_read_only(path).and_then(|store| store.galleries()) {
        Ok(galleries) => {
            let names: Vec<&str> = galleries.iter().map(|gallery| gallery.profile.name.as_str()).collect();
            output.line(format_args!(
                "{} holds {} galleries: {}",
                path.display(),
                names.len(),
                names.join(", ")
            ))?;
            Ok(())
        }
        Err(error) => Err(anyhow::Error::new(error).context("storage.path")),
    }
}
