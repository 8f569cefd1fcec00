//! `nb serve` and `nb unserve`: the kernelspec that front ends list.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::fault::Fault;
use super::open::CLICKS;
use super::print;
use crate::kernel::paths::ProcessVariables;
use crate::ops::serve::{self, Level};

/// Install the kernelspec "nb shared kernel" for VS Code and JupyterLab
///
/// Doing it again changes nothing. The spec starts a copy of nb-proxy in nb's own data folder,
/// which a newer nb replaces: a chosen kernel goes on working.
#[derive(Args, Debug)]
pub(super) struct Serve {
    #[command(flatten)]
    place: Place,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// Remove the kernelspec "nb shared kernel"
///
/// Kernels that run are left alone; `nb shutdown` ends them.
#[derive(Args, Debug)]
pub(super) struct Unserve {
    #[command(flatten)]
    place: Place,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args, Debug)]
#[group(multiple = false)]
struct Place {
    /// For this user (the default)
    #[arg(long)]
    user: bool,
    /// In an environment: PREFIX/share/jupyter/kernels
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<PathBuf>,
}

impl Place {
    fn level(self) -> Level {
        self.prefix.map_or(Level::User, Level::Prefix)
    }
}

impl Serve {
    /// Runs the command.
    pub(super) fn run(self) -> Result<ExitCode, Fault> {
        let served = serve::serve(&self.place.level(), &ProcessVariables)?;
        if self.json {
            let _ = print::json(
                &json!({ "spec": served.folder, "program": served.proxy, "changed": served.changed }),
            );
        } else {
            let what = if served.changed {
                "installed"
            } else {
                "already installed"
            };
            let _ = print::line(&format!(
                "nb shared kernel: {what} in {}",
                served.folder.display()
            ));
            print::note(CLICKS);
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Unserve {
    /// Runs the command.
    pub(super) fn run(self) -> Result<ExitCode, Fault> {
        let removed = serve::unserve(&self.place.level(), &ProcessVariables)?;
        let _ = if self.json {
            print::json(&json!({ "removed": removed }))
        } else if removed.is_empty() {
            print::line("nb shared kernel: not installed")
        } else {
            removed
                .iter()
                .try_for_each(|path| print::line(&format!("removed {}", path.display())))
        };
        Ok(ExitCode::SUCCESS)
    }
}
