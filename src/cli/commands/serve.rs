//! `nb serve` and `nb unserve`: the kernelspecs that front ends list.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::api::problem::Problem;
use crate::cli::Context;
use crate::cli::commands::open::clicks;
use crate::cli::commands::{Command, Group};
use crate::cli::render::print;
use crate::editing::rename;
use crate::kernel::variables::ProcessVariables;
use crate::lifecycle::serve::{self, Level, env_line};
use crate::project::Project;

/// Install the kernelspec "nb shared kernel" for VS Code and JupyterLab
///
/// Doing it again changes nothing. The spec starts a copy of nb-proxy in nb's own data folder,
/// which a newer nb replaces: a chosen kernel goes on working.
#[derive(Args, Debug)]
pub(crate) struct Serve {
    #[command(flatten)]
    place: Place,
    /// Install the spec for notebooks of this language
    #[arg(long, value_name = "LANGUAGE", default_value = "python")]
    language: String,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Remove the kernelspec "nb shared kernel"
///
/// For all languages. Kernels that run are left alone; `nb shutdown` ends them. Notebooks that name the shared
/// kernelspec name their own one again.
#[derive(Args, Debug)]
pub(crate) struct Unserve {
    #[command(flatten)]
    place: Place,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
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
    /// In this project; the line of its .env by which VS Code finds it is printed
    #[arg(long)]
    project: bool,
}

impl Place {
    /// Returns the level, and the project that it is in.
    fn level(self, context: &Context, makes: bool) -> Result<(Level, Option<Project>), Problem> {
        if !self.project {
            return Ok((self.prefix.map_or(Level::User, Level::Prefix), None));
        }
        // The project of a notebook that would lie here.
        let here = context.caller.here.join("notebook.ipynb");
        let project = match Project::find(&here) {
            None if makes => Some(
                Project::for_notebook(&here)
                    .map_err(|error| Problem::failed("open the project", &error))?,
            ),
            found => found,
        };
        let dir = project.as_ref().map(|project| project.dir().to_owned());
        let dir = dir.unwrap_or_else(|| context.caller.here.join(".nb"));
        Ok((Level::Project(dir), project))
    }
}

impl Command for Serve {
    const NAME: &'static str = "serve";
    const GROUP: Group = Group::Kernel;

    fn json(&self) -> bool {
        self.json
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let (level, project) = self.place.level(context, true)?;
        let (language, known) = serve::spelled(&self.language, &ProcessVariables);
        let served = serve::serve(&level, &language, &ProcessVariables)?;
        let env = project.map(|project| (project.root().join(".env"), env_line(project.dir())));
        if self.json {
            let env = env.map(|(file, line)| json!({ "file": file, "line": line }));
            let _ = print::json(&json!({
                "spec": served.folder,
                "program": served.proxy,
                "changed": served.changed,
                "language": language,
                "env": env,
            }));
            return Ok(ExitCode::SUCCESS);
        }
        let what = if served.changed {
            "installed"
        } else {
            "already installed"
        };
        let _ = print::line(&format!(
            "{}: {what} in {}",
            served.display_name,
            served.folder.display()
        ));
        if !known {
            print::note(&format!(
                "note: no kernel for {language} is installed here yet"
            ));
        }
        if let Some((file, line)) = env {
            print::note(&format!(
                "For VS Code to find it, add this line to {} and reload the window:\n    {line}\n\
                 The path is this machine's: keep the file out of version control.",
                file.display()
            ));
        }
        print::note(&clicks(&served.display_name));
        Ok(ExitCode::SUCCESS)
    }
}

impl Command for Unserve {
    const NAME: &'static str = "unserve";
    const GROUP: Group = Group::Kernel;

    fn json(&self) -> bool {
        self.json
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let (level, project) = self.place.level(context, false)?;
        let unserved = serve::unserve(&level, &ProcessVariables)?;
        let mut notes: Vec<_> = project
            .map(|project| {
                let line = env_line(project.dir());
                format!(
                    "where {} has the line {line}, it is not needed any more",
                    project.root().join(".env").display()
                )
            })
            .into_iter()
            .collect();
        if level == Level::User {
            notes.extend(rename::put_back_everywhere());
            notes.extend(unserved.used_by.iter().map(|folder| {
                format!(
                    "the program stays for the specs in {}: nb unserve --prefix or --project removes those",
                    folder.display()
                )
            }));
        }
        if self.json {
            let _ = print::json(&json!({
                "removed": unserved.removed,
                "used_by": unserved.used_by,
                "notes": notes,
            }));
            return Ok(ExitCode::SUCCESS);
        }
        let removed = unserved.removed.iter();
        let _ = if unserved.removed.is_empty() {
            print::line("nb shared kernel: not installed")
        } else {
            removed
                .map(|path| format!("removed {}", path.display()))
                .try_for_each(|line| print::line(&line))
        };
        notes
            .iter()
            .for_each(|note| print::note(&format!("note: {note}")));
        Ok(ExitCode::SUCCESS)
    }
}
