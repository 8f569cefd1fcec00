//! `nb status --watch`: the same again and again, with what has passed each proxy.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::KernelStatus;
use crate::api::problem::Problem;
use crate::cli::commands::status;
use crate::cli::render::harmless::{Kind, harmless};
use crate::cli::render::{columns, print};
use crate::cli::terminal::CtrlC;
use crate::lifecycle::everywhere;
use crate::lifecycle::status::{SessionStatus, glance, status};
use crate::notebook::size;
use crate::project::joined::Joined;
use crate::project::{Project, StateError};

/// What is looked at.
pub(crate) struct Watch {
    pub(crate) project: Project,
    /// The one session that is meant, and the name of the notebook that was asked for.
    pub(crate) only: Option<(String, String)>,
    pub(crate) every: Duration,
    pub(crate) json: bool,
}

/// How often a kernel is asked whether it is busy: between, the journal tells. An answer is iopub
/// traffic of its own, which everybody hears.
const ASK: Duration = Duration::from_secs(10);

/// How often one is that runs something of which the journal does not know.
const ASK_AGAIN: Duration = Duration::from_secs(3);

impl Watch {
    /// Looks until Ctrl-C.
    pub(crate) async fn run(self) -> Result<ExitCode, Problem> {
        let ctrl_c = CtrlC::listen().map_err(|error| Problem::failed("wait for Ctrl-C", &error))?;
        let mut screen = Screen::default();
        let mut asked = None;
        let mut unknown: Vec<PathBuf> = Vec::new();
        loop {
            let patience = if unknown.is_empty() { ASK } else { ASK_AGAIN };
            let asks = asked.is_none_or(|at: Instant| at.elapsed() >= patience);
            let looked = tokio::select! {
                looked = self.look(asks) => looked,
                () = ctrl_c.pressed() => return Ok(ExitCode::SUCCESS),
            };
            let mut statuses = looked.map_err(|error| Problem::failed("look", &error))?;
            if asks {
                asked = Some(Instant::now());
                let nobodys = statuses
                    .iter()
                    .filter(|it| it.busy == Some(true) && it.running.is_none());
                unknown = nobodys
                    .map(|it| it.session.connection_file.clone())
                    .collect();
            } else {
                for it in &mut statuses {
                    if it.busy == Some(false) && unknown.contains(&it.session.connection_file) {
                        it.busy = Some(true);
                    }
                }
            }
            let shown = match self.json {
                true => print::json(&self.object(&statuses)),
                false => screen.show(&self.lines(&statuses)),
            };
            if shown.is_err() {
                return Ok(ExitCode::FAILURE);
            }
            tokio::select! {
                () = tokio::time::sleep(self.every) => {}
                () = ctrl_c.pressed() => return Ok(ExitCode::SUCCESS),
            }
        }
    }

    async fn look(&self, asks: bool) -> Result<Vec<SessionStatus>, StateError> {
        let Some((key, name)) = &self.only else {
            return match asks {
                true => everywhere::of_project(&self.project).await,
                false => everywhere::glance(&self.project).await,
            };
        };
        let Some(session) = self.project.state()?.session(key) else {
            return Ok(Vec::new());
        };
        let found = match asks {
            true => status(&self.project, key, session).await?,
            false => glance(&self.project, key, session).await?,
        };
        Ok(vec![SessionStatus {
            key: name.clone(),
            ..found
        }])
    }

    fn object(&self, statuses: &[SessionStatus]) -> Value {
        json!({
            "at": Timestamp::now(),
            "project": self.project.root(),
            "sessions": statuses.iter().cloned().map(KernelStatus::of).collect::<Vec<_>>(),
        })
    }

    fn lines(&self, statuses: &[SessionStatus]) -> Vec<String> {
        let now = print::moment(Timestamp::now());
        let mut lines = vec![format!("{now} · {}", self.project.root().display())];
        if statuses.is_empty() {
            lines.push("no notebook is open here".to_owned());
        }
        for it in statuses {
            lines.extend(
                status::kernel_text(&KernelStatus::of(it.clone()))
                    .lines()
                    .map(str::to_owned),
            );
            if it.kernel_of.is_some() {
                // The front ends are shown with the kernel's own notebook.
                continue;
            }
            if it.joined.is_empty() {
                lines.push("  no front end is connected".to_owned());
            }
            lines.extend(it.joined.iter().map(proxy_line));
        }
        lines
    }
}

/// Returns what has passed a proxy, and what waits in it.
fn proxy_line(joined: &Joined) -> String {
    let mut parts = vec![format!("  {} · pid {}", joined.front_end, joined.pid)];
    parts.push(print::count(joined.clients, "client"));
    let Some(it) = &joined.counters else {
        return parts.join(" · ");
    };
    let passed = it.from_clients.total().messages + it.to_clients.total().messages;
    let waiting = it.held.bytes + it.queued_bytes.to_kernel + it.queued_bytes.to_clients;
    parts.push(format!("{passed} messages passed"));
    let amount = |bytes: u64| (bytes > 0).then(|| size(bytes));
    let number = |count: u64| (count > 0).then(|| count.to_string());
    for (amount, what) in [
        (number(it.outstanding), "unanswered"),
        (amount(waiting), "waiting"),
        (amount(it.spilled_bytes), "on disk"),
        (number(it.lost), "lost"),
        (number(it.cut), "connections cut"),
        (
            number(it.refused.messages() + it.refused.connections),
            "refused",
        ),
    ] {
        parts.extend(amount.map(|amount| format!("{amount} {what}")));
    }
    parts.join(" · ")
}

/// What was shown last, to be drawn over; where no terminal is, one block follows the other.
#[derive(Default)]
struct Screen {
    drawn: usize,
    begun: bool,
}

impl Screen {
    fn show(&mut self, lines: &[String]) -> io::Result<()> {
        if !io::stdout().is_terminal() {
            let gap = if std::mem::replace(&mut self.begun, true) {
                "\n"
            } else {
                ""
            };
            return print::line(&format!("{gap}{}", lines.join("\n")));
        }
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
        let rows = size.map_or(0, |size| usize::from(size.ws_row));
        let frame = frame(lines, self.drawn, columns::of_terminal(), rows);
        self.drawn = frame.matches('\n').count();
        print::drawn(&frame)
    }
}

/// Returns what draws these lines over the last ones, no wider and no higher than the terminal.
fn frame(lines: &[String], drawn: usize, width: Option<usize>, rows: usize) -> String {
    let room = if rows > 1 { rows - 1 } else { lines.len() };
    let back = if drawn > 0 {
        format!("\x1b[{drawn}F")
    } else {
        String::new()
    };
    let mut frame = format!("{back}\x1b[J");
    for line in lines.iter().take(room) {
        let line = &harmless(line, Kind::Text);
        match width {
            Some(width) => frame.push_str(&columns::cut(line, width)),
            None => frame.push_str(line),
        }
        frame.push('\n');
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_drawn_over_the_last_one_and_fits() {
        let lines: Vec<_> = ["one", "a long line", "three"].map(str::to_owned).into();
        assert_eq!(frame(&lines, 0, None, 0), "\x1b[Jone\na long line\nthree\n");
        assert_eq!(frame(&lines, 3, Some(6), 3), "\x1b[3F\x1b[Jone\na lon…\n");
    }
}
