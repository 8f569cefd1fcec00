//! One front end: an `nb-proxy`, launched as any front end launches it, and the sockets to it.
//!
//! Messages from the kernel wait here until a websocket takes them. When too many wait, the sockets are read no
//! further; the proxy then stores the messages, up to its own limits.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::{Notify, SetOnce, oneshot, watch};
use tokio::time::timeout;

use crate::kernel::process::own_program;
use crate::kernel::spec::{PROXY, SHARED};
use crate::project::fresh_id;
use crate::socket::{
    DialAs, DialHandler, DialRole, Dialer, DisconnectReason, Message, OutboxFull, SocketLimits,
};
use crate::web::callers::FRONT_END;
use crate::wire::{
    Channel, ConnectionInfo, NewHeader, Ports, SOCKET_PATH_MAX, SigningKey, Transport, Verified,
};

/// How many bytes of messages may wait for the client before the sockets are read no further.
const WAITING_BYTES: usize = 16 << 20;

/// How long to wait for the proxy's `iopub_welcome`: a client that sends a request before may miss messages about it. A
/// kernel that holds Python's lock sends nothing for long.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the proxy may take to end.
const PROXY_END_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the proxy may take to reply, and how long until the next proxy is launched.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a new kernel may take.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long to read the stderr of a proxy that has ended: a process that it has started may hold the pipe open.
const STDERR_TIMEOUT: Duration = Duration::from_millis(200);

/// How many of the last bytes of a proxy's stderr are stored.
const STDERR_BYTES_MAX: usize = 4096;

/// The environment variables that are removed: by these a proxy would detect another front end or another kernel.
const REMOVED_VARIABLES: [&str; 9] = [
    "JUPYTER_SERVER_ROOT",
    "NB_KERNEL",
    "NB_LANGUAGE",
    "NB_NOTEBOOK",
    "NB_STATE",
    "VSCODE_CWD",
    "VSCODE_IPC_HOOK",
    "VSCODE_NLS_CONFIG",
    "VSCODE_PID",
];

/// The channels of a front end's sockets.
const CHANNELS: [Channel; 4] = [
    Channel::Iopub,
    Channel::Shell,
    Channel::Control,
    Channel::Stdin,
];

/// A front end. It stays on one thread.
pub(super) struct FrontEnd {
    notebook: PathBuf,
    /// The folder of the connection file and the sockets.
    folder: tempfile::TempDir,
    connection: ConnectionInfo,
    sockets: OnceCell<Vec<(Channel, Dialer)>>,
    /// The session of this process's own requests.
    session: String,
    waiting: RefCell<VecDeque<(Channel, Verified)>>,
    waiting_bytes: Cell<usize>,
    is_paused: Cell<bool>,
    message_arrived: Notify,
    /// The number of `iopub_welcome`s of proxies; one more if none has arrived in time.
    welcomes: watch::Sender<u64>,
    /// The requests of this process that wait for their replies.
    pending: RefCell<HashMap<String, oneshot::Sender<()>>>,
    /// The client's cells that have no reply yet.
    cells: RefCell<HashSet<String>>,
    /// When the last cell was sent.
    last_cell: Cell<Option<Instant>>,
    /// Whether the proxy was requested to restart the kernel: another proxy follows it.
    expects_restart: Cell<bool>,
    /// How many proxies were launched.
    launches: watch::Sender<u64>,
    leave_notify: Notify,
    is_leaving: Cell<bool>,
    /// Why the last proxy has ended; empty if its end was requested.
    end_reason: SetOnce<String>,
}

/// Handles the events of one socket.
struct Socket {
    front_end: Weak<FrontEnd>,
    channel: Channel,
}

impl FrontEnd {
    /// Launches a proxy for a notebook.
    ///
    /// # Errors
    /// Its folder cannot be made.
    pub(super) fn start(notebook: PathBuf) -> io::Result<Rc<Self>> {
        let folder = folder()?;
        let connection = ConnectionInfo {
            transport: Transport::Ipc,
            ip: prefix(folder.path()).to_string_lossy().into_owned(),
            ports: Ports {
                shell: 1,
                iopub: 2,
                stdin: 3,
                control: 4,
                hb: 5,
            },
            key: SigningKey::new((fresh_id() + &fresh_id()).as_bytes()),
            kernel_name: Some(SHARED.to_owned()),
        };
        let mut file = std::fs::File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(connection_file(folder.path()))?;
        file.write_all(connection.to_json().as_bytes())?;
        let front_end = Rc::new(Self {
            notebook,
            folder,
            connection,
            sockets: OnceCell::new(),
            session: fresh_id(),
            waiting: RefCell::default(),
            waiting_bytes: Cell::new(0),
            is_paused: Cell::new(false),
            message_arrived: Notify::new(),
            welcomes: watch::Sender::new(0),
            pending: RefCell::default(),
            cells: RefCell::default(),
            last_cell: Cell::new(None),
            expects_restart: Cell::new(false),
            launches: watch::Sender::new(0),
            leave_notify: Notify::new(),
            is_leaving: Cell::new(false),
            end_reason: SetOnce::new(),
        });
        let identity = Bytes::from(front_end.session.clone());
        let sockets = CHANNELS.map(|channel| (channel, front_end.dial(channel, &identity)));
        let _ = front_end.sockets.set(sockets.into());
        tokio::task::spawn_local(front_end.clone().run());
        Ok(front_end)
    }

    fn dial(self: &Rc<Self>, channel: Channel, identity: &Bytes) -> Dialer {
        let is_iopub = channel == Channel::Iopub;
        let introduction = DialAs {
            socket_type: match is_iopub {
                true => DialRole::Sub,
                false => DialRole::Dealer,
            },
            identity: match is_iopub {
                true => Bytes::new(),
                false => identity.clone(),
            },
            subscribe: is_iopub.then(Bytes::new).into_iter().collect(),
        };
        let handler = Rc::new(Socket {
            front_end: Rc::downgrade(self),
            channel,
        });
        let endpoint = self.connection.endpoint(channel);
        Dialer::connect(endpoint, introduction, SocketLimits::default(), handler)
    }

    /// Returns the notebook.
    pub(super) fn notebook(&self) -> &Path {
        &self.notebook
    }

    /// Returns when the last of the client's cells was sent that has no reply yet.
    pub(super) fn last_open_cell(&self) -> Option<Instant> {
        let is_open = !self.cells.borrow().is_empty();
        self.last_cell.get().filter(|_| is_open)
    }

    /// Ends the proxy. The kernel goes on.
    pub(super) fn leave(&self) {
        self.is_leaving.set(true);
        self.leave_notify.notify_one();
    }

    /// Returns whether its end was requested, or it has ended.
    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving.get() || self.end_reason.initialized()
    }

    /// Waits until no proxy serves this front end any more; returns the reason, or an empty text if its end was requested.
    pub(super) async fn wait_for_end(&self) -> &str {
        self.end_reason.wait().await
    }

    // ---- messages

    /// Waits for the next message of the kernel. The future may be dropped.
    pub(super) async fn next(&self) -> (Channel, Verified) {
        loop {
            if let Some(next) = self.take() {
                return next;
            }
            self.message_arrived.notified().await;
        }
    }

    /// Returns the next message of the kernel, if one waits.
    pub(super) fn take(&self) -> Option<(Channel, Verified)> {
        let next = self.waiting.borrow_mut().pop_front()?;
        let remaining = self.waiting_bytes.get().saturating_sub(next.1.size());
        self.waiting_bytes.set(remaining);
        if remaining <= WAITING_BYTES / 2 && self.is_paused.replace(false) {
            self.pause(false);
        }
        Some(next)
    }

    fn pause(&self, paused: bool) {
        for (_, socket) in self.sockets.get().into_iter().flatten() {
            socket.set_paused(paused);
        }
    }

    /// Sends a message of the client; waits while the proxy takes none.
    pub(super) async fn client_message(&self, channel: Channel, message: Verified) {
        if let Ok(header) = message.header() {
            match &*header.msg_type {
                "execute_request" => {
                    self.cells.borrow_mut().insert(header.msg_id.to_string());
                    self.last_cell.set(Some(Instant::now()));
                }
                "shutdown_request" => {
                    #[derive(Deserialize)]
                    struct Shutdown {
                        #[serde(default)]
                        restart: bool,
                    }
                    let content: Option<Shutdown> = message.read_content();
                    self.expects_restart
                        .set(content.is_some_and(|content| content.restart));
                }
                _ => {}
            }
        }
        self.send(channel, message).await;
    }

    async fn send(&self, channel: Channel, message: Verified) {
        let mut welcomes = self.welcomes.subscribe();
        let welcome = timeout(WELCOME_TIMEOUT, welcomes.wait_for(|count| *count > 0));
        if welcome.await.is_err() {
            self.welcomes.send_modify(|count| *count += 1);
        }
        let sockets = self.sockets.get().into_iter().flatten();
        let mut sockets = sockets.filter(|(socket_channel, _)| *socket_channel == channel);
        let Some((_, socket)) = sockets.next().filter(|_| channel != Channel::Iopub) else {
            return;
        };
        let mut frames = message.into_frames(&self.connection.key);
        while let Err(OutboxFull(unsent)) = socket.send(frames) {
            frames = unsent;
            socket.room().await;
        }
    }

    /// Takes a message of the kernel.
    fn kernel_message(&self, channel: Channel, frames: Message) {
        let Ok(mut message) = self.connection.key.receive(frames) else {
            return;
        };
        if !message.read_headers() {
            return;
        }
        let header = message.header();
        let is_type = |msg_type: &str| {
            let header = header.as_ref();
            header.is_ok_and(|header| header.msg_type == msg_type)
        };
        match channel {
            Channel::Iopub if is_type("iopub_welcome") => {
                self.welcomes.send_modify(|count| *count += 1);
            }
            Channel::Iopub => {}
            _ => {
                let parent = message.parent();
                let parent = parent.map(|it| it.msg_id.to_string()).unwrap_or_default();
                if let Some(sender) = self.pending.borrow_mut().remove(&parent) {
                    let _ = sender.send(());
                    return;
                }
                if is_type("execute_reply") {
                    self.cells.borrow_mut().remove(&parent);
                }
            }
        }
        let waiting = self.waiting_bytes.get() + message.size();
        self.waiting_bytes.set(waiting);
        self.waiting.borrow_mut().push_back((channel, message));
        self.message_arrived.notify_one();
        if waiting > WAITING_BYTES && !self.is_paused.replace(true) {
            self.pause(true);
        }
    }

    // ---- requests of this process

    /// Interrupts, by the rules of the proxy: cells of this front end that wait are withdrawn; where there are none, the
    /// kernel is interrupted.
    ///
    /// # Errors
    /// No answer came.
    pub(super) async fn interrupt(&self) -> Result<(), String> {
        let content = json!({});
        self.send_request(
            Channel::Control,
            "interrupt_request",
            &content,
            REPLY_TIMEOUT,
        )
        .await
    }

    /// Restarts the kernel, by the rules of the proxy, and waits until the next proxy is connected to the new one.
    ///
    /// # Errors
    /// No answer came, or no kernel.
    pub(super) async fn restart(&self) -> Result<(), String> {
        self.expects_restart.set(true);
        let mut launches = self.launches.subscribe();
        let before = *launches.borrow_and_update();
        let content = json!({"restart": true});
        self.send_request(
            Channel::Control,
            "shutdown_request",
            &content,
            REPLY_TIMEOUT,
        )
        .await?;
        let next = timeout(REPLY_TIMEOUT, launches.wait_for(|now| *now > before));
        if next.await.is_err() {
            return Err("the restart was not begun".to_owned());
        }
        let mut welcomes = self.welcomes.subscribe();
        let before = *welcomes.borrow_and_update();
        tokio::select! {
            welcome = timeout(START_TIMEOUT, welcomes.wait_for(|now| *now > before)) => match welcome {
                Ok(_) => Ok(()),
                Err(_) => Err(format!("the new kernel was not there within {} s", START_TIMEOUT.as_secs())),
            },
            reason = self.wait_for_end() => Err(end_text(reason)),
        }
    }

    async fn send_request(
        &self,
        channel: Channel,
        msg_type: &str,
        content: &Value,
        limit: Duration,
    ) -> Result<(), String> {
        let id = fresh_id();
        let date = format!("{:.6}", Timestamp::now());
        let header = NewHeader {
            msg_id: &id,
            session: &self.session,
            username: "nb",
            date: &date,
            msg_type,
        };
        let request = Verified::new(&header, Bytes::from_static(b"{}"), content);
        let (sender, reply) = oneshot::channel();
        self.pending.borrow_mut().insert(id.clone(), sender);
        let reply_wait = async {
            self.send(channel, request).await;
            reply.await
        };
        let result = tokio::select! {
            result = timeout(limit, reply_wait) => match result {
                Ok(Ok(())) => Ok(()),
                _ => Err(format!("no reply to the {msg_type} came within {} s", limit.as_secs())),
            },
            reason = self.wait_for_end() => Err(end_text(reason)),
        };
        self.pending.borrow_mut().remove(&id);
        result
    }

    // ---- the proxy

    /// Keeps a proxy running until the front end leaves.
    async fn run(self: Rc<Self>) {
        let reason = loop {
            let mut child = match self.launch() {
                Ok(child) => child,
                Err(error) => break format!("{PROXY} was not started: {error}"),
            };
            let stderr = ProxyStderr::read(child.stderr.take());
            self.launches.send_modify(|count| *count += 1);
            let status = tokio::select! {
                status = child.wait() => status,
                () = self.leave_notify.notified() => {
                    stop(&mut child).await;
                    break String::new();
                }
            };
            // The requests that it had get no reply.
            self.cells.borrow_mut().clear();
            let is_success = status.is_ok_and(|status| status.success());
            match (is_success, self.expects_restart.replace(false)) {
                (true, true) => {}
                (true, false) => break String::new(),
                (false, _) => break stderr.text().await,
            }
        };
        if !reason.is_empty() {
            tracing::warn!(notebook = %self.notebook.display(), "a front end's {PROXY} has ended: {reason}");
        }
        // Removed here, because this process may end next without dropping anything.
        let _ = std::fs::remove_dir_all(self.folder.path());
        let _ = self.end_reason.set(reason);
    }

    fn launch(&self) -> io::Result<Child> {
        let mut command = Command::new(own_program()?);
        for name in REMOVED_VARIABLES {
            command.env_remove(name);
        }
        command
            .arg0(PROXY)
            .arg("-f")
            .arg(connection_file(self.folder.path()))
            .arg("--notebook")
            .arg(&self.notebook)
            .env("NB_FRONT_END", FRONT_END)
            // These show that a server launches it, whose front end sends interrupts and restarts as requests.
            .env("JPY_SESSION_NAME", &self.notebook)
            .env("JPY_PARENT_PID", std::process::id().to_string())
            .current_dir(self.notebook.parent().unwrap_or(Path::new("/")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Ctrl-C in a terminal is meant for this process: a proxy takes it for an interrupt of the cell.
            .process_group(0);
        command.spawn()
    }
}

impl DialHandler for Socket {
    fn up(&self) {
        // A new connection is read.
        if let Some(front_end) = self.front_end.upgrade()
            && front_end.is_paused.get()
        {
            front_end.pause(true);
        }
    }

    fn message(&self, message: Message) {
        if let Some(front_end) = self.front_end.upgrade() {
            front_end.kernel_message(self.channel, message);
        }
    }

    /// The messages that one proxy has not read go to the next.
    fn down(&self, _reason: &DisconnectReason, unsent: Vec<Message>) {
        let Some(front_end) = self.front_end.upgrade() else {
            return;
        };
        let sockets = front_end.sockets.get().into_iter().flatten();
        for (_, socket) in sockets.filter(|(socket_channel, _)| *socket_channel == self.channel) {
            for message in unsent.iter().cloned() {
                // The messages fitted before.
                let _ = socket.send(message);
            }
        }
    }

    fn refused(&self, _error: &io::Error) {}
}

/// The last bytes that a proxy writes to stderr.
struct ProxyStderr {
    text: Rc<RefCell<Vec<u8>>>,
    reading: tokio::task::JoinHandle<()>,
}

impl ProxyStderr {
    fn read(stderr: Option<ChildStderr>) -> Self {
        let text = Rc::new(RefCell::new(Vec::new()));
        let buffer = Rc::clone(&text);
        let reading = tokio::task::spawn_local(async move {
            let Some(mut stderr) = stderr else { return };
            let mut bytes = [0; 1024];
            while let Ok(count @ 1..) = stderr.read(&mut bytes).await {
                let mut buffer = buffer.borrow_mut();
                buffer.extend_from_slice(bytes.get(..count).unwrap_or_default());
                let excess = buffer.len().saturating_sub(STDERR_BYTES_MAX);
                buffer.drain(..excess);
            }
        });
        Self { text, reading }
    }

    async fn text(mut self) -> String {
        let _ = timeout(STDERR_TIMEOUT, &mut self.reading).await;
        let text = self.text.borrow();
        let text = String::from_utf8_lossy(&text).trim().to_owned();
        match text.is_empty() {
            true => format!("{PROXY} has ended"),
            false => text,
        }
    }
}

/// Returns the error of a request to a front end that has ended.
fn end_text(reason: &str) -> String {
    match reason {
        "" => "the front end has left".to_owned(),
        reason => reason.to_owned(),
    }
}

/// Ends a proxy as front ends do.
async fn stop(child: &mut Child) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    if let Some(pid) = pid.and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::TERM);
    }
    if timeout(PROXY_END_TIMEOUT, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

/// Makes a private folder in which the paths of sockets are not too long.
fn folder() -> io::Result<tempfile::TempDir> {
    let make = |parent: &Path| {
        tempfile::Builder::new()
            .prefix("nb-web-")
            .tempdir_in(parent)
    };
    let folder = make(&std::env::temp_dir())?;
    let longest = prefix(folder.path()).as_os_str().len() + "-65535".len();
    match longest > SOCKET_PATH_MAX {
        true => make(Path::new("/tmp")),
        false => Ok(folder),
    }
}

fn prefix(folder: &Path) -> PathBuf {
    folder.join("s")
}

fn connection_file(folder: &Path) -> PathBuf {
    folder.join("kernel.json")
}
