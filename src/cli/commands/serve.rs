//! `nb serve` and `nb unserve`: install and remove the kernelspecs that front ends list.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::Problem;
use crate::api::{self, EditorAnswer, ServeAnswer, ServePlace, ServeRequest, VscodeAnswer};
use crate::cli::Context;
use crate::cli::commands::Command;
use crate::cli::commands::open::clicks;
use crate::cli::render::print;
use crate::setup::vscode_extension::PROGRAMS;

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
    /// Install the kernelspec "Agent Client Protocol" instead: its cells are messages to coding agents
    #[arg(long, conflicts_with = "language")]
    chat: bool,
    /// Install nb's extension into VS Code, too: where code, code-insiders, codium or cursor is found, and into
    /// VS Code's server in your home folder
    #[arg(long, conflicts_with = "chat")]
    vscode: bool,
    /// Install nb's extension for JupyterLab 4 and Notebook 7, too: in your Jupyter data folder, or where --prefix or
    /// --project says
    #[arg(long, conflicts_with = "chat")]
    jupyterlab: bool,
}

/// Remove the kernelspec "nb shared kernel"
///
/// For all languages, and the one of chats, with the extension of --jupyterlab; that of the user with the extension of --vscode.
/// Kernels that run are left alone; `nb shutdown` ends them. Notebooks that name the shared
/// kernelspec name their own one again.
#[derive(Args, Debug)]
pub(crate) struct Unserve {
    #[command(flatten)]
    place: Place,
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
    fn serve_place(self) -> ServePlace {
        match self.prefix {
            _ if self.project => ServePlace::Project,
            Some(prefix) => ServePlace::Prefix(prefix),
            None => ServePlace::User,
        }
    }
}

impl Command for Serve {
    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let place = self.place.serve_place();
        let answer = match self.chat {
            true => api::serve_chat(&context.caller, place).await?,
            false => {
                let request = ServeRequest {
                    place,
                    language: self.language,
                    vscode: self.vscode,
                    jupyterlab: self.jupyterlab,
                };
                api::serve(&context.caller, request).await?
            }
        };
        let printed = context.print(&answer, show_served)?;
        let editors = answer.vscode.iter().flat_map(|it| &it.editors);
        Ok(match editors.clone().all(|editor| editor.done) {
            true => printed,
            false => ExitCode::FAILURE,
        })
    }
}

fn show_served(answer: &ServeAnswer) -> io::Result<()> {
    let state = match answer.changed {
        true => "installed",
        false => "already installed",
    };
    let name = &answer.display_name;
    print::line(&format!("{name}: {state} in {}", answer.spec.display()))?;
    if !answer.is_known {
        let language = &answer.language;
        print::note(&format!(
            "note: no kernel for {language} is installed here yet"
        ));
    }
    if let Some(env) = &answer.env {
        print::note(&format!(
            "For VS Code to find it, add this line to {} and reload the window:",
            env.file.display()
        ));
        print::note(&format!("    {}", env.line));
        print::note("The path is this machine's: keep the file out of version control.");
    }
    clicks(name).iter().for_each(|line| print::note(line));
    if let Some(extension) = &answer.jupyterlab {
        let (folder, version) = (extension.folder.display(), extension.version);
        let next = match extension.changed {
            true => "; reload JupyterLab's pages",
            false => "",
        };
        print::line(&format!(
            "JupyterLab extension {version}: installed in {folder}{next}"
        ))?;
    }
    answer.vscode.as_ref().map_or(Ok(()), show_extension)
}

fn show_extension(answer: &VscodeAnswer) -> io::Result<()> {
    let file = answer.file.display();
    if answer.editors.is_empty() {
        return print::line(&format!(
            "VS Code extension: no editor was found ({}, or a server in ~/.vscode-server); it can be installed by hand, \
             with the editor's command \"Extensions: Install from VSIX...\", from {file}",
            PROGRAMS.join(", ")
        ));
    }
    let version = answer.version;
    for editor in &answer.editors {
        match failure(editor) {
            None => print::line(&format!(
                "VS Code extension {version}: installed with {}; reload its open windows",
                editor.program.display()
            ))?,
            Some(failure) => {
                let program = editor.program.display();
                print::note(&format!(
                    "nb: {program} could not install the VS Code extension: {failure}"
                ));
                print::note(&format!("hint: its file is {file}"));
            }
        }
    }
    Ok(())
}

fn failure(editor: &EditorAnswer) -> Option<&str> {
    let unknown = (!editor.done).then_some("it did not say why");
    editor.failure.as_deref().or(unknown)
}

impl Command for Unserve {
    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let answer = api::unserve(&context.caller, self.place.serve_place()).await?;
        context.print(&answer, |answer| {
            if answer.removed.is_empty() {
                print::line("nb shared kernel: not installed")?;
            }
            for path in &answer.removed {
                print::line(&format!("removed {}", path.display()))?;
            }
            for editor in &answer.editors {
                let program = editor.program.display();
                match failure(editor) {
                    None => print::line(&format!("removed the VS Code extension with {program}"))?,
                    Some(failure) => print::note(&format!(
                        "nb: {program} could not remove the VS Code extension: {failure}"
                    )),
                }
            }
            print::notes(&answer.notes);
            Ok(())
        })
    }
}
