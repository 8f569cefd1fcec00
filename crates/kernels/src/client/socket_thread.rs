//! The four sockets, on a separate thread: the only file that names the `zeromq` crate.
//!
//! A kernel's PUB socket silently drops messages that its reader does not take fast enough (ipykernel: above
//! 1,000 messages). So reading must not wait for parsing: the thread has its own runtime, takes frames off
//! the sockets and passes them on unparsed.
//!
//! This file relies on these properties of `zeromq` 0.7.0, according to its source:
//! - `recv()` keeps nothing in its future (`fair_queue.rs`: the stream goes back before `Pending`), so the
//!   future may be dropped in a `select!`.
//! - When a peer's connection ends, `recv()` of a DEALER stays pending for ever and the crate does not dial
//!   again; only the monitor reports `Disconnected`, after the last message has been returned. A read error
//!   is returned by `recv()` instead, and again each time. A SUB dials again by itself.
//! - `connect()` tries again while the connection is refused, until the connect timeout, and then has lost
//!   the reason: so `reachable` tests the socket first.
//! - `send()` only queues (100,000 messages); a task of the runtime writes. Dropping a socket lets
//!   that task write what is queued as long as its runtime lives, so the thread outlives the
//!   sockets until no task is left, at most [`FLUSH`].
//! - A frame length that cannot be allocated aborts the process. The kernel is the only peer, and
//!   it can do worse already.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, oneshot};
use zeromq::util::PeerIdentity;
use zeromq::{
    DealerRecvHalf, DealerSendHalf, DealerSocket, Socket, SocketEvent, SocketOptions, SocketRecv,
    SocketSend, SubSocket, ZmqMessage,
};

use super::ClientError;
use crate::wire::{Channel, ConnectionInfo, Endpoint};

/// The maximum number of message bytes in the inbox. Further messages are dropped and counted: if the thread
/// stopped reading, the kernel would drop them without a count.
const HELD_BYTES: usize = 512 << 20;

/// How long the handshake may take on a socket that accepts connections.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// How long the thread goes on writing after the client was dropped.
const FLUSH: Duration = Duration::from_secs(1);

/// An item of the inbox.
pub(super) enum Arrived {
    /// A message, unparsed.
    Message {
        channel: Channel,
        frames: Vec<Bytes>,
    },
    /// The connection has ended; on iopub the crate dials again.
    Lost { channel: Channel, why: String },
}

/// The client's handle of the thread.
pub(super) struct SocketThread {
    shell: mpsc::UnboundedSender<Vec<Bytes>>,
    control: mpsc::UnboundedSender<Vec<Bytes>>,
    stdin: mpsc::UnboundedSender<Vec<Bytes>>,
    inbox: mpsc::UnboundedReceiver<Arrived>,
    held: Arc<InboxSize>,
    closed: oneshot::Receiver<()>,
}

/// The number of bytes in the inbox, and of messages that did not fit.
#[derive(Default)]
struct InboxSize {
    bytes: AtomicUsize,
    dropped: AtomicU64,
}

impl SocketThread {
    /// Connects all four sockets; the dealers announce `identity`.
    pub(super) async fn connect(
        info: &ConnectionInfo,
        identity: &str,
    ) -> Result<Self, ClientError> {
        let endpoints = CHANNELS.map(|channel| (channel, info.endpoint(channel)));
        let (shell, shell_out) = mpsc::unbounded_channel();
        let (control, control_out) = mpsc::unbounded_channel();
        let (stdin, stdin_out) = mpsc::unbounded_channel();
        let (arrived, inbox) = mpsc::unbounded_channel();
        let (ready, is_ready) = oneshot::channel();
        let (closing, closed) = oneshot::channel();
        let held = Arc::new(InboxSize::default());
        let identity = identity.to_owned();
        let hand_over = InboxSender {
            arrived,
            held: Arc::clone(&held),
        };
        std::thread::Builder::new()
            .name("kernel sockets".to_owned())
            .spawn(move || {
                // Dropped when the thread ends, which tells the other end so.
                let _closing = closing;
                let runtime = match tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                {
                    Ok(runtime) => runtime,
                    Err(error) => {
                        let _ = ready.send(Err(ClientError::Thread(error)));
                        return;
                    }
                };
                let out = [shell_out, control_out, stdin_out];
                runtime.block_on(serve(&endpoints, &identity, out, ready, &hand_over));
            })
            .map_err(ClientError::Thread)?;
        match is_ready.await {
            Ok(connected) => connected?,
            Err(_) => return Err(ClientError::Thread(io::Error::other("it ended early"))),
        }
        Ok(Self {
            shell,
            control,
            stdin,
            inbox,
            held,
            closed,
        })
    }

    /// Queues a message. The end of a connection is reported by [`SocketThread::receive`].
    pub(super) fn send(&self, channel: Channel, frames: Vec<Bytes>) {
        let out = match channel {
            Channel::Shell => &self.shell,
            Channel::Control => &self.control,
            Channel::Stdin => &self.stdin,
            Channel::Iopub | Channel::Heartbeat => return,
        };
        // The thread ends only with the kernel, which `receive` reports.
        let _ = out.send(frames);
    }

    /// Waits for the next item; no item is lost if the future is dropped.
    pub(super) async fn receive(&mut self) -> Arrived {
        match self.inbox.recv().await {
            Some(arrived) => {
                self.held.take(&arrived);
                arrived
            }
            None => Arrived::Lost {
                channel: Channel::Shell,
                why: "the thread of the kernel's sockets has ended".to_owned(),
            },
        }
    }

    /// Drops the items that have arrived so far, after passing each to `keep`.
    pub(super) fn forget_arrived(&mut self, mut keep: impl FnMut(Arrived)) {
        while let Ok(arrived) = self.inbox.try_recv() {
            self.held.take(&arrived);
            keep(arrived);
        }
    }

    /// Returns how many messages did not fit into the inbox.
    pub(super) fn dropped(&self) -> u64 {
        self.held.dropped.load(Ordering::Relaxed)
    }

    /// Closes the sockets and waits until the queued messages are written, one second at most.
    pub(super) async fn close(self) {
        let Self {
            shell,
            control,
            stdin,
            inbox,
            held: _,
            closed,
        } = self;
        drop((shell, control, stdin, inbox));
        // The sender is dropped when the thread ends; it never sends.
        let _ = closed.await;
    }
}

impl InboxSize {
    fn take(&self, arrived: &Arrived) {
        if let Arrived::Message { frames, .. } = arrived {
            self.bytes.fetch_sub(size(frames), Ordering::Relaxed);
        }
    }
}

fn size(frames: &[Bytes]) -> usize {
    frames.iter().map(Bytes::len).sum()
}

/// The thread's side of the inbox.
#[derive(Clone)]
struct InboxSender {
    arrived: mpsc::UnboundedSender<Arrived>,
    held: Arc<InboxSize>,
}

impl InboxSender {
    fn message(&self, channel: Channel, message: ZmqMessage) {
        let frames = message.into_vec();
        let size = size(&frames);
        if self.held.bytes.load(Ordering::Relaxed).saturating_add(size) > HELD_BYTES {
            self.held.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.held.bytes.fetch_add(size, Ordering::Relaxed);
        let _ = self.arrived.send(Arrived::Message { channel, frames });
    }

    fn lost(&self, channel: Channel, why: impl Into<String>) {
        let why = why.into();
        let _ = self.arrived.send(Arrived::Lost { channel, why });
    }
}

/// Runs the thread: connects, reads and writes until the client is dropped, then flushes.
async fn serve(
    endpoints: &[(Channel, Endpoint); 4],
    identity: &str,
    out: [mpsc::UnboundedReceiver<Vec<Bytes>>; 3],
    ready: oneshot::Sender<Result<(), ClientError>>,
    hand_over: &InboxSender,
) {
    let [iopub, shell, control, stdin] = endpoints;
    let dial = |(channel, endpoint): &'_ (Channel, Endpoint)| {
        let (channel, endpoint) = (*channel, endpoint.clone());
        async move { Ok((channel, dial(channel, &endpoint, identity).await?)) }
    };
    // All at once, since each connection takes several round trips.
    let connected = tokio::try_join!(
        subscribe(iopub.0, &iopub.1),
        dial(shell),
        dial(control),
        dial(stdin),
    );
    let (subscribed, shell, control, stdin) = match connected {
        Ok(connected) => connected,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let mut readers = vec![tokio::spawn(read_iopub(subscribed, hand_over.clone()))];
    let mut writers = Vec::new();
    for ((channel, (send, reader)), out) in [shell, control, stdin].into_iter().zip(out) {
        writers.push(tokio::spawn(write(channel, send, out, hand_over.clone())));
        readers.push(tokio::spawn(read_dealer(
            channel,
            reader,
            hand_over.clone(),
        )));
    }
    if ready.send(Ok(())).is_err() {
        return;
    }
    for writer in writers {
        let _ = writer.await;
    }
    for reader in readers {
        reader.abort();
        let _ = reader.await;
    }
    let flushed = async {
        while tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
            > 0
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let _ = tokio::time::timeout(FLUSH, flushed).await;
}

async fn subscribe(channel: Channel, endpoint: &Endpoint) -> Result<SubSocket, ClientError> {
    reachable(channel, endpoint).await?;
    let mut socket = SubSocket::with_options(options(None));
    let subscribed = async {
        // The crate stores the subscription, and sends it with the handshake of this and every later
        // connection.
        socket.subscribe("").await?;
        socket.connect(&endpoint.to_string()).await
    };
    subscribed
        .await
        .map_err(|error| ClientError::handshake(channel, endpoint, error))?;
    Ok(socket)
}

struct DealerReader {
    recv: DealerRecvHalf,
    events: futures_channel::mpsc::Receiver<SocketEvent>,
}

async fn dial(
    channel: Channel,
    endpoint: &Endpoint,
    identity: &str,
) -> Result<(DealerSendHalf, DealerReader), ClientError> {
    reachable(channel, endpoint).await?;
    let dialled = async {
        let mut socket = DealerSocket::with_options(options(Some(identity.parse()?)));
        let events = socket.monitor();
        socket.connect(&endpoint.to_string()).await?;
        let (send, recv) = socket.split();
        Ok((send, DealerReader { recv, events }))
    };
    dialled
        .await
        .map_err(|error: zeromq::ZmqError| ClientError::handshake(channel, endpoint, error))
}

fn options(identity: Option<PeerIdentity>) -> SocketOptions {
    let mut options = SocketOptions::default();
    options.connect_timeout(HANDSHAKE);
    if let Some(identity) = identity {
        options.peer_identity(identity);
    }
    options
}

/// The channels that have a socket here.
const CHANNELS: [Channel; 4] = [
    Channel::Iopub,
    Channel::Shell,
    Channel::Control,
    Channel::Stdin,
];

/// Checks whether a kernel listens on all its sockets.
pub(super) async fn listens(info: &ConnectionInfo) -> Result<(), ClientError> {
    for channel in CHANNELS {
        reachable(channel, &info.endpoint(channel)).await?;
    }
    Ok(())
}

/// Checks at once whether a process listens on the socket; returns the reason if not.
async fn reachable(channel: Channel, endpoint: &Endpoint) -> Result<(), ClientError> {
    let looked = async {
        match endpoint {
            Endpoint::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                // An unused port of the ephemeral range may become the source port of the very connection
                // that dials it, which is then connected to itself.
                if stream.local_addr()? == stream.peer_addr()? {
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
            }
            Endpoint::Unix(path) => drop(UnixStream::connect(path).await?),
        }
        Ok(())
    };
    looked.await.map_err(|source| ClientError::Unreachable {
        channel,
        endpoint: endpoint.clone(),
        source,
    })
}

async fn read_iopub(mut socket: SubSocket, hand_over: InboxSender) {
    let mut events = socket.monitor();
    loop {
        tokio::select! {
            biased;
            received = socket.recv() => match received {
                Ok(message) => hand_over.message(Channel::Iopub, message),
                // The crate has closed the connection and dials again.
                Err(error) => hand_over.lost(Channel::Iopub, error.to_string()),
            },
            event = events.recv() => if matches!(event, Ok(SocketEvent::Disconnected(_))) {
                hand_over.lost(Channel::Iopub, CLOSED);
            },
        }
    }
}

async fn read_dealer(channel: Channel, mut reader: DealerReader, hand_over: InboxSender) {
    loop {
        tokio::select! {
            biased;
            received = reader.recv.recv() => match received {
                Ok(message) => hand_over.message(channel, message),
                Err(error) => return hand_over.lost(channel, error.to_string()),
            },
            event = reader.events.recv() => match event {
                Ok(SocketEvent::Disconnected(_)) | Err(_) => return hand_over.lost(channel, CLOSED),
                Ok(_) => {}
            },
        }
    }
}

async fn write(
    channel: Channel,
    mut socket: DealerSendHalf,
    mut out: mpsc::UnboundedReceiver<Vec<Bytes>>,
    hand_over: InboxSender,
) {
    while let Some(frames) = out.recv().await {
        let Ok(message) = ZmqMessage::try_from(frames) else {
            continue;
        };
        if let Err(error) = socket.send(message).await {
            return hand_over.lost(channel, error.to_string());
        }
    }
}

const CLOSED: &str = "it closed the connection";
