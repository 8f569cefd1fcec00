//! `nb status`: what runs here, and who is joined.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::fault::{Fault, Kind};
use super::{Context, print};
use crate::kernel::paths::ProcessVariables;
use crate::kernel::python::quote;
use crate::ops::life::Life;
use crate::ops::serve::{self, Health, Level};
use crate::ops::status::{SessionStatus, status};
use crate::ops::target;
use crate::project::{self, Project};

/// Show the kernels of this project, who is joined, and whether front ends find them
///
/// Asked about one notebook, it ends with 6 where no kernel runs for it.
#[derive(Args, Debug)]
pub(super) struct Status {
    /// The notebook; without it, all of the project
    notebook: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Status {
    /// Runs the command.
    pub(super) async fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        let given = self.notebook.clone().or_else(|| context.notebook.clone());
        let named = target::named(given.as_deref(), &ProcessVariables);
        let about_one = named.is_some();
        let (project, sessions) = match named {
            Some(notebook) => {
                let target = context.target(Some(notebook), "nb status").await?;
                (target.project, vec![(target.key, target.session)])
            }
            None => {
                let project = Project::find(&context.here).ok_or_else(|| {
                    Fault::new(
                        Kind::NoKernel,
                        format!("no notebook is open in {}", context.here.display()),
                    )
                    .hint("nb open NOTEBOOK.ipynb")
                })?;
                let sessions = project.state()?.all();
                (project, sessions)
            }
        };
        let mut statuses = Vec::new();
        for (key, session) in sessions {
            statuses.push(status(&project, &key, session).await?);
        }
        let spec = serve::health(&Level::User, &ProcessVariables)?;
        let alive = statuses.iter().any(|status| state(status).is_up());
        let _ = if self.json {
            let sessions: Vec<_> = statuses.iter().map(object).collect();
            print::json(
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

/// What a person calls the kernel's state.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(&'static str);

impl State {
    fn is_up(self) -> bool {
        matches!(self.0, "idle" | "busy" | "live" | "starting" | "restarting")
    }
}

fn state(status: &SessionStatus) -> State {
    use project::Status as Recorded;
    State(match (&status.life, &status.session.status, status.busy) {
        (Life::Elsewhere, ..) => "elsewhere",
        (_, Recorded::Stopped, _) => "stopped",
        (_, Recorded::Starting | Recorded::Restarting, _) if status.abandoned => "half started",
        (_, Recorded::Starting, _) => "starting",
        (_, Recorded::Restarting, _) => "restarting",
        (Life::Gone, ..) | (_, Recorded::Died, _) => "died",
        (_, _, Some(true)) => "busy",
        (_, _, Some(false)) => "idle",
        (_, _, None) => "live",
    })
}

fn text(status: &SessionStatus) -> String {
    let session = &status.session;
    let mut parts = vec![state(status).0.to_owned()];
    if let Some(spec) = &session.kernelspec {
        parts.push(spec.display_name.clone());
    }
    if matches!(status.life, Life::Own(_) | Life::Foreign) {
        parts.extend(pid(status).map(|pid| format!("pid {pid}")));
        parts.extend(status.memory_bytes.map(print::bytes));
        // Until a kernel is ready, the record speaks of the one before.
        if session.status == project::Status::Live {
            parts.push(format!("generation {}", session.generation));
            let since = session.started_at;
            parts.extend(since.map(|at| format!("since {}", print::moment(at))));
        }
    }
    if !session.owned {
        parts.push("started by another program".to_owned());
    }
    let mut lines = vec![format!("{}: {}", status.key, parts.join(" · "))];
    if let (Some(ended), "died" | "stopped") = (&session.ended, state(status).0) {
        let by = ended
            .by
            .as_ref()
            .map(|by| format!(" by {by}"))
            .unwrap_or_default();
        lines.push(format!(
            "  {}{by} at {}; next: nb open {}",
            ended.reason,
            print::moment(ended.at),
            quote(&session.notebook)
        ));
    }
    if status.abandoned {
        lines.push(format!(
            "  whoever started it was ended before it was ready; next: nb open {}",
            quote(&session.notebook)
        ));
    }
    if state(status).0 == "elsewhere" {
        lines.push(format!(
            "  runs on {}; nothing can be said about it from here",
            session.place.host
        ));
    }
    for joined in &status.joined {
        let clients = if joined.clients == 1 {
            "1 client"
        } else {
            &format!("{} clients", joined.clients)
        };
        lines.push(format!(
            "  joined: {} since {} ({clients}, pid {})",
            joined.front_end,
            print::moment(joined.since),
            joined.pid
        ));
    }
    lines.join("\n")
}

/// Returns the process of the kernel that lives, as far as that is known.
fn pid(status: &SessionStatus) -> Option<u32> {
    match &status.life {
        Life::Own(process) => Some(process.pid),
        Life::Foreign | Life::Elsewhere => status.session.pid,
        Life::Gone => None,
    }
}

fn object(status: &SessionStatus) -> Value {
    let session = &status.session;
    json!({
        "notebook": status.key,
        "path": session.notebook,
        "state": state(status).0,
        "kernel": session.kernelspec.as_ref().map(|spec| &spec.name),
        "kernel_pid": pid(status),
        "kernel_generation": session.generation,
        "connection_file": session.connection_file,
        "transport": session.transport.as_str(),
        "memory_bytes": status.memory_bytes,
        "owned": session.owned,
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
