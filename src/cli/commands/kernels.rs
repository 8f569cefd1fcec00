//! `nb kernels`: lists the kernels that could be started, and the one that would be.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::Problem;
use crate::api::{self, KernelsAnswer, ListedKernel, ServerKernelsAnswer};
use crate::cli::Context;
use crate::cli::commands::Command;
use crate::cli::render::{columns, print};
use crate::hint::shell::quote;

/// List the kernels that a notebook could run, and say which one nb open would start and why
///
/// Environments at hand (active, or at or above the notebook) come first, then kernelspecs in
/// Jupyter's order, the python3 on PATH, and the environments that conda knows. What cannot be
/// started says why, and how to fix that. nb open --kernel NAME or --python PATH takes another.
/// With --server it lists the kernels that run on a server, and those that it could start.
#[derive(Args, Debug)]
pub(crate) struct Kernels {
    /// The notebook; without it, a new one in the working directory
    pub(crate) notebook: Option<PathBuf>,
    /// List the kernels of this server
    #[arg(long, value_name = "NAME", conflicts_with = "notebook")]
    pub(crate) server: Option<String>,
}

impl Command for Kernels {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        self.notebook.take()
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        if let Some(server) = self.server {
            let answer = api::server_kernels(&context.caller, &server).await?;
            return context.print(&answer, |answer| {
                print::lines(on_server(answer))?;
                print::notes(&answer.notes);
                Ok(())
            });
        }
        let answer = api::kernels(&context.caller).await?;
        context.print(&answer, |answer| {
            print::lines(lines(answer))?;
            let unreadable = answer.unreadable.iter();
            print::notes(
                unreadable.map(|it| format!("cannot read {}: {}", it.folder.display(), it.error)),
            );
            print::notes(answer.hidden.iter().chain(answer.notes.iter().flatten()));
            Ok(())
        })
    }
}

fn on_server(answer: &ServerKernelsAnswer) -> Vec<String> {
    let rows = answer.kernels.iter().map(|kernel| {
        let paths = kernel.notebooks.join(", ");
        let activity = kernel.last_activity.clone().unwrap_or_default();
        let state = kernel.state.clone().unwrap_or_default();
        [
            kernel.id.clone(),
            kernel.kernelspec.clone(),
            state,
            activity,
            paths,
        ]
    });
    let mut lines = columns::lines(&rows.collect::<Vec<_>>());
    if lines.is_empty() && answer.notes.is_empty() {
        lines.push(format!("{} runs no kernel", answer.server));
    }
    let specs = answer.kernelspecs.iter().map(|spec| {
        let mark = if spec.is_default { "*" } else { " " };
        let name = format!("{mark} {}", spec.name);
        [name, spec.language.clone(), spec.display_name.clone()]
    });
    lines.push("it can start:".to_owned());
    lines.extend(columns::lines(&specs.collect::<Vec<_>>()));
    lines
}

fn lines(answer: &KernelsAnswer) -> Vec<String> {
    let rows = answer.kernels.iter().map(|kernel| {
        let mark = if kernel.chosen { "*" } else { " " };
        [
            format!("{mark} {}", kernel.name),
            kernel.language.clone(),
            source(kernel),
            kernel.path.display().to_string(),
        ]
    });
    let rows: Vec<_> = rows.collect();
    let mut lines = Vec::new();
    for (line, kernel) in columns::lines(&rows).into_iter().zip(&answer.kernels) {
        lines.push(line);
        if let Some(problem) = &kernel.problem {
            let install = kernel.install.as_ref();
            let install = install.map_or(String::new(), |it| format!("; next: {it}"));
            lines.push(format!("    {problem}{install}"));
        }
    }
    if lines.is_empty() {
        lines.push("no kernel is installed here".to_owned());
    }
    let notebook = answer.notebook.as_deref();
    let notebook = notebook.map_or("NOTEBOOK".to_owned(), quote);
    if let Some(chosen) = &answer.chosen {
        lines.push(format!(
            "nb open {notebook} starts {} ({}): {}",
            chosen.display_name, chosen.program, chosen.why
        ));
    }
    if let Some(none) = &answer.not_chosen {
        lines.push(format!("nb open {notebook} starts none: {}", none.why));
        let hints = none.hints.iter().cloned();
        let hints = hints.map(|hint| match &answer.notebook {
            Some(notebook) => hint.named(notebook),
            None => hint,
        });
        lines.extend(hints.map(|hint| format!("  {hint}")));
    }
    lines
}

/// Returns where the kernel was found; for an environment also its manager, unless its kind names it.
fn source(kernel: &ListedKernel) -> String {
    match kernel.manager {
        Some(manager) if !matches!(kernel.kind, "conda" | "path") => {
            format!("{} ({manager})", kernel.source)
        }
        _ => kernel.source.clone(),
    }
}
