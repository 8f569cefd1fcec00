//! `nb status --watch`: prints the status again and again, with the traffic of each proxy.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Duration;

use crate::api::problem::{Problem, ProblemKind};
use crate::api::{StatusSnapshot, StatusWatch};
use crate::cli::Context;
use crate::cli::render::{columns, print};
use crate::cli::terminal::CtrlC;
use crate::notebook::{size, visible_line};
use crate::project::joined::JoinedFrontEnd;
use crate::text::kernel::kernel_lines;

/// The shortest allowed interval.
const LEAST: Duration = Duration::from_millis(100);

/// Prints the status every `seconds` seconds, until Ctrl-C.
pub(crate) async fn watch(context: &Context, seconds: f64) -> Result<ExitCode, Problem> {
    let every = Duration::try_from_secs_f64(seconds).ok();
    let every = every.filter(|every| *every >= LEAST).ok_or_else(|| {
        let text = format!("--watch={seconds} is no number of seconds from 0.1 on");
        Problem::new(ProblemKind::Usage, text)
    })?;
    let mut watch = StatusWatch::begin(&context.caller).await?;
    let ctrl_c = CtrlC::listen().map_err(|error| Problem::failed("wait for Ctrl-C", &error))?;
    let mut screen = Screen::default();
    loop {
        let snapshot = tokio::select! {
            snapshot = watch.snapshot() => snapshot?,
            () = ctrl_c.pressed() => return Ok(ExitCode::SUCCESS),
        };
        let shown = match context.json {
            true => print::json(&snapshot),
            false => screen.show(&lines(&snapshot)),
        };
        if shown.is_err() {
            return Ok(ExitCode::FAILURE);
        }
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = ctrl_c.pressed() => return Ok(ExitCode::SUCCESS),
        }
    }
}

fn lines(snapshot: &StatusSnapshot) -> Vec<String> {
    let now = print::moment(snapshot.at);
    let mut lines = vec![format!("{now} · {}", snapshot.project.display())];
    if snapshot.sessions.is_empty() {
        lines.push("no notebook is open here".to_owned());
    }
    for it in &snapshot.sessions {
        lines.extend(kernel_lines(it));
        if it.kernel_of.is_some() {
            // The front ends are listed under the notebook that owns the kernel.
            continue;
        }
        if it.joined.is_empty() {
            lines.push("  no front end is connected".to_owned());
        }
        lines.extend(it.joined.iter().map(proxy_line));
    }
    lines
}

/// Returns a line about a proxy: the messages that passed it, and those that wait in it.
fn proxy_line(joined: &JoinedFrontEnd) -> String {
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
    for (amount, label) in [
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
        parts.extend(amount.map(|amount| format!("{amount} {label}")));
    }
    parts.join(" · ")
}

/// The number of lines drawn last, to be drawn over. If stdout is not a terminal, one block follows the
/// other.
#[derive(Default)]
struct Screen {
    drawn: usize,
    has_drawn: bool,
}

impl Screen {
    fn show(&mut self, lines: &[String]) -> io::Result<()> {
        if !io::stdout().is_terminal() {
            let gap = std::mem::replace(&mut self.has_drawn, true).then_some("");
            return print::lines(gap.into_iter().chain(lines.iter().map(String::as_str)));
        }
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
        let rows = size.map_or(0, |size| usize::from(size.ws_row));
        let frame = frame(lines, self.drawn, columns::of_terminal(), rows);
        self.drawn = frame.matches('\n').count();
        print::drawn(&frame)
    }
}

/// Returns the text and escapes that draw these lines over the last ones, cut to the terminal's width and
/// height.
fn frame(lines: &[String], drawn: usize, width: Option<usize>, rows: usize) -> String {
    let room = if rows > 1 { rows - 1 } else { lines.len() };
    let back = if drawn > 0 {
        format!("\x1b[{drawn}F")
    } else {
        String::new()
    };
    let mut frame = format!("{back}\x1b[J");
    for line in lines.iter().take(room) {
        let line = &visible_line(line);
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
