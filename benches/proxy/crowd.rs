//! Many clients at once, and one that stops reading.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nb::socket::{DialAs, DialHandler, DialRole, Dialer, DisconnectReason, Message, SocketLimits};
use nb::wire::{Channel, ConnectionInfo, Endpoint, NewHeader, Verified};
use nb::zmtp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Clients that each have a shell and an iopub socket, made with this project's sockets: they only count
/// messages.
pub struct Crowd {
    members: Vec<Member>,
    told: Rc<Told>,
}

struct Member {
    shell: Dialer,
    _iopub: Dialer,
    hears: Rc<Cell<bool>>,
}

/// The messages that all clients together have received.
#[derive(Default)]
struct Told {
    replies: Cell<usize>,
    streams: Cell<usize>,
    news: Notify,
}

/// The handler of a shell socket.
struct Replies(Rc<Told>);

/// The handler of an iopub socket.
struct Streams {
    told: Rc<Told>,
    hears: Rc<Cell<bool>>,
}

/// How long a crowd may take before messages that have not come count as lost.
const TIMEOUT: Duration = Duration::from_secs(60);

impl Crowd {
    /// Connects `clients` clients, each with one `kernel_info_request`, and returns once all of them have
    /// their answer and receive iopub, with the time that the answers took. `None` if not all do.
    pub async fn join(info: &ConnectionInfo, clients: usize) -> Option<(Self, Duration)> {
        let start = Instant::now();
        let told = Rc::new(Told::default());
        let members = (0..clients).map(|number| Member::join(info, number, &told));
        let crowd = Self {
            members: members.collect(),
            told,
        };
        crowd.ask(info, 0..clients);
        crowd.wait(|told| told.replies.get() >= clients).await?;
        let took = start.elapsed();
        // A request now causes iopub messages to every client whose subscription has arrived.
        let deadline = Instant::now() + TIMEOUT;
        while !crowd.members.iter().all(|member| member.hears.get()) {
            if Instant::now() > deadline {
                return None;
            }
            crowd.ask(info, 0..1);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Some((crowd, took))
    }

    fn ask(&self, info: &ConnectionInfo, which: std::ops::Range<usize>) {
        for member in &self.members[which] {
            let id = uuid::Uuid::new_v4().simple().to_string();
            let header = NewHeader {
                msg_id: &id,
                session: &id,
                username: "bench",
                date: "2026-01-01T00:00:00Z",
                msg_type: "kernel_info_request",
            };
            let content = serde_json::json!({});
            let message = Verified::new(&header, Bytes::from_static(b"{}"), &content);
            let sent = member.shell.send(message.into_frames(&info.key));
            sent.expect("there is room");
        }
    }

    /// Resets the count of stream messages.
    pub fn forget(&self) {
        self.told.streams.set(0);
    }

    /// Waits until every client has received `each` stream messages; returns how many are missing.
    pub async fn hear(&self, each: usize) -> usize {
        let wanted = each * self.members.len();
        let _ = self.wait(|told| told.streams.get() >= wanted).await;
        wanted.saturating_sub(self.told.streams.get())
    }

    async fn wait(&self, enough: impl Fn(&Told) -> bool) -> Option<()> {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let news = self.told.news.notified();
            if enough(&self.told) {
                return Some(());
            }
            tokio::time::timeout_at(deadline, news).await.ok()?;
        }
    }
}

impl Member {
    fn join(info: &ConnectionInfo, number: usize, told: &Rc<Told>) -> Self {
        let dial = |channel, socket_type, handler: Rc<dyn DialHandler>| {
            let (identity, subscribe) = match socket_type {
                DialRole::Sub => (Bytes::new(), vec![Bytes::new()]),
                _ => (Bytes::from(format!("client-{number}")), Vec::new()),
            };
            let as_ = DialAs {
                socket_type,
                identity,
                subscribe,
            };
            Dialer::connect(
                info.endpoint(channel),
                as_,
                SocketLimits::default(),
                handler,
            )
        };
        let hears = Rc::new(Cell::new(false));
        let streams = Streams {
            told: Rc::clone(told),
            hears: Rc::clone(&hears),
        };
        let replies = Replies(Rc::clone(told));
        Self {
            _iopub: dial(Channel::Iopub, DialRole::Sub, Rc::new(streams)),
            shell: dial(Channel::Shell, DialRole::Dealer, Rc::new(replies)),
            hears,
        }
    }
}

impl DialHandler for Replies {
    fn up(&self) {}
    fn message(&self, _: Message) {
        self.0.replies.update(|count| count + 1);
        self.0.news.notify_waiters();
    }
    fn down(&self, _: &DisconnectReason, _: Vec<Message>) {}
    fn refused(&self, _: &io::Error) {}
}

impl DialHandler for Streams {
    fn up(&self) {}
    fn message(&self, message: Message) {
        self.hears.set(true);
        if message
            .first()
            .is_some_and(|topic| topic.ends_with(b"stream"))
        {
            self.told.streams.update(|count| count + 1);
            self.told.news.notify_waiters();
        }
    }
    fn down(&self, _: &DisconnectReason, _: Vec<Message>) {}
    fn refused(&self, _: &io::Error) {}
}

/// Subscribes to everything and never reads.
pub async fn stand_still(info: &ConnectionInfo) -> TcpStream {
    let Endpoint::Tcp(address) = info.endpoint(Channel::Iopub) else {
        panic!("the client's side is TCP");
    };
    let mut stream = TcpStream::connect(address).await.expect("connect");
    let limits = zmtp::FrameLimits::default();
    let mut connection = zmtp::Connection::new(zmtp::Role::Sub, Bytes::new(), limits);
    loop {
        while let Some(bytes) = connection.poll_transmit() {
            stream.write_all(&bytes).await.expect("write");
        }
        match connection.poll_event().expect("a peer of ours") {
            Some(zmtp::ConnectionEvent::Ready(_)) => break,
            Some(_) => {}
            None => {
                let read = stream.read_buf(&mut connection.space()).await;
                assert!(read.expect("read") > 0, "it has closed the connection");
            }
        }
    }
    let subscription = connection.subscription(true, b"");
    stream.write_all(&subscription).await.expect("write");
    stream
}
