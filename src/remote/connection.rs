//! The websocket of a bridge: made, watched, and made again when it is lost.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::backoff::Backoff;
use super::bridge::Bridge;
use super::log::log;
use crate::server::channels::{self, KernelReceiver, KernelSender, Received};
use crate::server::connection_state::{ConnectionReport, ConnectionState};
use crate::server::{ServerError, ServerErrorKind};

/// How often the server is pinged, and how long it may say nothing at all after that. Pings also keep proxies on the way
/// from closing a connection on which nothing happens.
const PING: Duration = Duration::from_secs(30);

/// How often to ask the server whether the kernel is still there: it does not tell when it has ended it.
const HEALTH: Duration = Duration::from_secs(30);

/// How often, and how many times, to ask after the kernel has said that it shuts down.
const HEALTH_SOON: Duration = Duration::from_secs(1);
const SOON_TIMES: u32 = 10;

/// How often to look whether a server that refused connections accepts them again.
const LISTENS: Duration = Duration::from_secs(2);

/// How long to read what has arrived on a connection on which nothing can be sent.
const DRAIN: Duration = Duration::from_millis(500);

/// The connection to the server, as other processes read it.
pub(super) struct Reporter {
    bridge: Rc<Bridge>,
    last: ConnectionReport,
}

impl Reporter {
    pub(super) fn new(bridge: &Rc<Bridge>) -> Self {
        let reporter = Self {
            bridge: Rc::clone(bridge),
            last: ConnectionReport {
                state: ConnectionState::Connecting,
                since: Timestamp::now(),
                latency_ms: None,
                problem: None,
                kernel_ended: None,
            },
        };
        reporter.write();
        reporter
    }

    fn change(&mut self, state: ConnectionState, problem: Option<String>) {
        if self.last.state == state && self.last.problem == problem {
            return;
        }
        if self.last.state != state {
            self.last.since = Timestamp::now();
        }
        let text = problem.as_ref().map(|why| format!(": {why}"));
        log(&format!("{}{}", state.as_str(), text.unwrap_or_default()));
        (self.last.state, self.last.problem) = (state, problem);
        self.write();
    }

    fn latency(&mut self, latency: Duration) {
        self.last.latency_ms = u64::try_from(latency.as_millis()).ok();
        self.write();
    }

    /// Records why the kernel has ended.
    pub(super) fn kernel_ended(&mut self, why: &str) {
        log(&format!("the kernel has ended: {why}"));
        self.last.kernel_ended = Some(why.to_owned());
        self.write();
    }

    fn write(&self) {
        if let Err(error) = self.last.write(&self.bridge.connection_file) {
            log(&format!(
                "the state of the connection is not written: {error}"
            ));
        }
    }
}

/// Keeps the websocket open until the kernel has ended. `session` is the id under which the server keeps what the kernel
/// says meanwhile.
///
/// # Errors
/// The first connection of a session, for which a command waits, cannot be made, and the user has to mend why.
pub(super) async fn keep(
    bridge: &Rc<Bridge>,
    session: &str,
    is_first: bool,
    reporter: &mut Reporter,
) -> Result<(), ServerError> {
    let mut backoff = Backoff::default();
    let mut was_connected = !is_first;
    loop {
        let error = match connect(bridge, session).await {
            Ok(Some((sender, receiver))) => {
                backoff.reset();
                was_connected = true;
                reporter.change(ConnectionState::Connected, None);
                let why = serve(bridge, sender, receiver, reporter).await;
                bridge.disconnected();
                reporter.change(ConnectionState::Reconnecting, Some(why));
                // A connection that was just lost is usually there again at once.
                continue_after(bridge, backoff.next(random()), false).await;
                continue;
            }
            Ok(None) => {
                bridge.end(is_gone(bridge));
                return Ok(());
            }
            Err(error) => error,
        };
        if !was_connected && !error.kind.may_pass() {
            return Err(error);
        }
        let state = match (error.kind.may_pass(), was_connected) {
            (true, true) => ConnectionState::Reconnecting,
            (true, false) => ConnectionState::Connecting,
            (false, _) => ConnectionState::Failed,
        };
        reporter.change(state, Some(error.kind.to_string()));
        let asked = match error.kind {
            ServerErrorKind::TooManyRequests { retry_after } => retry_after,
            _ => None,
        };
        let refuses = matches!(
            error.kind,
            ServerErrorKind::Refused { .. } | ServerErrorKind::Connection { .. }
        );
        let pause = backoff.next(random()).max(asked.unwrap_or_default());
        continue_after(bridge, pause, refuses).await;
    }
}

/// Waits for a pause; if the server refused connections, until it accepts them, if that is earlier.
async fn continue_after(bridge: &Bridge, pause: Duration, refuses: bool) {
    let listens = async {
        let base = bridge.server.base();
        let (Some(host), Some(port)) = (base.host_str(), base.port_or_known_default()) else {
            return std::future::pending().await;
        };
        let host = host.trim_matches(['[', ']']).to_owned();
        loop {
            tokio::time::sleep(LISTENS).await;
            if TcpStream::connect((&*host, port)).await.is_ok() {
                return;
            }
        }
    };
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        () = listens, if refuses => {}
    }
}

fn random() -> u8 {
    uuid::Uuid::new_v4().as_bytes()[0]
}

/// Opens the websocket; returns `None` if the server does not run the kernel.
async fn connect(
    bridge: &Bridge,
    session: &str,
) -> Result<Option<(KernelSender, KernelReceiver)>, ServerError> {
    // A websocket of an unknown kernel is refused without a reason that could be relied on.
    if bridge.server.kernel(&bridge.kernel).await?.is_none() {
        return Ok(None);
    }
    channels::open(&bridge.server, &bridge.kernel, session)
        .await
        .map(Some)
}

/// Passes messages until the connection is lost; returns how that was noticed.
async fn serve(
    bridge: &Rc<Bridge>,
    mut sender: KernelSender,
    mut receiver: KernelReceiver,
    reporter: &mut Reporter,
) -> String {
    let (outgoing, mut queue) = mpsc::unbounded_channel();
    bridge.connected(outgoing);
    // When the server was last pinged, until it answers.
    let pinged = Cell::new(None);
    let arrived = Notify::new();
    let mut pongs = PongBudget::new(Instant::now());
    let writer = async {
        let mut ticks = tokio::time::interval(PING);
        loop {
            tokio::select! {
                next = queue.recv() => {
                    let Some((channel, message)) = next else {
                        return "it was replaced".to_owned();
                    };
                    match sender.send(channel, &message).await {
                        Ok(true) => {}
                        Ok(false) => log("dropped a message that is no JSON"),
                        Err(why) => return why,
                    }
                    bridge.written(message.size());
                }
                () = arrived.notified() => {
                    if bridge.expects_messages()
                        && pongs.take(Instant::now())
                        && let Err(why) = sender.pong().await
                    {
                        return why;
                    }
                }
                _ = ticks.tick() => {
                    pinged.set(Some(Instant::now()));
                    if let Err(why) = sender.ping().await {
                        return why;
                    }
                }
            }
        }
    };
    let reader = async {
        loop {
            let received = match tokio::time::timeout(PING * 2, receiver.next()).await {
                Ok(received) => received,
                Err(_) => return format!("the server said nothing for {} s", PING.as_secs() * 2),
            };
            match received {
                Received::Message(channel, message) => {
                    bridge.kernel_message(channel, message);
                    arrived.notify_one();
                }
                Received::SignOfLife => {
                    if let Some(at) = pinged.take() {
                        reporter.latency(at.elapsed());
                    }
                }
                Received::Malformed(why) => log(&format!("dropped a frame: {why}")),
                Received::Closed(why) => return why,
            }
        }
    };
    tokio::pin!(reader);
    let why = tokio::select! {
        why = writer => why,
        why = &mut reader => return why,
        ended = bridge.kernel_ended() => return ended,
        () = kernel_is_gone(bridge) => {
            bridge.end(is_gone(bridge));
            return "the kernel is gone".to_owned();
        }
    };
    // What has arrived before is read although nothing can be sent.
    let _ = tokio::time::timeout(DRAIN, reader).await;
    why
}

/// How many pongs may be sent now.
///
/// Jupyter's servers leave Nagle's algorithm on: each sends a short message only when the one before it is acknowledged,
/// for which the system waits up to 40 ms unless something is sent. A pong acknowledges what has arrived. There are
/// few, so that they take a small part of the server's time while a cell writes much.
struct PongBudget(Instant);

impl PongBudget {
    const EVERY: Duration = Duration::from_millis(2);

    /// How many may be sent at once.
    const BURST: u32 = 50;

    fn new(now: Instant) -> Self {
        Self(now)
    }

    fn take(&mut self, now: Instant) -> bool {
        let is_allowed = self.0 <= now + Self::EVERY * Self::BURST;
        if is_allowed {
            self.0 = self.0.max(now) + Self::EVERY;
        }
        is_allowed
    }
}

/// Waits until the server does not have the kernel any more.
async fn kernel_is_gone(bridge: &Bridge) {
    let mut soon = 0;
    loop {
        tokio::select! {
            () = tokio::time::sleep(HEALTH_SOON), if soon > 0 => soon -= 1,
            () = tokio::time::sleep(HEALTH), if soon == 0 => {}
            () = bridge.shuts_down() => soon = SOON_TIMES,
        }
        // Whether the server can be reached is seen on the websocket.
        if let Ok(None) = bridge.server.kernel(&bridge.kernel).await {
            return;
        }
    }
}

fn is_gone(bridge: &Bridge) -> String {
    format!("{} does not have it any more", bridge.server.record().name)
}
