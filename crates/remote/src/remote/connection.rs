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
use crate::project::{ConnectionReport, ConnectionState};
use crate::server::channels::{self, KernelReceiver, KernelSender, Received};
use crate::server::{ServerError, ServerErrorKind};

/// How often to ask the server whether it still has the kernel: it does not report its end.
const HEALTH_INTERVAL: Duration = Duration::from_secs(30);

/// How often, and how many times, to ask after the kernel's shutdown_reply.
const HEALTH_INTERVAL_AFTER_SHUTDOWN: Duration = Duration::from_secs(1);
const CHECKS_AFTER_SHUTDOWN: u32 = 10;

/// How often to check whether a server that refused connections accepts them again.
const LISTEN_POLL: Duration = Duration::from_secs(2);

/// After how many frames in a row that are no messages the connection is made anew: what speaks there is no kernel's server,
/// or a proxy on the way changes what it says.
const UNREADABLE_MAX: u32 = 3;

/// How long to read what has arrived on a connection on which nothing can be sent.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

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
        let text = problem.as_ref().map(|reason| format!(": {reason}"));
        log(&format!("{}{}", state.as_str(), text.unwrap_or_default()));
        (self.last.state, self.last.problem) = (state, problem);
        self.write();
    }

    fn latency(&mut self, latency: Duration) {
        self.last.latency_ms = u64::try_from(latency.as_millis()).ok();
        self.write();
    }

    /// Records why the kernel has ended.
    pub(super) fn kernel_ended(&mut self, reason: &str) {
        log(&format!("the kernel has ended: {reason}"));
        self.last.kernel_ended = Some(reason.to_owned());
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

/// Keeps the websocket open until the kernel has ended. `session` is the id under which the server stores the kernel's
/// messages meanwhile.
///
/// # Errors
/// The first connection of a session, for which a command waits, cannot be made, and the user has to remove the cause.
pub(super) async fn keep_open(
    bridge: &Rc<Bridge>,
    session: &str,
    is_first: bool,
    reporter: &mut Reporter,
) -> Result<(), ServerError> {
    let mut backoff = Backoff::default();
    let mut was_connected = !is_first;
    loop {
        bridge.take_new_record().await;
        let error = match connect(bridge, session).await {
            Ok(Some((sender, receiver))) => {
                was_connected = true;
                reporter.change(ConnectionState::Connected, None);
                let Lost { reason, unreadable } = serve(bridge, sender, receiver, reporter).await;
                bridge.disconnected();
                reporter.change(ConnectionState::Reconnecting, Some(reason));
                // A connection that was just lost is usually there again at once.
                if !unreadable {
                    backoff.reset();
                }
                continue_after(bridge, backoff.next(random()), false).await;
                continue;
            }
            Ok(None) => {
                bridge.end(gone_reason(bridge));
                return Ok(());
            }
            Err(error) => error,
        };
        if !was_connected && !error.kind.is_transient() {
            return Err(error);
        }
        let state = match (error.kind.is_transient(), was_connected) {
            (true, true) => ConnectionState::Reconnecting,
            (true, false) => ConnectionState::Connecting,
            (false, _) => ConnectionState::Failed,
        };
        reporter.change(state, Some(error.kind.to_string()));
        let retry_after = match error.kind {
            ServerErrorKind::TooManyRequests { retry_after } => retry_after,
            _ => None,
        };
        let is_refused = matches!(
            error.kind,
            ServerErrorKind::Refused { .. } | ServerErrorKind::Connection { .. }
        );
        let pause = backoff.next(random()).max(retry_after.unwrap_or_default());
        continue_after(bridge, pause, is_refused).await;
    }
}

/// Waits for a pause; until a command wants the connection, if that is earlier; and if the server refused connections,
/// until it accepts them.
async fn continue_after(bridge: &Bridge, pause: Duration, is_refused: bool) {
    let accepts = async {
        let server = bridge.server();
        let base = server.base();
        let (Some(host), Some(port)) = (base.host_str(), base.port_or_known_default()) else {
            return std::future::pending().await;
        };
        let host = host.trim_matches(['[', ']']).to_owned();
        loop {
            tokio::time::sleep(LISTEN_POLL).await;
            if TcpStream::connect((&*host, port)).await.is_ok() {
                return;
            }
        }
    };
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        () = bridge.wait_for_retry() => {}
        () = accepts, if is_refused => {}
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
    let server = bridge.server();
    if server.kernel(&bridge.kernel).await?.is_none() {
        return Ok(None);
    }
    channels::open(&server, &bridge.kernel, session)
        .await
        .map(Some)
}

/// How the loss of a connection was noticed.
struct Lost {
    reason: String,
    /// Whether the last frames were no messages.
    unreadable: bool,
}

impl From<String> for Lost {
    fn from(reason: String) -> Self {
        Self {
            reason,
            unreadable: false,
        }
    }
}

/// Passes messages until the connection is lost; returns how that was noticed.
async fn serve(
    bridge: &Rc<Bridge>,
    mut sender: KernelSender,
    mut receiver: KernelReceiver,
    reporter: &mut Reporter,
) -> Lost {
    let (outgoing, mut queue) = mpsc::unbounded_channel();
    bridge.connected(outgoing);
    // When the server was last pinged, until it answers.
    let pinged_at = Cell::new(None);
    let arrival = Notify::new();
    let mut pongs = PongBudget::new(Instant::now());
    let writer = async {
        let mut ticks = tokio::time::interval(bridge.ping_interval);
        loop {
            tokio::select! {
                next = queue.recv() => {
                    let Some((channel, message)) = next else {
                        return "it was replaced".to_owned();
                    };
                    match sender.send(channel, &message).await {
                        Ok(true) => {}
                        Ok(false) => log("dropped a message that is not JSON"),
                        Err(reason) => return reason,
                    }
                    bridge.written(message.size());
                }
                () = arrival.notified() => {
                    if bridge.expects_messages()
                        && pongs.take(Instant::now())
                        && let Err(reason) = sender.pong().await
                    {
                        return reason;
                    }
                }
                _ = ticks.tick() => {
                    pinged_at.set(Some(Instant::now()));
                    if let Err(reason) = sender.ping().await {
                        return reason;
                    }
                }
            }
        }
    };
    let reader = async {
        let (mut dropped, mut unreadable) = (0_u64, 0);
        loop {
            let longest_silence = bridge.ping_interval * 2;
            let received = match tokio::time::timeout(longest_silence, receiver.next()).await {
                Ok(received) => received,
                Err(_) => {
                    let silence = longest_silence.as_secs();
                    return format!("the server said nothing for {silence} s").into();
                }
            };
            match received {
                Received::Message(channel, message) => {
                    unreadable = 0;
                    bridge.kernel_message(channel, message);
                    arrival.notify_one();
                }
                Received::SignOfLife => {
                    if let Some(at) = pinged_at.take() {
                        reporter.latency(at.elapsed());
                    }
                }
                Received::Malformed(reason) => {
                    (dropped, unreadable) = (dropped + 1, unreadable + 1);
                    // A server that sends many does not fill the log.
                    if dropped.is_power_of_two() {
                        log(&format!(
                            "dropped frame {dropped} that is no message: {reason}"
                        ));
                    }
                    if unreadable == UNREADABLE_MAX {
                        return Lost {
                            reason: format!(
                                "{unreadable} frames in a row were no messages ({reason})"
                            ),
                            unreadable: true,
                        };
                    }
                }
                Received::Closed(reason) => return reason.into(),
                Received::TooLong => {
                    bridge.message_was_too_long();
                    return "a message was too long for the server".to_owned().into();
                }
            }
        }
    };
    tokio::pin!(reader);
    let reason = tokio::select! {
        reason = writer => reason,
        lost = &mut reader => return lost,
        reason = bridge.kernel_ended() => return reason.into(),
        () = kernel_is_gone(bridge) => {
            bridge.end(gone_reason(bridge));
            return "the kernel is gone".to_owned().into();
        }
    };
    // Messages that have arrived are read although nothing can be sent.
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, reader).await;
    reason.into()
}

/// How many pongs may be sent now.
///
/// Jupyter's servers leave Nagle's algorithm on: each sends a short message only when the one before it is acknowledged,
/// for which the system waits up to 40 ms unless something is sent. A pong acknowledges what has arrived. There are
/// few, so that they take a small part of the server's time while a cell writes much.
struct PongBudget(Instant);

impl PongBudget {
    const INTERVAL: Duration = Duration::from_millis(2);

    /// How many may be sent at once.
    const BURST: u32 = 50;

    fn new(now: Instant) -> Self {
        Self(now)
    }

    fn take(&mut self, now: Instant) -> bool {
        let is_allowed = self.0 <= now + Self::INTERVAL * Self::BURST;
        if is_allowed {
            self.0 = self.0.max(now) + Self::INTERVAL;
        }
        is_allowed
    }
}

/// Waits until the server does not have the kernel any more.
async fn kernel_is_gone(bridge: &Bridge) {
    let mut checks_left = 0;
    loop {
        tokio::select! {
            () = tokio::time::sleep(HEALTH_INTERVAL_AFTER_SHUTDOWN), if checks_left > 0 => checks_left -= 1,
            () = tokio::time::sleep(HEALTH_INTERVAL), if checks_left == 0 => {}
            () = bridge.wait_for_shutdown() => checks_left = CHECKS_AFTER_SHUTDOWN,
        }
        // A failed request proves nothing: the websocket shows whether the server can be reached.
        if let Ok(None) = bridge.server().kernel(&bridge.kernel).await {
            return;
        }
    }
}

fn gone_reason(bridge: &Bridge) -> String {
    format!(
        "{} does not have it any more",
        bridge.server().record().name
    )
}
