//! Messages to users about a kernel: what happened, when, who did it, and what to do.

use std::path::Path;

use jiff::tz::TimeZone;

use super::target::{LiveKernel, Target};
use crate::hint::shell::quote;
use crate::lifecycle::death::{clock, fix_command};
use crate::project::jobs::Job;
use crate::project::{Ended, Session};
use crate::route::Ending;

/// Returns the ending for a notebook that has never had a kernel here.
pub(super) fn no_kernel(target: &Target) -> Ending {
    let text = format!(
        "{} has no shared kernel. Start one with: {}",
        target.key,
        target.open_command()
    );
    Ending::new("NoKernel", text)
}

/// Returns the ending for a kernel that was shut down.
pub(super) fn stopped(target: &Target) -> Ending {
    ending(target, "KernelStopped", "was shut down")
}

/// Returns the ending for a kernel that runs on another host, or that a later version of nb recorded.
pub(super) fn out_of_reach(target: &Target, session: &Session) -> Ending {
    let description = match session.host() {
        Some(host) => format!("runs on {}, which cannot be reached from here", host.name),
        None => "is of a kind that this nb does not know: a later version recorded it".to_owned(),
    };
    ending(target, "KernelElsewhere", &description)
}

/// Returns the ending for a kernel that exited unexpectedly and that only a person can replace.
pub(super) fn died(target: &Target, ended: Option<&Ended>) -> Ending {
    if ended.is_none_or(|ended| ended.job.is_none()) {
        return ending(target, "KernelDied", &death_and_loss(ended));
    }
    let text = format!(
        "The shared kernel of {} {}. Outputs until then are kept. Start it, and run again what had run: {}",
        target.key,
        death_and_loss(ended),
        fix_command(&target.notebook())
    );
    Ending::new("KernelDied", text)
}

/// Returns the ending for a kernel that exited unexpectedly and that the next cell replaces.
pub(super) fn died_until_next_cell(target: &Target, ended: Option<&Ended>) -> Ending {
    let text = format!(
        "The shared kernel of {} {}. The next cell that you run starts another{}",
        target.key,
        death_and_loss(ended),
        replay(&target.notebook(), ended).unwrap_or_else(|| ".".to_owned())
    );
    Ending::new("KernelDied", text)
}

/// Returns the log line for a front end that has ended its proxy by SIGTERM alone.
pub(super) fn not_restarted(target: &Target) -> String {
    format!(
        "SIGTERM came without a shutdown_request: a front end that restarts a kernel this way cannot be told \
         from one that ends it, so the shared kernel goes on with its variables. To restart it: nb restart {}",
        quote(&target.notebook())
    )
}

/// Returns the ending for a kernel whose sockets do not answer.
///
/// `pid` is that of a live kernel that `nb` started: only a restart creates its sockets again.
pub(super) fn unreachable(target: &Target, error: &std::io::Error, pid: Option<u32>) -> Ending {
    let name = "KernelUnreachable";
    let Some(pid) = pid else {
        return ending(target, name, &format!("cannot be reached: {error}"));
    };
    let text = format!(
        "The shared kernel of {} lives (pid {pid}), but its sockets are gone: {error}. \
         To have a new one, without the variables: nb restart {}",
        target.key,
        quote(&target.notebook())
    );
    Ending::new(name, text)
}

/// Returns the ending for a kernel that could not be started.
pub(super) fn not_started(target: &Target, error: &anyhow::Error) -> Ending {
    let text = format!(
        "The shared kernel of {} could not be started: {error:#}. Try: {}",
        target.key,
        target.open_command()
    );
    Ending::new("KernelNotStarted", text)
}

/// Returns the ending for requests to a kernel that was restarted, by whom if its end says so.
pub(super) fn replaced(target: &Target, ended: Option<&Ended>) -> Ending {
    let ended = ended.filter(|ended| ended.reason == "restarted");
    let how = ended.map_or_else(
        || "was restarted: its variables are gone".to_owned(),
        |ended| end_description(ended, &TimeZone::system()),
    );
    let text = format!(
        "The shared kernel of {} {how}. Run the cell again.",
        target.key
    );
    Ending::new("KernelRestarted", text)
}

/// Returns the ending for requests whose answer may be lost because of a panic in this proxy.
pub(super) fn fault() -> Ending {
    Ending::new(
        "ProxyFault",
        "nb-proxy had an internal fault and has lost track of this request. The kernel and its variables live; the cell may have run, or run still. Look at `nb status` and run it again. Please report the fault: .nb/proxy.log says where it was.",
    )
}

/// Returns the ending for requests that this proxy got before the front end named another notebook.
pub(super) fn renamed(target: &Target) -> Ending {
    let text = format!(
        "This notebook is {}, which has another kernel. Run the cell again.",
        target.key
    );
    Ending::new("KernelChanged", text)
}

/// Returns the ending if no session was found for the notebook that the front end names, or for its folder.
pub(super) fn no_session(error: &anyhow::Error) -> Ending {
    Ending::new("NoKernel", format!("{error:#}").replace('\n', ". "))
}

/// Returns the notice in the next cell that says that the kernel is not the one whose variables the client
/// knows.
///
/// `owner` is the session to which the previous kernel belonged.
pub(super) fn replacement_notice(
    target: &Target,
    kernel: &LiveKernel,
    owner: Option<&str>,
) -> String {
    if owner.is_some_and(|owner| owner != kernel.owner) {
        return if kernel.owner == target.key {
            format!("{} has a kernel of its own now", target.key)
        } else {
            format!("{} uses the kernel of {} now", target.key, kernel.owner)
        };
    }
    let previous = kernel.previous_end.as_ref();
    let previous = previous.filter(|ended| ended.generation < kernel.generation);
    format!(
        "The shared kernel of {} {}{}",
        target.key,
        previous.map_or_else(
            || "was replaced by a new one: its variables are gone".to_owned(),
            |ended| end_description(ended, &TimeZone::system())
        ),
        replay(&target.notebook(), previous).unwrap_or_default()
    )
}

/// Returns the notice in the next cell of a window that was reloaded while one of its cells ran: VS Code
/// restores a tab with unsaved changes as it was before the reload, and does not read the file.
pub(super) fn hand_over_notice(job: &Job) -> String {
    format!(
        "A cell of {} ran on while this window was away (job {}). Its outputs are written into the notebook's file. If this tab does not show them, it has unsaved changes: run File: Revert File to read the file again",
        job.notebook, job.id
    )
}

/// Returns the log line for a notebook that gets its own kernel but could share another notebook's.
pub(super) fn could_share(target: &Target, other: &Path) -> String {
    format!(
        "{} gets a kernel of its own; to use that of {} instead: nb open {} --kernel-of {}",
        target.key,
        other.display(),
        quote(&target.notebook()),
        quote(other)
    )
}

fn ending(target: &Target, name: &'static str, description: &str) -> Ending {
    let text = format!(
        "The shared kernel of {} {description}. Start it with: {}",
        target.key,
        target.open_command()
    );
    Ending::new(name, text)
}

/// Returns how a kernel ended, for the notice of the next one.
fn end_description(ended: &Ended, zone: &TimeZone) -> String {
    let at = clock(ended.at, zone);
    let by = ended
        .by
        .as_ref()
        .map(|name| format!(" by {name}"))
        .unwrap_or_default();
    match &*ended.reason {
        "restarted" => format!("was restarted at {at}{by}: its variables are gone"),
        "shut down" => {
            format!("was shut down at {at}{by} and started again: its variables are gone")
        }
        _ => format!(
            "{}; this is a new one: its variables are gone",
            death(ended, zone)
        ),
    }
}

fn death_and_loss(ended: Option<&Ended>) -> String {
    let death = ended.map_or_else(
        || "died".to_owned(),
        |ended| death(ended, &TimeZone::system()),
    );
    format!("{death}: its variables are gone")
}

/// Returns the command that runs an agent's job again, if the kernel's end interrupted one.
fn replay(notebook: &Path, ended: Option<&Ended>) -> Option<String> {
    ended?.job.as_ref()?;
    Some(format!(
        ". Outputs until then are kept; what had run is run again by: nb exec {} --replay",
        quote(notebook)
    ))
}

/// Returns when a kernel died, of what, and in which cell.
fn death(ended: &Ended, zone: &TimeZone) -> String {
    let during = ended.other.get("cell_of").and_then(|cell| cell.as_str());
    let job = ended.job.as_ref().map(|job| format!(" (job {job})"));
    let job = job.unwrap_or_default();
    let during = during.map_or_else(String::new, |cell| format!(" while {cell} ran{job}"));
    format!(
        "died at {} ({}){during}",
        clock(ended.at, zone),
        ended.reason
    )
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn ended(reason: &str, by: Option<&str>) -> Ended {
        let text = serde_json::json!({
            "at": "2026-01-02T14:05:00Z", "reason": reason, "generation": 1, "by": by,
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn the_end_of_a_kernel_has_its_time_cause_and_cell() {
        let text = |ended| end_description(&ended, &TimeZone::UTC);
        assert_eq!(
            text(ended("restarted", Some("claude"))),
            "was restarted at 14:05 on 2026-01-02 by claude: its variables are gone"
        );
        let mut killed = ended("its process ended", None);
        assert_eq!(
            text(killed.clone()),
            "died at 14:05 on 2026-01-02 (its process ended); this is a new one: its variables are gone"
        );
        let cell = "claude's cell 3f2c";
        killed.other.insert("cell_of".into(), cell.into());
        assert_eq!(
            text(killed),
            "died at 14:05 on 2026-01-02 (its process ended) while claude's cell 3f2c ran; \
             this is a new one: its variables are gone"
        );
    }

    #[test]
    fn an_interrupted_job_is_named_with_the_command_that_runs_it_again() {
        let mut killed = ended("SIGKILL", None);
        let notebook = Path::new("/p/my t.ipynb");
        assert_eq!(replay(notebook, Some(&killed)), None);
        assert_eq!(replay(notebook, None), None);
        killed.job = Some("7f3a9c21".to_owned());
        let cell = "ada's cell 3f2c";
        killed.other.insert("cell_of".into(), cell.into());
        assert_eq!(
            end_description(&killed, &TimeZone::UTC),
            "died at 14:05 on 2026-01-02 (SIGKILL) while ada's cell 3f2c ran (job 7f3a9c21); \
             this is a new one: its variables are gone"
        );
        let text = replay(notebook, Some(&killed)).unwrap();
        assert!(text.ends_with("nb exec '/p/my t.ipynb' --replay"), "{text}");
    }

    #[test]
    fn an_end_of_today_is_shown_without_the_date() {
        let now = Timestamp::now();
        assert_eq!(clock(now, &TimeZone::UTC).len(), "14:05".len());
    }
}
