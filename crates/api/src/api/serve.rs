//! `serve` and `unserve`: install and remove the kernelspecs that front ends list.

use std::path::PathBuf;

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::envelope::Answer;
use super::problem::Problem;
use crate::editing::named_kernelspec;
use crate::kernel::variables::ProcessVariables;
use crate::project::Project;
use crate::setup::jupyterlab_extension;
use crate::setup::serve::{self, Level, Served, env_line};
use crate::setup::serve_chat;
use crate::setup::vscode_extension::{self, EditorOutcome};
use crate::setup::vscode_package;

/// Where kernelspecs are installed.
#[derive(Clone, Debug, Default)]
pub enum ServePlace {
    /// For the user.
    #[default]
    User,
    /// In an environment: PREFIX/share/jupyter/kernels.
    Prefix(PathBuf),
    /// In the project of the working directory.
    Project,
}

/// Which kernelspec to install, and where.
#[derive(Clone, Debug)]
pub struct ServeRequest {
    /// Where to install it.
    pub place: ServePlace,
    /// The language of the notebooks that the kernelspec is for.
    pub language: String,
    /// Whether to install the extension into VS Code, too.
    pub vscode: bool,
    /// Whether to install the extension for JupyterLab, too.
    pub jupyterlab: bool,
}

/// A kernelspec that is installed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServeAnswer {
    /// The spec's folder.
    pub spec: PathBuf,
    /// The program that it starts.
    pub program: PathBuf,
    /// Whether anything had to be written.
    pub changed: bool,
    /// The language.
    pub language: String,
    /// The id under which VS Code's Jupyter extension knows it.
    pub vscode_kernel: String,
    /// The line of an `.env` file by which VS Code finds it.
    pub env: Option<EnvLine>,
    /// What became of the extension for VS Code, if it was to be installed.
    pub vscode: Option<VscodeAnswer>,
    /// The extension for JupyterLab, if it was to be installed.
    pub jupyterlab: Option<JupyterlabAnswer>,
    /// The name that people see.
    pub display_name: String,
    /// Whether a kernel for the language is installed.
    #[serde(rename = "kernel_installed")]
    pub is_known: bool,
}

impl Answer for ServeAnswer {}

impl ServeAnswer {
    fn of(served: Served, language: String, is_known: bool, project: Option<Project>) -> Self {
        let env = project.map(|project| EnvLine {
            file: project.root().join(".env"),
            line: env_line(project.dir()),
        });
        Self {
            vscode_kernel: served.vscode_id(&language),
            spec: served.folder,
            program: served.proxy,
            changed: served.changed,
            language,
            env,
            vscode: None,
            jupyterlab: None,
            display_name: served.display_name,
            is_known,
        }
    }
}

/// The extension for VS Code.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VscodeAnswer {
    /// Its id.
    pub extension: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its file, for editors that were not found.
    pub file: PathBuf,
    /// The editors that were found.
    pub editors: Vec<EditorAnswer>,
}

/// The extension for JupyterLab.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JupyterlabAnswer {
    /// Its folder.
    pub folder: PathBuf,
    /// Its version.
    pub version: &'static str,
    /// Whether anything had to be written.
    pub changed: bool,
}

/// What became of the extension in one editor.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EditorAnswer {
    /// The editor's command.
    pub program: PathBuf,
    /// Whether it was done.
    pub done: bool,
    /// Why not, in the editor's or the system's own words.
    pub failure: Option<String>,
}

impl EditorAnswer {
    fn of(outcome: EditorOutcome) -> Self {
        Self {
            program: outcome.program,
            done: outcome.failure.is_none(),
            failure: outcome.failure,
        }
    }
}

/// A line of an `.env` file.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EnvLine {
    /// The file.
    pub file: PathBuf,
    /// The line.
    pub line: String,
}

/// What was removed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnserveAnswer {
    /// The folders and files that are gone.
    pub removed: Vec<PathBuf>,
    /// Specs elsewhere, for whose sake the program that they start stays.
    pub used_by: Vec<PathBuf>,
    /// The editors that had the extension for VS Code.
    pub editors: Vec<EditorAnswer>,
    /// What is to be known of it.
    pub notes: Vec<String>,
}

impl Answer for UnserveAnswer {}

impl ServePlace {
    /// Returns the level at which kernelspecs are installed, and its project; `makes` creates a missing
    /// project.
    fn level(self, caller: &Caller, makes: bool) -> Result<(Level, Option<Project>), Problem> {
        match self {
            Self::User => return Ok((Level::User, None)),
            Self::Prefix(prefix) => return Ok((Level::Prefix(prefix), None)),
            Self::Project => {}
        }
        // The project that a notebook in the working directory would belong to.
        let notebook = caller.working_dir.join("notebook.ipynb");
        let project = match Project::find(&notebook) {
            None if makes => Some(
                Project::for_notebook(&notebook)
                    .map_err(|error| Problem::failed("open the project", &error))?,
            ),
            found => found,
        };
        let dir = project.as_ref().map(|project| project.dir().to_owned());
        let dir = dir.unwrap_or_else(|| caller.working_dir.join(".nb"));
        Ok((Level::Project(dir), project))
    }
}

/// Installs the kernelspec "nb shared kernel" of a language.
///
/// # Errors
/// Its folder was not made by `nb`, or cannot be written; or the extension's file cannot. What an editor did is in the
/// answer.
pub async fn serve(caller: &Caller, request: ServeRequest) -> Result<ServeAnswer, Problem> {
    blocking(caller, move |caller| {
        let (level, project) = request.place.level(caller, true)?;
        let (language, is_known) = serve::spelled(&request.language, &ProcessVariables);
        let served = serve::serve(&level, &language, &ProcessVariables)?;
        let mut answer = ServeAnswer::of(served, language, is_known, project);
        if request.vscode {
            let installed = vscode_extension::install(&ProcessVariables)?;
            answer.vscode = Some(VscodeAnswer {
                extension: vscode_package::ID,
                version: vscode_package::version(),
                file: installed.file,
                editors: installed
                    .editors
                    .into_iter()
                    .map(EditorAnswer::of)
                    .collect(),
            });
        }
        if request.jupyterlab {
            let (folder, changed) = jupyterlab_extension::install(&level, &ProcessVariables)?;
            let version = vscode_package::version();
            answer.jupyterlab = Some(JupyterlabAnswer {
                folder,
                version,
                changed,
            });
        }
        Ok(answer)
    })
    .await
}

/// Installs the kernelspec "Agent Client Protocol", whose kernel is a chat with agents.
///
/// # Errors
/// Its folder was not made by `nb`, or cannot be written.
pub async fn serve_chat(caller: &Caller, place: ServePlace) -> Result<ServeAnswer, Problem> {
    blocking(caller, move |caller| {
        let (level, project) = place.level(caller, true)?;
        let served = serve_chat::serve(&level, &ProcessVariables)?;
        let language = serve_chat::LANGUAGE.to_owned();
        Ok(ServeAnswer::of(served, language, true, project))
    })
    .await
}

/// Removes the kernelspecs "nb shared kernel" of all languages, that of chats, and the extension for JupyterLab; those of the
/// user with the extension for VS Code. Running kernels are left alone.
///
/// # Errors
/// A folder was not made by `nb`, or cannot be removed.
pub async fn unserve(caller: &Caller, place: ServePlace) -> Result<UnserveAnswer, Problem> {
    blocking(caller, move |caller| {
        let (level, project) = place.level(caller, false)?;
        let mut unserved = serve::unserve(&level, &ProcessVariables)?;
        let chat = serve_chat::unserve(&level, &ProcessVariables)?;
        unserved.removed.extend(chat);
        let jupyterlab = jupyterlab_extension::remove(&level, &ProcessVariables)?;
        unserved.removed.extend(jupyterlab);
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
        let mut editors = Vec::new();
        if level == Level::User {
            let extension = vscode_extension::remove(&ProcessVariables)?;
            unserved.removed.extend(extension.file);
            editors.extend(extension.editors.into_iter().map(EditorAnswer::of));
            notes.extend(named_kernelspec::restore_everywhere());
            notes.extend(unserved.used_by.iter().map(|folder| {
                format!(
                    "the program stays for the specs in {}: nb unserve --prefix or --project removes those",
                    folder.display()
                )
            }));
        }
        Ok(UnserveAnswer {
            removed: unserved.removed,
            used_by: unserved.used_by,
            editors,
            notes,
        })
    })
    .await
}
