//! `kernels`: lists the kernels that could be started, and the one that would be.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::envelope::Answer;
use super::problem::{Problem, causes};
use crate::hint::Hint;
use crate::kernel::spec;
use crate::kernel::spec::candidates::{CandidateSource, KernelCandidate};
use crate::kernel::variables::ProcessVariables;
use crate::lifecycle::available::{Available, available};
use crate::project::RealSpec;

/// The kernels of this machine as a notebook sees them.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KernelsAnswer {
    /// The notebook that was named.
    pub notebook: Option<PathBuf>,
    /// All that could be started, and those that cannot with the reason; nearest first.
    pub kernels: Vec<ListedKernel>,
    /// The one that opening would start.
    pub chosen: Option<StartedKernel>,
    /// Why opening would start none.
    pub not_chosen: Option<NotChosen>,
    /// What is to be known of the choice.
    pub notes: Option<Vec<String>>,
    /// A note about kernelspecs that Jupyter's configuration hides.
    pub hidden: Option<String>,
    /// The folders that were searched for kernelspecs, in Jupyter's order.
    pub searched: Vec<PathBuf>,
    /// Those of them that could not be read.
    pub unreadable: Vec<UnreadableFolder>,
}

impl Answer for KernelsAnswer {}

/// A kernel that could be started.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListedKernel {
    /// The spec's name, or the environment's.
    pub name: String,
    /// The name that people see.
    pub display_name: Option<String>,
    /// Its language.
    pub language: String,
    /// How it was found, for people.
    pub source: String,
    /// What it was found as: `environment`, `kernelspec`, `path` or `conda`.
    pub kind: &'static str,
    /// Who manages its environment.
    pub manager: Option<&'static str>,
    /// The Python, or the spec's folder.
    pub path: PathBuf,
    /// The command that it is started by.
    pub argv: Option<Vec<String>>,
    /// The option of `nb open` that chooses it, and the option's value.
    pub open_with: (&'static str, String),
    /// Whether it can be started.
    pub ready: bool,
    /// Why it cannot.
    pub problem: Option<String>,
    /// The command that makes it ready.
    pub install: Option<String>,
    /// Whether it is the one that would be started.
    pub chosen: bool,
}

/// The kernel that opening would start.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StartedKernel {
    /// The spec's name, or the environment's.
    pub name: String,
    /// The name that people see.
    pub display_name: String,
    /// Its language.
    pub language: String,
    /// The command that it is started by.
    pub argv: Vec<String>,
    /// Why it is this one.
    pub why: String,
    /// The program that is started; a bare `python` is resolved.
    pub program: String,
}

/// Why no kernel would be started.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NotChosen {
    /// The reason.
    pub why: String,
    /// What to do about it.
    pub hints: Vec<Hint>,
}

/// A folder of kernelspecs that could not be read.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnreadableFolder {
    /// The folder.
    pub folder: PathBuf,
    /// Why.
    pub error: String,
}

/// Lists the kernels that the named notebook, else a new one, could run. It executes the interpreters of
/// the system and of the user's own tools, but nothing from the notebook's folder.
///
/// # Errors
/// The notebook, or the project's `state.json`, cannot be read.
pub async fn kernels(caller: &Caller) -> Result<KernelsAnswer, Problem> {
    let named = caller.named();
    let new = caller.working_dir.join("new.ipynb");
    blocking(caller, move |_| {
        let found = available(named.as_deref().unwrap_or(&new), &ProcessVariables)?;
        Ok(answer(named, &found))
    })
    .await
}

fn answer(notebook: Option<PathBuf>, found: &Available) -> KernelsAnswer {
    let chosen = found.chosen_offer();
    let kernels = found.candidates.iter().enumerate();
    let kernels = kernels.map(|(at, candidate)| listed(candidate, chosen == Some(at)));
    let unreadable = found.unreadable.iter();
    let unreadable = unreadable.map(|(folder, error)| UnreadableFolder {
        folder: folder.clone(),
        error: error.to_string(),
    });
    let choice = found.chosen.as_ref().ok();
    let none = found.chosen.as_ref().err();
    KernelsAnswer {
        notebook,
        kernels: kernels.collect(),
        chosen: choice.map(|choice| StartedKernel {
            name: choice.spec.name.clone(),
            display_name: choice.spec.display_name.clone(),
            language: choice.spec.language.clone(),
            argv: choice.spec.argv.clone(),
            why: choice.why.to_string(),
            program: program(&choice.spec),
        }),
        not_chosen: none.map(|error| NotChosen {
            why: causes(error),
            hints: error.hints(),
        }),
        notes: choice.map(|choice| choice.notes.clone()),
        hidden: found.hidden.clone(),
        searched: found.searched.clone(),
        unreadable: unreadable.collect(),
    }
}

fn listed(candidate: &KernelCandidate, chosen: bool) -> ListedKernel {
    let spec = candidate.spec.as_ref().ok();
    let unready = candidate.spec.as_ref().err();
    let install = unready.and_then(|unready| unready.install.as_ref());
    ListedKernel {
        name: candidate.name.clone(),
        display_name: spec.map(|spec| spec.display_name.clone()),
        language: candidate.language().to_owned(),
        source: candidate.source.clone(),
        kind: match candidate.from {
            CandidateSource::AtHand => "environment",
            CandidateSource::Spec => "kernelspec",
            CandidateSource::Path => "path",
            CandidateSource::Known => "conda",
        },
        manager: candidate.manager.map(|manager| manager.as_str()),
        path: candidate.path.clone(),
        argv: spec.map(|spec| spec.argv.clone()),
        open_with: candidate.option(),
        ready: spec.is_some(),
        problem: unready.map(|unready| unready.why.clone()),
        install: install.map(ToString::to_string),
        chosen,
    }
}

fn program(spec: &RealSpec) -> String {
    let argv = spec::command(spec, Path::new(""));
    let program = argv.into_iter().next().unwrap_or_default();
    program.to_string_lossy().into_owned()
}
