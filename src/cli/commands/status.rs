//! `nb status`: what runs here, and who is joined.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use serde_json::Value;

use crate::api::problem::{Problem, ProblemKind};
use crate::api::{
    self, AllKernelsAnswer, KernelStatus, LeftKernel, SpecStatus, StatusAnswer, StatusRequest,
};
use crate::cli::Context;
use crate::cli::commands::status_watch::Watch;
use crate::cli::commands::{Command, Group};
use crate::cli::render::print;
use crate::cli::render::sandbox as sandboxing;
use crate::kernel::process::limits::{self, MemoryBound};
use crate::kernel::shell::quote;
use crate::kernel::variables::ProcessVariables;
use crate::lifecycle::death;
use crate::lifecycle::idle::span;
use crate::lifecycle::liveness::Liveness;
use crate::lifecycle::open_error::OpenError;
use crate::lifecycle::target;
use crate::notebook::size;
use crate::project;

/// Show the kernels of this project, who is joined, and whether front ends find them
///
/// Asked about one notebook, it ends with 6 where no kernel runs for it. With --all it shows every
/// kernel that runs, of all your projects; nb shutdown --idle ends those that nobody uses. With
/// --watch it looks again and again, until Ctrl-C, and shows what passes each front end's proxy:
/// messages in a second, what waits for the kernel or for a reader, on disk too, and for how long
/// the proxy has a message (passing) and the kernel a request (reply), each as the half and as 99 in
/// a hundred of the last thousand.
#[derive(Args, Debug)]
pub(crate) struct Status {
    /// The notebook; without it, all of the project
    pub(crate) notebook: Option<PathBuf>,
    /// Show the kernels of all your projects
    #[arg(long, conflicts_with = "notebook")]
    all: bool,
    /// Look again every so many seconds, with what passes each proxy
    #[arg(
        short,
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        conflicts_with = "all"
    )]
    watch: Option<f64>,
    /// Print one JSON object; with --watch one for each look
    #[arg(long)]
    pub(crate) json: bool,
}

impl Command for Status {
    const NAME: &'static str = "status";
    const GROUP: Group = Group::Kernel;
    const IS_FIRST: bool = true;

    fn notebook(&self) -> Option<PathBuf> {
        self.notebook.clone()
    }

    fn json(&self) -> bool {
        self.json
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        if self.all {
            let answer = api::status_everywhere(&context.caller).await?;
            let _ = match self.json {
                true => context.answer(&answer),
                false => show_all(&answer),
            };
            return Ok(ExitCode::SUCCESS);
        }
        let notebook = self.notebook.clone();
        if let Some(seconds) = self.watch {
            let given = notebook.or_else(|| context.caller.notebook.clone());
            let named = target::named(given.as_deref(), &ProcessVariables);
            return self.watch(context, named, seconds).await;
        }
        let answer = api::status(&context.caller, StatusRequest { notebook }).await?;
        context.told_death.set(true);
        let _ = match self.json {
            true => context.answer(&answer),
            false => show(&answer),
        };
        // Asked about one notebook, the exit code answers too.
        let is_up = answer.sessions.iter().any(KernelStatus::is_up);
        let code = if answer.is_of_one && !is_up { 6 } else { 0 };
        Ok(ExitCode::from(code))
    }
}

fn show(answer: &StatusAnswer) -> std::io::Result<()> {
    let mut sessions = answer.sessions.iter();
    sessions.try_for_each(|kernel| print::line(&text(kernel)))?;
    print::line(&spec_text(&answer.spec))
}

fn show_all(answer: &AllKernelsAnswer) -> std::io::Result<()> {
    let mut told: Option<&Path> = None;
    let mut lines = Vec::new();
    for it in &answer.kernels {
        if told.replace(&it.project) != Some(&it.project) {
            lines.push(it.project.display().to_string());
        }
        let text = text(&it.kernel);
        lines.extend(text.lines().map(|line| format!("  {line}")));
    }
    lines.extend(answer.left.iter().map(left_text));
    let memory = answer
        .kernels
        .iter()
        .filter_map(|it| it.kernel.memory_bytes);
    let memory = size(memory.sum());
    lines.push(match answer.kernels.len() {
        0 => "no kernel runs".to_owned(),
        count => format!("{}, {memory}", print::count(count, "kernel")),
    });
    print::line(&lines.join("\n"))?;
    for it in &answer.unreadable {
        print::note(&format!("note: {}", it.error));
    }
    Ok(())
}

impl Status {
    /// Looks again and again.
    async fn watch(
        &self,
        context: &Context,
        named: Option<PathBuf>,
        seconds: f64,
    ) -> Result<ExitCode, Problem> {
        let every = Duration::try_from_secs_f64(seconds)
            .ok()
            .filter(|every| *every >= LEAST)
            .ok_or_else(|| {
                let text = format!("--watch={seconds} is no number of seconds from 0.1 on");
                Problem::new(ProblemKind::Usage, text)
            })?;
        let (project, only) = match named {
            Some(notebook) => {
                let target = context.target(Some(notebook)).await?;
                (target.project, Some((target.key, target.notebook_key)))
            }
            None => (context.caller.project_here()?, None),
        };
        let watch = Watch {
            project,
            only,
            every,
            json: self.json,
        };
        watch.run().await
    }
}

/// How often it is looked at most.
const LEAST: Duration = Duration::from_millis(100);

/// Tells of a kernel whose project was deleted.
fn left_text(left: &LeftKernel) -> String {
    let pid = left.kernel_pid;
    let memory = left.memory_bytes.map(|bytes| format!(" · {}", size(bytes)));
    format!(
        "{}\n  its project is gone, its kernel runs · pid {pid}{}\n  to end it: kill {pid}",
        left.path.display(),
        memory.unwrap_or_default()
    )
}

fn text(kernel: &KernelStatus) -> String {
    let mut lines = vec![kernel_text(kernel)];
    if kernel.kernel_of.is_some() {
        return lines.concat();
    }
    for joined in &kernel.joined {
        lines.push(format!(
            "  joined: {} since {} ({}, pid {})",
            joined.front_end,
            print::moment(joined.since),
            print::count(joined.clients, "client"),
            joined.pid
        ));
    }
    lines.join("\n")
}

/// Tells of the kernel, and not who is joined.
pub(crate) fn kernel_text(kernel: &KernelStatus) -> String {
    let status = &kernel.known;
    let session = &status.session;
    if let Some(owner) = &status.kernel_of {
        let state = kernel.state;
        return format!("{}: shares the kernel of {owner} ({state})", status.key);
    }
    let mut parts = vec![lasting(kernel)];
    if let Some(spec) = &session.kernelspec {
        parts.push(spec.display_name.clone());
    }
    if matches!(status.liveness, Liveness::Own(_) | Liveness::Foreign) {
        parts.extend(kernel.kernel_pid.map(|pid| format!("pid {pid}")));
        parts.extend(status.memory_bytes.map(size));
        parts.extend(bound(kernel));
        let idle = session.settings.idle_timeout.map(Duration::from_secs);
        parts.extend(idle.map(|idle| format!("ends after {} without use", span(idle))));
        // Until a kernel is ready, the record speaks of the one before.
        if session.status == project::Status::Live {
            parts.push(format!("generation {}", session.generation));
            let since = session.started_at;
            parts.extend(since.map(|at| format!("since {}", print::moment(at))));
        }
    }
    if session.is_attached() {
        parts.push("started by another program".to_owned());
    }
    let mut lines = vec![format!("{}: {}", status.key, parts.join(" · "))];
    if let Some(ended) = &session.ended {
        let next = quote(&session.notebook);
        match kernel.state {
            "died" => {
                let told = death::words(&status.key, ended);
                let mend = death::mend(&session.notebook);
                lines.push(format!("  {told} next: {mend}"));
                lines.extend(ended.lines.iter().map(|line| format!("  | {line}")));
            }
            "stopped" => {
                let by = ended.by.as_ref().map(|by| format!(" by {by}"));
                let why = ended.other.get("because").and_then(Value::as_str);
                let why = why.map(|why| format!(", since {why},"));
                lines.push(format!(
                    "  {}{}{} at {}; next: nb open {next}",
                    ended.reason,
                    by.unwrap_or_default(),
                    why.unwrap_or_default(),
                    print::moment(ended.at),
                ));
            }
            _ => {}
        }
    }
    if kernel.file_gone {
        let old = quote(&session.notebook);
        lines.push(format!(
            "  its file is gone, and its kernel runs on; if it was moved: nb open NEW.ipynb --kernel-of {old}; else: nb shutdown {old}"
        ));
    }
    if status.abandoned {
        lines.push(format!(
            "  whoever started it was ended before it was ready; next: nb open {}",
            quote(&session.notebook)
        ));
    }
    if matches!(kernel.state, "elsewhere" | "unchecked") {
        let why = OpenError::out_of_reach(session);
        lines.push(format!("  {why}"));
    }
    if let Some(sandbox) = session.sandbox() {
        lines.push(format!("  {}", sandboxing::text(sandbox, Path::new(""))));
    }
    if !status.shared_by.is_empty() {
        lines.push(format!("  shared by: {}", status.shared_by.join(", ")));
    }
    lines.join("\n")
}

/// Tells what the kernel is kept to, where it is to be kept to anything.
fn bound(kernel: &KernelStatus) -> Option<String> {
    let wanted = kernel.limits.memory_bytes?;
    let bound = kernel.kernel_pid.and_then(limits::bound_of);
    Some(match bound {
        Some(MemoryBound::Group(bytes)) => format!("at most {}", size(bytes)),
        Some(MemoryBound::AddressSpace(bytes)) => {
            format!("at most {} of address space", size(bytes))
        }
        None => format!("the limit of {} does not hold", size(wanted)),
    })
}

/// Tells the state, and since when it is so.
fn lasting(kernel: &KernelStatus) -> String {
    match (kernel.state, &kernel.running, kernel.idle_since) {
        ("busy", Some(cell), _) => {
            format!("busy: {} for {}", cell.text, print::age(cell.since))
        }
        ("idle", _, Some(since)) if !just_now(since) => format!("idle for {}", print::age(since)),
        _ => kernel.state.to_owned(),
    }
}

/// Whether something was so short a time ago that its age says nothing.
fn just_now(since: Timestamp) -> bool {
    Timestamp::now().as_second() - since.as_second() < 2
}

fn spec_text(spec: &SpecStatus) -> String {
    match spec {
        SpecStatus::Good => "kernelspec \"nb shared kernel\": installed".to_owned(),
        SpecStatus::Missing => {
            "kernelspec \"nb shared kernel\": not installed; next: nb serve".to_owned()
        }
        SpecStatus::Stale { why } => {
            format!("kernelspec \"nb shared kernel\": {why}; next: nb serve")
        }
    }
}
