//! A kernel's status, and what was done to it, as people read it.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::{count, sandbox as sandboxing};
use crate::api::time::{age, moment, took};
use crate::api::{
    InterruptAnswer, InterruptJobAnswer, KernelStatus, RestartAnswer, ServerKernelStatus,
    ShutdownAnswer,
};
use crate::hint;
use crate::hint::{Hint, Joint, Verb, nb};
use crate::kernel::process::limits::{self, MemoryBound};
use crate::lifecycle::death;
use crate::lifecycle::idle::span;
use crate::lifecycle::liveness::Liveness;
use crate::lifecycle::open_error::OpenError;
use crate::notebook::size;
use crate::project;

/// Returns the lines about a kernel, with those about who has joined it.
pub fn lines(kernel: &KernelStatus) -> Vec<Hint> {
    let mut lines = kernel_lines(kernel);
    if kernel.kernel_of.is_some() {
        return lines;
    }
    for joined in &kernel.joined {
        let joined = format!(
            "  joined: {} since {} ({}, pid {})",
            joined.front_end,
            moment(joined.since),
            count(joined.clients, "client"),
            joined.pid
        );
        lines.push(joined.into());
    }
    lines
}

/// Returns the line about a kernel that was interrupted.
pub fn interrupted(answer: &InterruptAnswer) -> Hint {
    let notebook = &answer.notebook;
    let goes_on = hint![" still runs · next: ", nb(Verb::Restart)];
    match &answer.job {
        Some(job) if answer.goes_on => {
            let text = format!("{notebook}: job {job} interrupted, and");
            return hint![text, goes_on];
        }
        Some(job) => return format!("{notebook}: job {job} interrupted").into(),
        None if !answer.interrupted => return format!("{notebook}: nothing runs").into(),
        None => {}
    }
    let mut text = format!("{notebook}: interrupted (by {})", answer.mode);
    if let Some(stopped) = &answer.stopped {
        text += &format!(" · {} ended", stopped.text);
    }
    match &answer.running {
        Some(it) if answer.goes_on => {
            text += &format!(" · {}", it.text);
            return hint![text, goes_on];
        }
        Some(it) => text += &format!(" · {} runs now", it.text),
        None => {}
    }
    text.into()
}

/// Returns the line about a job that was interrupted.
pub fn interrupted_job(answer: &InterruptJobAnswer) -> Hint {
    let job = &answer.job;
    let wait = nb(Verb::Wait).job(job);
    match answer.over {
        true => hint![format!("job {job}: ended · "), wait],
        false => hint![
            format!("job {job}: interrupted, and still runs · next: "),
            wait,
            Joint::Or,
            nb(Verb::Restart)
        ],
    }
}

/// Returns the line about a kernel that was restarted.
pub fn restarted(answer: &RestartAnswer) -> String {
    let pid = answer.kernel_pid.map(|pid| format!(", pid {pid}"));
    format!(
        "{}: restarted in {} (generation {}{}); its variables are gone",
        answer.notebook,
        took(Duration::from_millis(answer.took_ms)),
        answer.kernel_generation,
        pid.unwrap_or_default()
    )
}

/// Returns the line about a kernel that was shut down.
pub fn shut_down(answer: &ShutdownAnswer) -> String {
    let goes_on = match answer.was_running {
        true => ", which goes on",
        false => "",
    };
    let outcome = match (&answer.let_go_of, answer.was_running, answer.is_owned) {
        (Some(owner), ..) => format!("let go of the kernel of {owner}{goes_on}"),
        (None, true, _) if answer.goes_on_there => "let go of its kernel".to_owned(),
        (None, true, _) => {
            let shared = match answer.shared_with.as_slice() {
                [] => String::new(),
                others => format!("; it was shared with {}", others.join(", ")),
            };
            let took = took(Duration::from_millis(answer.took_ms));
            format!("its kernel was shut down in {took}{shared}")
        }
        (None, false, _) if answer.goes_on_there => "no connection was open".to_owned(),
        (None, false, true) => "no kernel was running".to_owned(),
        (None, false, false) => {
            "let go; its kernel was started by another program and goes on".to_owned()
        }
    };
    format!("{}: {outcome}", answer.notebook)
}

/// Returns the lines about a kernel, without those about who has joined it.
pub(crate) fn kernel_lines(kernel: &KernelStatus) -> Vec<Hint> {
    let status = &kernel.known;
    let session = &status.session;
    if let Some(owner) = &status.kernel_of {
        let state = kernel.state;
        let text = format!("{}: shares the kernel of {owner} ({state})", status.key);
        return vec![text.into()];
    }
    let mut parts = vec![state_text(kernel)];
    if let Some(spec) = &session.kernelspec {
        parts.push(spec.display_name.clone());
    }
    if matches!(status.liveness, Liveness::Own(_) | Liveness::Foreign) {
        let pid = kernel.kernel_pid.filter(|_| kernel.remote.is_none());
        parts.extend(pid.map(|pid| format!("pid {pid}")));
        parts.extend(status.memory_bytes.map(size));
        parts.extend(memory_limit(kernel));
        let idle = session.settings.idle_timeout.map(Duration::from_secs);
        parts.extend(idle.map(|idle| format!("ends after {} without use", span(idle))));
        // Until a kernel is ready, the record describes the kernel before it.
        if session.status == project::Status::Live {
            parts.push(format!("generation {}", session.generation));
            let since = session.started_at;
            parts.extend(since.map(|at| format!("since {}", moment(at))));
        }
    }
    if let Some(remote) = &kernel.remote {
        parts.push(on_server(remote));
    }
    if session.is_attached() {
        parts.push("started by another program".to_owned());
    }
    let notebook = &*session.notebook;
    let open = || nb(Verb::Open).notebook(notebook);
    let mut lines = vec![Hint::from(format!("{}: {}", status.key, parts.join(" · ")))];
    if let Some(ended) = &session.ended {
        match kernel.state {
            "died" => {
                let text = death::description(&status.key, ended);
                let fix = death::fix_command(notebook);
                lines.push(hint![format!("  {text} next: "), fix]);
                let written = ended.lines.iter();
                lines.extend(written.map(|line| Hint::from(format!("  | {line}"))));
            }
            "stopped" => {
                let by = ended.by.as_ref().map(|by| format!(" by {by}"));
                let why = ended.other.get("because").and_then(Value::as_str);
                let why = why.map(|why| format!(", since {why},"));
                let text = format!(
                    "  {}{}{} at {}; next: ",
                    ended.reason,
                    by.unwrap_or_default(),
                    why.unwrap_or_default(),
                    moment(ended.at),
                );
                lines.push(hint![text, open()]);
            }
            _ => {}
        }
    }
    if kernel.file_gone {
        lines.push(hint![
            "  its file is gone, and its kernel runs on; if it was moved: ",
            nb(Verb::Mv).word(notebook).word("NEW.ipynb"),
            "; else: ",
            nb(Verb::Shutdown).notebook(notebook)
        ]);
    }
    if status.abandoned {
        lines.push(hint![
            "  the process that started it was ended before it was ready; next: ",
            open()
        ]);
    }
    if let Liveness::Own(process) = &status.liveness
        && let Some(why) = OpenError::process_stopped(session, process)
    {
        lines.push(format!("  {why}").into());
    }
    if matches!(kernel.state, "elsewhere" | "unchecked") {
        let why = OpenError::out_of_reach(session);
        lines.push(format!("  {why}").into());
    }
    if let Some(sandbox) = session.sandbox() {
        let sandbox = sandboxing::text(sandbox, Path::new(""));
        lines.push(format!("  {sandbox}").into());
    }
    if !status.shared_by.is_empty() {
        let others = status.shared_by.join(", ");
        lines.push(format!("  shared by: {others}").into());
    }
    lines.extend(
        kernel
            .waits
            .iter()
            .map(|it| Hint::from(format!("  waits: {}", it.text))),
    );
    lines
}

/// Describes the connection to a kernel on a server.
fn on_server(remote: &ServerKernelStatus) -> String {
    let since = remote
        .since
        .map(|since| format!(" since {}", moment(since)));
    let latency = remote.latency_ms.map(|ms| format!(", {ms} ms away"));
    let problem = remote.problem.as_ref().map(|why| format!(": {why}"));
    format!(
        "on {}, {}{}{}{}",
        remote.server,
        remote.state.as_str(),
        since.unwrap_or_default(),
        latency.unwrap_or_default(),
        problem.unwrap_or_default()
    )
}

/// Describes the kernel's memory limit, if it has one.
fn memory_limit(kernel: &KernelStatus) -> Option<String> {
    let limit = kernel.limits.memory_bytes?;
    let memory_limit = kernel.kernel_pid.and_then(limits::bound_of);
    Some(match memory_limit {
        Some(MemoryBound::Group(bytes)) => format!("at most {}", size(bytes)),
        Some(MemoryBound::AddressSpace(bytes)) => {
            format!("at most {} of address space", size(bytes))
        }
        None => format!("the limit of {} does not hold", size(limit)),
    })
}

/// Describes the kernel's state and how long it has lasted.
fn state_text(kernel: &KernelStatus) -> String {
    match (kernel.state, &kernel.running, kernel.idle_since) {
        ("busy", Some(cell), _) => {
            let question = cell.prompt.as_deref();
            let question = question.map(|prompt| format!(", asks {:?}", prompt.trim()));
            let (question, age) = (question.unwrap_or_default(), age(cell.since));
            format!("busy: {} for {age}{question}", cell.text)
        }
        ("idle", _, Some(since)) if !is_recent(since) => format!("idle for {}", age(since)),
        _ => kernel.state.to_owned(),
    }
}

/// Says whether a moment is too recent for its age to be of interest.
fn is_recent(since: Timestamp) -> bool {
    Timestamp::now().as_second() - since.as_second() < 2
}
