//! Two settings of VS Code for a project's folder.

use std::path::PathBuf;

use super::agent_setup::AgentFile;
use super::caller::{Caller, blocking};
use super::problem::Problem;
use crate::project::Project;
use crate::setup::vscode_settings;

/// What is to become of the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsChange {
    /// Only say what would be added, if the person is to be asked.
    Offer,
    /// The person does not want them: they are not offered again.
    Decline,
    /// Add them.
    Add,
    /// Take them out.
    Remove,
}

/// Adds two settings of VS Code to a project's folder, or takes them out again. Returns the file that differs, or would.
///
/// # Errors
/// The project cannot be opened, or the file cannot be read or written.
pub async fn vscode_settings(
    caller: &Caller,
    folder: PathBuf,
    change: SettingsChange,
) -> Result<Option<AgentFile>, Problem> {
    blocking(caller, move |_| {
        let project = Project::for_notebook(&folder.join("notebook.ipynb"));
        let project = project.map_err(|error| Problem::failed("open the project", &error))?;
        match change {
            SettingsChange::Offer => {
                let is_in_vscode =
                    std::env::var_os("TERM_PROGRAM").is_some_and(|it| it == "vscode");
                if !vscode_settings::is_to_ask(&project, is_in_vscode) {
                    return Ok(None);
                }
            }
            SettingsChange::Decline | SettingsChange::Add => {
                vscode_settings::record_asked(&project);
            }
            SettingsChange::Remove => {}
        }
        let planned = vscode_settings::planned(&folder, change == SettingsChange::Remove)?;
        if planned.is_same() {
            return Ok(None);
        }
        if matches!(change, SettingsChange::Add | SettingsChange::Remove) {
            planned.write()?;
        }
        Ok(Some(AgentFile::of(&planned)))
    })
    .await
}
