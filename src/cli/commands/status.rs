//! `nb status`: what runs here, and who is joined.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::activity::company::{self, whose};
use crate::api::problem::{Problem, ProblemKind, causes};
use crate::cli::Context;
use crate::cli::commands::status_watch::Watch;
use crate::cli::commands::{Command, Group};
use crate::cli::render::print;
use crate::cli::render::sandbox as sandboxing;
use crate::kernel::process::limits::{self, MemoryBound};
use crate::kernel::shell::quote;
use crate::kernel::variables::ProcessVariables;
use crate::lifecycle::everywhere::{self, Left};
use crate::lifecycle::idle::span;
use crate::lifecycle::liveness::{Liveness, sandboxed};
use crate::lifecycle::open_error::OpenError;
use crate::lifecycle::serve::{self, Health, Level};
use crate::lifecycle::status::{SessionStatus, status};
use crate::lifecycle::{death, target};
use crate::notebook::size;
use crate::project::{self, Project};

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
            return Ok(self.everywhere().await);
        }
        let given = self
            .notebook
            .clone()
            .or_else(|| context.caller.notebook.clone());
        let named = target::named(given.as_deref(), &ProcessVariables);
        let about_one = named.is_some();
        if let Some(seconds) = self.watch {
            return self.watch(context, named, seconds).await;
        }
        let (project, statuses) = match named {
            Some(notebook) => {
                let target = context.target(Some(notebook)).await?;
                let mut status = status(&target.project, &target.key, target.session).await?;
                status.key = target.notebook_key;
                (target.project, vec![status])
            }
            None => {
                let project = project_at(context)?;
                let statuses = everywhere::of_project(&project).await?;
                let owners = statuses.iter();
                let mut kernels = owners.filter(|it| it.kernel_of.is_none());
                if let (Some(only), None) = (kernels.next(), kernels.next()) {
                    context.concerns(&project, &only.key);
                }
                (project, statuses)
            }
        };
        context.told_death.set(true);
        let spec = serve::health(&Level::User, &ProcessVariables)?;
        let alive = statuses.iter().any(|status| state(status).is_up());
        let _ = if self.json {
            let sessions: Vec<_> = statuses.iter().map(object).collect();
            context.answer(
                &json!({ "project": project.root(), "sessions": sessions, "spec": spec_object(&spec) }),
            )
        } else {
            statuses
                .iter()
                .try_for_each(|status| print::line(&text(status)))
                .and_then(|()| print::line(&spec_text(&spec)))
        };
        // Asked about one notebook, the exit code answers too.
        let code = if about_one && !alive { 6 } else { 0 };
        Ok(ExitCode::from(code))
    }
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
            None => (project_at(context)?, None),
        };
        let watch = Watch {
            project,
            only,
            every,
            json: self.json,
        };
        watch.run().await
    }

    /// Shows every kernel that runs.
    async fn everywhere(&self) -> ExitCode {
        let kernels = everywhere::everywhere().await;
        let up: Vec<_> = kernels
            .found
            .iter()
            .filter(|(_, status)| state(status).is_up() || status.abandoned)
            .collect();
        let unreadable = kernels.unreadable.iter().map(|(root, error)| {
            let why = causes(error);
            json!({ "project": root, "error": why })
        });
        if self.json {
            let kernels_up = up.iter().map(|(project, status)| {
                let mut object = object(status);
                object["project"] = json!(project.root());
                object
            });
            let left = kernels.left.iter().map(|left| {
                json!({
                    "project": left.root,
                    "path": left.kernel.notebook,
                    "state": "left",
                    "kernel_pid": left.process.pid,
                    "started_at": left.kernel.started_at,
                    "memory_bytes": left.process.memory_bytes(),
                })
            });
            let _ = print::json(&json!({
                "kernels": kernels_up.collect::<Vec<_>>(),
                "left": left.collect::<Vec<_>>(),
                "unreadable": unreadable.collect::<Vec<_>>(),
            }));
            return ExitCode::SUCCESS;
        }
        let mut told: Option<&Path> = None;
        let mut lines = Vec::new();
        for (project, status) in &up {
            if told.replace(project.root()) != Some(project.root()) {
                lines.push(project.root().display().to_string());
            }
            lines.extend(text(status).lines().map(|line| format!("  {line}")));
        }
        lines.extend(kernels.left.iter().map(left_text));
        let memory: u64 = up
            .iter()
            .filter_map(|(_, status)| status.memory_bytes)
            .sum();
        lines.push(match up.len() {
            0 => "no kernel runs".to_owned(),
            1 => format!("1 kernel, {}", size(memory)),
            count => format!("{count} kernels, {}", size(memory)),
        });
        let _ = print::line(&lines.join("\n"));
        for (_, error) in &kernels.unreadable {
            print::note(&format!("note: {}", causes(error)));
        }
        ExitCode::SUCCESS
    }
}

/// How often it is looked at most.
const LEAST: Duration = Duration::from_millis(100);

/// Says whether a kernel runs whose notebook was moved or deleted.
fn is_gone(status: &SessionStatus) -> bool {
    let runs = matches!(status.liveness, Liveness::Own(_) | Liveness::Foreign);
    runs && matches!(status.session.notebook.try_exists(), Ok(false))
}

/// Returns the project at or above the working directory.
fn project_at(context: &Context) -> Result<Project, Problem> {
    Project::find(&context.caller.here).ok_or_else(|| {
        Problem::new(
            ProblemKind::NoKernel,
            format!("no notebook is open in {}", context.caller.here.display()),
        )
        .hint("nb open NOTEBOOK.ipynb | nb status --all")
    })
}

/// Tells of a kernel whose project was deleted.
fn left_text(left: &Left) -> String {
    let pid = left.process.pid;
    let memory = left.process.memory_bytes().map(size);
    let memory = memory
        .map(|memory| format!(" · {memory}"))
        .unwrap_or_default();
    format!(
        "{}\n  its project is gone, its kernel runs · pid {pid}{memory}\n  to end it: kill {pid}",
        left.kernel.notebook.display()
    )
}

/// What a person calls the kernel's state.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(&'static str);

impl State {
    fn is_up(self) -> bool {
        matches!(
            self.0,
            "idle" | "busy" | "live" | "starting" | "restarting" | "elsewhere" | "unchecked"
        )
    }
}

fn state(status: &SessionStatus) -> State {
    use project::Status as Recorded;
    State(
        match (&status.liveness, &status.session.status, status.busy) {
            (_, Recorded::Stopped, _) => "stopped",
            (Liveness::OutOfReach, Recorded::Died, _) => "died",
            (Liveness::OutOfReach, ..) if sandboxed(status.session.transport).is_some() => {
                "unchecked"
            }
            (Liveness::OutOfReach, ..) => "elsewhere",
            (_, Recorded::Starting | Recorded::Restarting, _) if status.abandoned => "half started",
            (_, Recorded::Starting, _) => "starting",
            (_, Recorded::Restarting, _) => "restarting",
            (Liveness::Dead, ..) | (_, Recorded::Died, _) => "died",
            (_, _, Some(true)) => "busy",
            (_, _, Some(false)) => "idle",
            (_, _, None) => "live",
        },
    )
}

fn text(status: &SessionStatus) -> String {
    let mut lines = vec![kernel_text(status)];
    if status.kernel_of.is_some() {
        return lines.concat();
    }
    for joined in &status.joined {
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
pub(crate) fn kernel_text(status: &SessionStatus) -> String {
    let session = &status.session;
    if let Some(owner) = &status.kernel_of {
        let state = state(status).0;
        return format!("{}: shares the kernel of {owner} ({state})", status.key);
    }
    let mut parts = vec![lasting(status)];
    if let Some(spec) = &session.kernelspec {
        parts.push(spec.display_name.clone());
    }
    if matches!(status.liveness, Liveness::Own(_) | Liveness::Foreign) {
        parts.extend(pid(status).map(|pid| format!("pid {pid}")));
        parts.extend(status.memory_bytes.map(size));
        parts.extend(bound(status));
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
        match state(status).0 {
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
    if is_gone(status) {
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
    if matches!(state(status).0, "elsewhere" | "unchecked") {
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
fn bound(status: &SessionStatus) -> Option<String> {
    let wanted = status.session.settings.limits.memory_bytes?;
    let bound = pid(status).and_then(limits::bound_of);
    Some(match bound {
        Some(MemoryBound::Group(bytes)) => format!("at most {}", size(bytes)),
        Some(MemoryBound::AddressSpace(bytes)) => {
            format!("at most {} of address space", size(bytes))
        }
        None => format!("the limit of {} does not hold", size(wanted)),
    })
}

/// Tells the state, and since when it is so.
fn lasting(status: &SessionStatus) -> String {
    let state = state(status);
    match (state.0, &status.running, status.idle_since) {
        ("busy", Some(cell), _) => {
            format!("busy: {} for {}", whose(cell), print::age(cell.since))
        }
        ("idle", _, Some(since)) if !just_now(since) => format!("idle for {}", print::age(since)),
        _ => state.0.to_owned(),
    }
}

/// Whether something was so short a time ago that its age says nothing.
fn just_now(since: Timestamp) -> bool {
    Timestamp::now().as_second() - since.as_second() < 2
}

/// Returns the process of the kernel that lives, as far as that is known.
fn pid(status: &SessionStatus) -> Option<u32> {
    match &status.liveness {
        Liveness::Own(process) => Some(process.pid),
        Liveness::Foreign | Liveness::OutOfReach => status.session.pid(),
        Liveness::Dead => None,
    }
}

pub(crate) fn object(status: &SessionStatus) -> Value {
    let session = &status.session;
    json!({
        "notebook": status.key,
        "path": session.notebook,
        "file_gone": is_gone(status),
        "state": state(status).0,
        "recorded": session.status.as_str(),
        "running": status.running.as_ref().filter(|_| status.busy == Some(true)).map(|cell| json!({
            "by": company::name(cell.by.as_deref()),
            "cell": cell.cell,
            "since": cell.since,
            "text": whose(cell),
        })),
        "idle_since": status.idle_since,
        "kernel_of": status.kernel_of,
        "shared_by": status.shared_by,
        "kernel": session.kernelspec.as_ref().map(|spec| &spec.name),
        "kernel_pid": pid(status),
        "kernel_generation": session.generation,
        "connection_file": session.connection_file,
        "transport": session.transport.as_str(),
        "memory_bytes": status.memory_bytes,
        "limits": session.settings.limits,
        "idle_timeout": session.settings.idle_timeout,
        "owned": session.is_owned(),
        "sandbox": session.sandbox().map(sandboxing::object),
        "started_at": session.started_at,
        "ended": session.ended,
        "joined": status.joined,
    })
}

fn spec_text(health: &Health) -> String {
    match health {
        Health::Good => "kernelspec \"nb shared kernel\": installed".to_owned(),
        Health::Missing => {
            "kernelspec \"nb shared kernel\": not installed; next: nb serve".to_owned()
        }
        Health::Stale(why) => format!("kernelspec \"nb shared kernel\": {why}; next: nb serve"),
    }
}

fn spec_object(health: &Health) -> Value {
    match health {
        Health::Good => json!({ "state": "good" }),
        Health::Missing => json!({ "state": "missing" }),
        Health::Stale(why) => json!({ "state": "stale", "why": why }),
    }
}
