//! `nb kernels`: what could be started, and what would be.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use crate::api::problem::{Problem, causes};
use crate::cli::Context;
use crate::cli::commands::{Command, Group};
use crate::cli::render::{columns, print};
use crate::kernel::shell::quote;
use crate::kernel::spec;
use crate::kernel::spec::candidates::{CandidateSource, KernelCandidate};
use crate::kernel::variables::ProcessVariables;
use crate::lifecycle::available::{Available, available};
use crate::lifecycle::target;
use crate::project::RealSpec;

/// List the kernels that a notebook could run, and say which one nb open would start and why
///
/// Environments at hand (active, or at or above the notebook) come first, then kernelspecs in
/// Jupyter's order, the python3 on PATH, and the environments that conda knows. What cannot be
/// started says why, and what mends it. nb open --kernel NAME or --python PATH takes another.
#[derive(Args, Debug)]
pub(crate) struct Kernels {
    /// The notebook; without it, a new one in the working directory
    pub(crate) notebook: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl Command for Kernels {
    const NAME: &'static str = "kernels";
    const GROUP: Group = Group::Kernel;

    fn notebook(&self) -> Option<PathBuf> {
        self.notebook.clone()
    }

    fn json(&self) -> bool {
        self.json
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let given = self
            .notebook
            .clone()
            .or_else(|| context.caller.notebook.clone());
        let named = target::named(given.as_deref(), &ProcessVariables);
        let notebook = named.clone();
        let notebook = notebook.unwrap_or_else(|| context.caller.here.join("new.ipynb"));
        let found = available(&notebook, &ProcessVariables)?;
        let _ = if self.json {
            print::json(&object(named.as_deref(), &found))
        } else {
            let lines = text(named.as_deref(), &found);
            print::line(&lines.join("\n"))
        };
        if !self.json {
            for (folder, error) in &found.unreadable {
                print::note(&format!("note: cannot read {}: {error}", folder.display()));
            }
            if let Some(hidden) = &found.hidden {
                print::note(&format!("note: {hidden}"));
            }
            let notes = found.chosen.iter().flat_map(|choice| &choice.notes);
            notes.for_each(|note| print::note(&format!("note: {note}")));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn text(notebook: Option<&Path>, found: &Available) -> Vec<String> {
    let chosen = found.chosen_offer();
    let candidates = found.candidates.iter().enumerate();
    let rows: Vec<_> = candidates
        .map(|(at, candidate)| {
            let mark = if chosen == Some(at) { "*" } else { " " };
            [
                format!("{mark} {}", candidate.name),
                candidate.language().to_owned(),
                source(candidate),
                candidate.path.display().to_string(),
            ]
        })
        .collect();
    let mut lines = Vec::new();
    for (line, candidate) in columns::lines(&rows).iter().zip(&found.candidates) {
        lines.push(line.trim_end().to_owned());
        if let Err(unready) = &candidate.spec {
            let install = unready.install.as_ref();
            let mend = install.map_or(String::new(), |it| format!("; next: {it}"));
            lines.push(format!("    {}{mend}", unready.why));
        }
    }
    if lines.is_empty() {
        lines.push("no kernel is installed here".to_owned());
    }
    let which = notebook.map_or("NOTEBOOK".to_owned(), quote);
    match &found.chosen {
        Ok(choice) => lines.push(format!(
            "nb open {which} starts {} ({}): {}",
            choice.spec.display_name,
            program(&choice.spec),
            choice.why
        )),
        Err(error) => {
            lines.push(format!("nb open {which} starts none: {}", causes(error)));
            let hints = error.hints().into_iter();
            lines.extend(hints.map(|hint| format!("  {}", hint.replace("NOTEBOOK", &which))));
        }
    }
    lines
}

/// Returns the program that a spec starts, a bare `python` as the one that it means.
fn program(spec: &RealSpec) -> String {
    let argv = spec::command(spec, Path::new(""));
    let program = argv.into_iter().next().unwrap_or_default();
    program.to_string_lossy().into_owned()
}

/// Says where it was found; environments also who manages them, where that does not say it.
fn source(candidate: &KernelCandidate) -> String {
    match candidate.manager {
        Some(manager)
            if candidate.from != CandidateSource::Known
                && candidate.from != CandidateSource::Path =>
        {
            format!("{} ({})", candidate.source, manager.as_str())
        }
        _ => candidate.source.clone(),
    }
}

fn object(notebook: Option<&Path>, found: &Available) -> Value {
    let chosen = found.chosen_offer();
    let kernels = found.candidates.iter().enumerate().map(|(at, candidate)| {
        let spec = candidate.spec.as_ref().ok();
        let unready = candidate.spec.as_ref().err();
        let (option, value) = candidate.option();
        json!({
            "name": candidate.name,
            "display_name": spec.map(|spec| &spec.display_name),
            "language": candidate.language(),
            "source": candidate.source,
            "kind": match candidate.from {
                CandidateSource::AtHand => "environment",
                CandidateSource::Spec => "kernelspec",
                CandidateSource::Path => "path",
                CandidateSource::Known => "conda",
            },
            "manager": candidate.manager.map(|manager| manager.as_str()),
            "path": candidate.path,
            "argv": spec.map(|spec| &spec.argv),
            "open_with": [option, &value],
            "ready": spec.is_some(),
            "problem": unready.map(|unready| &unready.why),
            "install": unready.and_then(|it| it.install.as_ref()).map(ToString::to_string),
            "chosen": chosen == Some(at),
        })
    });
    let unreadable = found.unreadable.iter();
    let unreadable =
        unreadable.map(|(folder, error)| json!({ "folder": folder, "error": error.to_string() }));
    let choice = found.chosen.as_ref().ok();
    let none = found.chosen.as_ref().err();
    json!({
        "notebook": notebook,
        "kernels": kernels.collect::<Vec<_>>(),
        "chosen": choice.map(|choice| json!({
            "name": choice.spec.name,
            "display_name": choice.spec.display_name,
            "language": choice.spec.language,
            "argv": choice.spec.argv,
            "why": choice.why,
        })),
        "not_chosen": none.map(|error| json!({ "why": causes(error), "hints": error.hints() })),
        "notes": choice.map(|choice| &choice.notes),
        "hidden": found.hidden,
        "searched": found.searched,
        "unreadable": unreadable.collect::<Vec<_>>(),
    })
}
