//! `nb status --watch`: the same again and again, with what passes each proxy.

use std::collections::HashMap;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::fault::Fault;
use super::harmless::{Kind, harmless};
use super::terminal::CtrlC;
use super::{columns, print, status};
use crate::notebook::size;
use crate::ops::kernels::everywhere;
use crate::ops::kernels::status::{SessionStatus, glance, status};
use crate::project::counters::{ClientCounters, Counters, Latency, Passed};
use crate::project::joined::Joined;
use crate::project::{Project, StateError};

/// What is looked at.
pub(super) struct Watch {
    pub(super) project: Project,
    /// The one session that is meant, and the name of the notebook that was asked for.
    pub(super) only: Option<(String, String)>,
    pub(super) every: Duration,
    pub(super) json: bool,
}

/// How often a kernel is asked whether it is busy: between, the journal tells. An answer is iopub
/// traffic of its own, which everybody hears.
const ASK: Duration = Duration::from_secs(10);

/// How often one is that runs something of which the journal does not know.
const ASK_AGAIN: Duration = Duration::from_secs(3);

/// A proxy that has not written for so long had nothing to write.
const QUIET: Duration = Duration::from_millis(2500);

impl Watch {
    /// Looks until Ctrl-C.
    pub(super) async fn run(self) -> Result<ExitCode, Fault> {
        let ctrl_c = CtrlC::listen().map_err(|error| Fault::failed("wait for Ctrl-C", &error))?;
        let mut screen = Screen::default();
        let mut rates = Rates::default();
        let mut asked = None;
        let mut unknown: Vec<PathBuf> = Vec::new();
        loop {
            let patience = if unknown.is_empty() { ASK } else { ASK_AGAIN };
            let asks = asked.is_none_or(|at: Instant| at.elapsed() >= patience);
            let looked = tokio::select! {
                looked = self.look(asks) => looked,
                () = ctrl_c.pressed() => return Ok(ExitCode::SUCCESS),
            };
            let mut statuses = looked.map_err(|error| Fault::failed("look", &error))?;
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
            rates.take(&statuses);
            let shown = match self.json {
                true => print::json(&self.object(&statuses, &rates)),
                false => screen.show(&self.lines(&statuses, &rates)),
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

    fn object(&self, statuses: &[SessionStatus], rates: &Rates) -> Value {
        let sessions = statuses.iter().map(|it| {
            let mut object = status::object(it);
            let joined = it.joined.iter().map(|joined| {
                let mut object = json!(joined);
                object["rates"] = json!(rates.of(joined).map(|rate| json!({
                    "from_clients": rate.from_clients,
                    "to_clients": rate.to_clients,
                    "bytes": rate.bytes,
                })));
                object
            });
            object["joined"] = joined.collect();
            object
        });
        json!({
            "at": Timestamp::now(),
            "project": self.project.root(),
            "sessions": sessions.collect::<Vec<_>>(),
        })
    }

    fn lines(&self, statuses: &[SessionStatus], rates: &Rates) -> Vec<String> {
        let now = print::moment(Timestamp::now());
        let mut lines = vec![format!("{now} · {}", self.project.root().display())];
        if statuses.is_empty() {
            lines.push("no notebook is open here".to_owned());
        }
        for it in statuses {
            lines.extend(status::kernel_text(it).lines().map(str::to_owned));
            if it.session.kernel_of.is_some() {
                // Who is joined is told with the kernel's owner.
                continue;
            }
            if it.joined.is_empty() {
                lines.push("  nobody is joined".to_owned());
                continue;
            }
            let mut rows = vec![HEAD.map(str::to_owned)];
            for joined in &it.joined {
                rows.push(proxy_row(joined, rates.of(joined)));
                let Some(counters) = &joined.counters else {
                    continue;
                };
                rows.extend(counters.clients.iter().map(|client| {
                    let rate = rates.of_client(joined, client);
                    client_row(client, rate)
                }));
            }
            lines.extend(columns::lines(&rows));
        }
        lines
    }
}

const HEAD: [&str; 9] = [
    "  joined", "in/s", "out/s", "bytes/s", "held", "queued", "on disk", "passing", "reply",
];

fn proxy_row(joined: &Joined, rate: Option<&Rate>) -> [String; 9] {
    let who = format!(
        "  {} · pid {} · {}",
        joined.front_end,
        joined.pid,
        print::count(joined.clients, "client")
    );
    let Some(it) = &joined.counters else {
        let mut row = <[String; 9]>::default();
        row[0] = who;
        return row;
    };
    let mut who = vec![who];
    for (count, what) in [
        (it.refused.messages() + it.refused.connections, "refused"),
        (it.lost, "lost"),
        (it.cut, "cut"),
    ] {
        who.extend((count > 0).then(|| format!("{count} {what}")));
    }
    who.extend((it.restarts > 0).then(|| print::count(it.restarts as usize, "restart")));
    let queued = it.queued_bytes.to_kernel + it.queued_bytes.to_clients;
    [
        who.join(" · "),
        number(rate.map(|rate| rate.from_clients)),
        number(rate.map(|rate| rate.to_clients)),
        bytes(rate.map(|rate| rate.bytes)),
        waiting(it.held.bytes),
        waiting(queued),
        waiting(it.spilled_bytes),
        latency(it.passing),
        latency(it.reply),
    ]
}

fn client_row(client: &ClientCounters, rate: Option<&Rate>) -> [String; 9] {
    // What a subscriber gets is counted for all of them together.
    let rate = rate.filter(|_| client.from.messages + client.to.messages > 0);
    let mut who = vec![format!("    {}", client.id)];
    who.extend((client.outstanding > 0).then(|| format!("{} unanswered", client.outstanding)));
    who.extend((!client.joined).then(|| "away".to_owned()));
    who.extend(client.paused.then(|| "not read".to_owned()));
    [
        who.join(" · "),
        number(rate.map(|rate| rate.from_clients)),
        number(rate.map(|rate| rate.to_clients)),
        bytes(rate.map(|rate| rate.bytes)),
        waiting(client.held_bytes),
        waiting(client.queued_bytes),
        waiting(client.spilled_bytes),
        String::new(),
        String::new(),
    ]
}

/// Shows how many in a second: nothing where that is not known, or none.
fn number(rate: Option<f64>) -> String {
    match rate {
        None => String::new(),
        Some(0.0) => "0".to_owned(),
        Some(rate) if rate < 10.0 => format!("{rate:.1}"),
        Some(rate) => format!("{rate:.0}"),
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate in words"
)]
fn bytes(rate: Option<f64>) -> String {
    rate.map(|rate| size(rate as u64)).unwrap_or_default()
}

fn waiting(bytes: u64) -> String {
    if bytes == 0 {
        String::new()
    } else {
        size(bytes)
    }
}

/// Shows the half and the ninety-nine in a hundred: `21 µs (99 %: 90 µs)`.
fn latency(latency: Latency) -> String {
    match (latency.p50_us, latency.p99_us) {
        (Some(half), Some(most)) => format!("{} (99 %: {})", time(half), time(most)),
        _ => String::new(),
    }
}

fn time(micros: u64) -> String {
    match micros {
        0..1000 => format!("{micros} µs"),
        1000..10_000 => format!("{}.{} ms", micros / 1000, micros % 1000 / 100),
        10_000..1_000_000 => format!("{} ms", micros / 1000),
        _ => print::took(Duration::from_micros(micros)),
    }
}

/// How much passes in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rate {
    from_clients: f64,
    to_clients: f64,
    bytes: f64,
}

impl Rate {
    /// Returns the rate between two counts.
    fn between(before: &Sum, after: &Sum) -> Option<Self> {
        let time = Duration::try_from(after.at.duration_since(before.at)).ok()?;
        let per_second = |before: u64, after: u64| {
            #[allow(clippy::cast_precision_loss, reason = "a rate in words")]
            let more = after.saturating_sub(before) as f64;
            more / time.as_secs_f64()
        };
        (!time.is_zero()).then(|| Self {
            from_clients: per_second(before.from.messages, after.from.messages),
            to_clients: per_second(before.to.messages, after.to.messages),
            bytes: per_second(
                before.from.bytes + before.to.bytes,
                after.from.bytes + after.to.bytes,
            ),
        })
    }
}

/// What had passed at some time.
#[derive(Clone, Copy, Debug)]
struct Sum {
    at: Timestamp,
    from: Passed,
    to: Passed,
}

impl Sum {
    fn of(counters: &Counters) -> Self {
        Self {
            at: counters.at,
            from: counters.from_clients.total(),
            to: counters.to_clients.total(),
        }
    }

    fn of_client(counters: &Counters, client: &ClientCounters) -> Self {
        Self {
            at: counters.at,
            from: client.from,
            to: client.to,
        }
    }
}

/// The rates of all proxies and clients, from one look to the next.
#[derive(Debug, Default)]
struct Rates(HashMap<(u32, u64, String), (Sum, Option<Rate>)>);

impl Rates {
    fn take(&mut self, statuses: &[SessionStatus]) {
        let mut now = HashMap::new();
        for joined in statuses.iter().flat_map(|it| &it.joined) {
            let Some(counters) = &joined.counters else {
                continue;
            };
            let clients = counters.clients.iter();
            let clients = clients.map(|it| (it.id.clone(), Sum::of_client(counters, it)));
            for (id, sum) in clients.chain([(String::new(), Sum::of(counters))]) {
                let key = (joined.pid, joined.start_time, id);
                let rate = self.next(&key, &sum, Timestamp::now());
                now.insert(key, (sum, rate));
            }
        }
        self.0 = now;
    }

    /// A proxy writes at most once a second, and not at all while nothing happens.
    fn next(&self, key: &(u32, u64, String), sum: &Sum, now: Timestamp) -> Option<Rate> {
        let (before, rate) = self.0.get(key)?;
        if before.at != sum.at {
            return Rate::between(before, sum);
        }
        let is_quiet = Duration::try_from(now.duration_since(sum.at)).is_ok_and(|it| it > QUIET);
        if is_quiet {
            Some(Rate::default())
        } else {
            *rate
        }
    }

    fn of(&self, joined: &Joined) -> Option<&Rate> {
        self.get(joined, "")
    }

    fn of_client(&self, joined: &Joined, client: &ClientCounters) -> Option<&Rate> {
        self.get(joined, &client.id)
    }

    fn get(&self, joined: &Joined, id: &str) -> Option<&Rate> {
        let key = (joined.pid, joined.start_time, id.to_owned());
        self.0.get(&key)?.1.as_ref()
    }
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

    fn sum(seconds: i64, messages: u64) -> Sum {
        Sum {
            at: Timestamp::from_second(seconds).unwrap(),
            from: Passed {
                messages,
                bytes: 10 * messages,
            },
            to: Passed::default(),
        }
    }

    #[test]
    fn a_rate_is_kept_until_the_proxy_is_quiet() {
        let key = (1, 2, String::new());
        let mut rates = Rates::default();
        let now = |seconds| Timestamp::from_second(seconds).unwrap();
        assert_eq!(
            rates.next(&key, &sum(10, 0), now(10)),
            None,
            "nothing to compare with"
        );
        rates.0.insert(key.clone(), (sum(10, 0), None));
        let rate = rates.next(&key, &sum(12, 30), now(12)).unwrap();
        assert_eq!((rate.from_clients, rate.bytes), (15.0, 150.0));
        rates.0.insert(key.clone(), (sum(12, 30), Some(rate)));
        // Two looks between two records say nothing else.
        assert_eq!(rates.next(&key, &sum(12, 30), now(13)), Some(rate));
        assert_eq!(
            rates.next(&key, &sum(12, 30), now(15)),
            Some(Rate::default())
        );
        // A proxy that began anew counts from nothing.
        assert_eq!(
            rates.next(&key, &sum(16, 3), now(16)),
            Some(Rate::default())
        );
    }

    #[test]
    fn a_frame_is_drawn_over_the_last_one_and_fits() {
        let lines: Vec<_> = ["one", "a long line", "three"].map(str::to_owned).into();
        assert_eq!(frame(&lines, 0, None, 0), "\x1b[Jone\na long line\nthree\n");
        assert_eq!(frame(&lines, 3, Some(6), 3), "\x1b[3F\x1b[Jone\na lon…\n");
    }

    #[test]
    fn times_are_short() {
        let shown = [7, 1500, 21_000, 3_100_000].map(time);
        assert_eq!(shown, ["7 µs", "1.5 ms", "21 ms", "3.1 s"]);
    }
}
