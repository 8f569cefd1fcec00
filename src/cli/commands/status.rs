//! `nb status`: lists the kernels, and who is joined.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::Problem;
use crate::api::{self, AllKernelsAnswer, KernelStatus, LeftKernel, StatusAnswer};
use crate::cli::Context;
use crate::cli::commands::Command;
use crate::cli::render::print;
use crate::notebook::size;
use crate::setup::serve::Health;
use crate::text::kernel;

/// Show the kernels of this project, who uses them, and whether front ends find them
///
/// Asked about one notebook, it ends with 6 where no kernel runs for it. With --all it shows every
/// kernel that runs, of all your projects; nb shutdown --idle ends those that nobody uses. With
/// --json each front end has the counters of its proxy: the messages that passed, what waits for the kernel or for
/// a client, and what was lost or refused.
#[derive(Args, Debug)]
pub(crate) struct Status {
    /// The notebook; without it, all of the project
    pub(crate) notebook: Option<PathBuf>,
    /// Show the kernels of all your projects
    #[arg(long, conflicts_with = "notebook")]
    all: bool,
}

impl Command for Status {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        self.notebook.take()
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        if self.all {
            let answer = api::status_everywhere(&context.caller).await?;
            return context.print(&answer, show_all);
        }
        let answer = api::status(&context.caller).await?;
        context.death_printed.set(true);
        context.print(&answer, show)?;
        // For a single notebook, the exit code also says whether its kernel runs.
        let is_up = answer.sessions.iter().any(KernelStatus::is_up);
        let code = if answer.is_of_one && !is_up { 6 } else { 0 };
        Ok(ExitCode::from(code))
    }
}

fn show(answer: &StatusAnswer) -> std::io::Result<()> {
    let mut sessions = answer.sessions.iter();
    sessions.try_for_each(|it| print::lines(kernel::lines(it)))?;
    print::line(&spec_text(&answer.spec))
}

fn show_all(answer: &AllKernelsAnswer) -> std::io::Result<()> {
    let mut last_project: Option<&Path> = None;
    let mut lines = Vec::new();
    for it in &answer.kernels {
        if last_project.replace(&it.project) != Some(&it.project) {
            lines.push(it.project.display().to_string());
        }
        let of_kernel = kernel::lines(&it.kernel).into_iter();
        lines.extend(of_kernel.map(|line| format!("  {line}")));
    }
    lines.extend(answer.left.iter().flat_map(left_lines));
    let memory = answer
        .kernels
        .iter()
        .filter_map(|it| it.kernel.memory_bytes);
    let memory = size(memory.sum());
    lines.push(match answer.kernels.len() {
        0 => "no kernel runs".to_owned(),
        count => format!("{}, {memory}", print::count(count, "kernel")),
    });
    print::lines(&lines)?;
    print::notes(answer.unreadable.iter().map(|it| &it.error));
    Ok(())
}

/// Describes a kernel whose `.nb` was removed or renamed.
fn left_lines(left: &LeftKernel) -> [String; 3] {
    let pid = left.kernel_pid;
    let memory = left.memory_bytes.map(|bytes| format!(" · {}", size(bytes)));
    let memory = memory.unwrap_or_default();
    [
        left.path.display().to_string(),
        format!("  its .nb was removed or renamed, its kernel runs · pid {pid}{memory}"),
        format!("  to end it: kill {pid}"),
    ]
}

fn spec_text(spec: &Health) -> String {
    match spec {
        Health::Good => "kernelspec \"nb shared kernel\": installed".to_owned(),
        Health::Missing => {
            "kernelspec \"nb shared kernel\": not installed; next: nb serve".to_owned()
        }
        Health::Stale { why } => {
            format!("kernelspec \"nb shared kernel\": {why}; next: nb serve")
        }
    }
}
