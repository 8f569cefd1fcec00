//! What people read of a kernel: what happened, when, who did it, and what to do.

use std::path::Path;

use jiff::tz::TimeZone;

use super::target::{LiveKernel, Target};
use crate::kernel::shell::quote;
use crate::lifecycle::death::{clock, mend};
use crate::project::jobs::Job;
use crate::project::{Ended, Session};
use crate::route::Ending;

/// The notebook has never had a kernel here.
pub(super) fn no_kernel(target: &Target) -> Ending {
    let text = format!(
        "{} has no shared kernel. Start one with: {}",
        target.key,
        target.mend()
    );
    Ending {
        name: "NoKernel",
        text,
    }
}

/// Its user ended it.
pub(super) fn stopped(target: &Target) -> Ending {
    ending(target, "KernelStopped", "was shut down")
}

/// Its kernel runs on another host, or a later version recorded it.
pub(super) fn out_of_reach(target: &Target, session: &Session) -> Ending {
    let what = match session.host() {
        Some(host) => format!("runs on {}, which cannot be reached from here", host.name),
        None => "is of a kind that this nb does not know: a later version recorded it".to_owned(),
    };
    ending(target, "KernelElsewhere", &what)
}

/// Its kernel exited unexpectedly, and only its user may have another started.
pub(super) fn died(target: &Target, ended: Option<&Ended>) -> Ending {
    if ended.is_none_or(|ended| ended.job.is_none()) {
        return ending(target, "KernelDied", &gone(ended));
    }
    let text = format!(
        "The shared kernel of {} {}. Outputs until then are kept. Start it, and run again what had run: {}",
        target.key,
        gone(ended),
        mend(&target.notebook())
    );
    Ending {
        name: "KernelDied",
        text,
    }
}

/// Its kernel exited unexpectedly, and the next cell starts another.
pub(super) fn died_for_now(target: &Target, ended: Option<&Ended>) -> Ending {
    let text = format!(
        "The shared kernel of {} {}. The next cell that you run starts another{}",
        target.key,
        gone(ended),
        replay(&target.notebook(), ended).unwrap_or_else(|| ".".to_owned())
    );
    Ending {
        name: "KernelDied",
        text,
    }
}

/// A front end has ended its proxy by SIGTERM alone.
pub(super) fn not_restarted(target: &Target) -> String {
    format!(
        "SIGTERM came without a shutdown_request: a front end that restarts a kernel this way cannot be told \
         from one that ends it, so the shared kernel goes on with its variables. To restart it: nb restart {}",
        quote(&target.notebook())
    )
}

/// Nothing answers on its sockets.
///
/// `pid` is that of a kernel of ours that lives: only a restart makes its sockets anew.
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
    Ending { name, text }
}

/// It could not be started.
pub(super) fn not_started(target: &Target, error: &anyhow::Error) -> Ending {
    let text = format!(
        "The shared kernel of {} could not be started: {error:#}. Try: {}",
        target.key,
        target.mend()
    );
    Ending {
        name: "KernelNotStarted",
        text,
    }
}

/// Another kernel has taken its place.
pub(super) fn replaced(target: &Target) -> Ending {
    let text = format!(
        "The shared kernel of {} was restarted: its variables are gone. Run the cell again.",
        target.key
    );
    Ending {
        name: "KernelRestarted",
        text,
    }
}

/// This proxy had a panic: what was on its way may be lost.
pub(super) fn fault() -> Ending {
    Ending {
        name: "ProxyFault",
        text: "nb-proxy had an internal fault and has lost track of this request. The kernel and its variables live; the cell may have run, or run still. Look at `nb status` and run it again. Please report the fault: .nb/proxy.log says where it was.".to_owned(),
    }
}

/// The front end's notebook is another than the one that was taken for it.
pub(super) fn renamed(target: &Target) -> Ending {
    let text = format!(
        "This notebook is {}, which has another kernel. Run the cell again.",
        target.key
    );
    Ending {
        name: "KernelChanged",
        text,
    }
}

/// No kernel can be told for what the front end has opened.
pub(super) fn nothing(error: &anyhow::Error) -> Ending {
    Ending {
        name: "NoKernel",
        text: format!("{error:#}").replace('\n', ". "),
    }
}

/// What the asker of the next cell reads of a kernel that is not the one whose variables it knows.
///
/// `owner` is the session that the kernel before it belonged to.
pub(super) fn notice(target: &Target, kernel: &LiveKernel, owner: Option<&str>) -> String {
    if owner.is_some_and(|owner| owner != kernel.owner) {
        return if kernel.owner == target.key {
            format!("{} has a kernel of its own now", target.key)
        } else {
            format!("{} uses the kernel of {} now", target.key, kernel.owner)
        };
    }
    let told = kernel
        .before
        .as_ref()
        .filter(|ended| ended.generation < kernel.generation);
    format!(
        "The shared kernel of {} {}{}",
        target.key,
        told.map_or_else(
            || "was replaced by a new one: its variables are gone".to_owned(),
            |ended| fate(ended, &TimeZone::system())
        ),
        replay(&target.notebook(), told).unwrap_or_default()
    )
}

/// The notice in the next cell of a window that was reloaded while one of its cells ran: VS Code restores
/// a tab with unsaved changes as it was before the reload, and does not read the file.
pub(super) fn handed_over(job: &Job) -> String {
    format!(
        "A cell of {} ran on while this window was away (job {}). Its outputs are in the notebook's file. If this tab does not show them, it has unsaved changes: run File: Revert File to read the file again",
        job.notebook, job.id
    )
}

/// What is said of another's kernel to somebody who has just got one of his own.
pub(super) fn could_share(target: &Target, other: &Path) -> String {
    format!(
        "{} gets a kernel of its own; to use that of {} instead: nb open {} --kernel-of {}",
        target.key,
        other.display(),
        quote(&target.notebook()),
        quote(other)
    )
}

fn ending(target: &Target, name: &'static str, what: &str) -> Ending {
    let text = format!(
        "The shared kernel of {} {what}. Start it with: {}",
        target.key,
        target.mend()
    );
    Ending { name, text }
}

/// How a kernel ended and what that means for who comes to the next one.
fn fate(ended: &Ended, zone: &TimeZone) -> String {
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

fn gone(ended: Option<&Ended>) -> String {
    let death = ended.map_or_else(
        || "died".to_owned(),
        |ended| death(ended, &TimeZone::system()),
    );
    format!("{death}: its variables are gone")
}

/// Where an agent's job was running: what brings its variables back, once there is a kernel.
fn replay(notebook: &Path, ended: Option<&Ended>) -> Option<String> {
    ended?.job.as_ref()?;
    Some(format!(
        ". Outputs until then are kept; what had run is run again by: nb exec {} --replay",
        quote(notebook)
    ))
}

/// When it died, of what and in whose cell.
fn death(ended: &Ended, zone: &TimeZone) -> String {
    let during = ended.other.get("cell_of").and_then(|words| words.as_str());
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
    fn an_end_says_when_of_what_and_in_whose_cell() {
        let told = |ended| fate(&ended, &TimeZone::UTC);
        assert_eq!(
            told(ended("restarted", Some("claude"))),
            "was restarted at 14:05 on 2026-01-02 by claude: its variables are gone"
        );
        let mut killed = ended("its process ended", None);
        assert_eq!(
            told(killed.clone()),
            "died at 14:05 on 2026-01-02 (its process ended); this is a new one: its variables are gone"
        );
        let cell = "claude's cell 3f2c";
        killed.other.insert("cell_of".into(), cell.into());
        assert_eq!(
            told(killed),
            "died at 14:05 on 2026-01-02 (its process ended) while claude's cell 3f2c ran; \
             this is a new one: its variables are gone"
        );
    }

    #[test]
    fn where_a_job_was_running_it_is_named_with_what_runs_it_again() {
        let mut killed = ended("SIGKILL", None);
        let notebook = Path::new("/p/my t.ipynb");
        assert_eq!(replay(notebook, Some(&killed)), None);
        assert_eq!(replay(notebook, None), None);
        killed.job = Some("7f3a9c21".to_owned());
        let cell = "ada's cell 3f2c";
        killed.other.insert("cell_of".into(), cell.into());
        assert_eq!(
            fate(&killed, &TimeZone::UTC),
            "died at 14:05 on 2026-01-02 (SIGKILL) while ada's cell 3f2c ran (job 7f3a9c21); \
             this is a new one: its variables are gone"
        );
        let told = replay(notebook, Some(&killed)).unwrap();
        assert!(told.ends_with("nb exec '/p/my t.ipynb' --replay"), "{told}");
    }

    #[test]
    fn an_end_of_today_needs_no_date() {
        let now = Timestamp::now();
        assert_eq!(clock(now, &TimeZone::UTC).len(), "14:05".len());
    }
}
