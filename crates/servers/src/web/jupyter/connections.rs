//! The connected websockets, and the front end that each one has.
//!
//! A connection that is lost without a word leaves its front end in place for a while: a client that connects again
//! with the same `session_id` gets the kernel's messages of that time.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use tokio::io::AsyncReadExt;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_util::task::LocalPoolHandle;

use super::front_end::FrontEnd;
use super::models::kernel_id;
use crate::server::websocket::Framing;
use crate::web::handshake::WebSocket;
use crate::wire::Channel;

/// How many front ends there may be at a time.
const FRONT_ENDS_MAX: usize = 32;

/// How often a client is asked whether it is still there.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// How long a client may send nothing, and how long it may take no message.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// How long a front end waits for a client whose connection was lost.
const RECONNECT_TIME: Duration = Duration::from_secs(300);

/// How long a client may take to close its side.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to pass on the messages that a proxy has sent before it ended.
const LAST_MESSAGES_TIME: Duration = Duration::from_millis(200);

/// The longest reason in a close frame, in bytes.
const REASON_BYTES_MAX: usize = 123;

/// A command for the thread that has the front ends.
enum WorkerCommand {
    Connect(Box<Connection>),
    Interrupt(InterruptTarget, oneshot::Sender<Option<Result<(), String>>>),
    Restart(PathBuf, oneshot::Sender<Result<(), String>>),
    Close(oneshot::Sender<()>),
}

/// Which kernel is interrupted.
enum InterruptTarget {
    /// The one with this id, if a front end is connected to it.
    ConnectedKernel(String),
    /// That of this notebook.
    Notebook(PathBuf),
}

/// A websocket, and the kernel that it is for.
struct Connection {
    stream: WebSocket,
    client: Client,
}

/// The client of a websocket.
pub(super) struct Client {
    pub(super) framing: Framing,
    /// The notebook whose kernel it uses.
    pub(super) notebook: PathBuf,
    /// The id that it keeps when it connects again.
    pub(super) session: Option<String>,
    /// The number of its request: later requests have higher numbers.
    pub(super) arrival: u64,
    /// Released when its front end has ended.
    pub(super) permit: OwnedSemaphorePermit,
}

/// The front ends that are connected.
pub(in crate::web) struct FrontEnds {
    commands: mpsc::UnboundedSender<WorkerCommand>,
    permits: Arc<Semaphore>,
    arrivals: AtomicU64,
    /// The sockets stay on the thread that made them.
    _worker: LocalPoolHandle,
}

impl FrontEnds {
    /// Starts the thread that has them.
    pub(in crate::web) fn new() -> Self {
        let (commands, receiver) = mpsc::unbounded_channel();
        let worker = LocalPoolHandle::new(1);
        worker.spawn_pinned(|| serve_commands(receiver));
        Self {
            commands,
            permits: Arc::new(Semaphore::new(FRONT_ENDS_MAX)),
            arrivals: AtomicU64::new(0),
            _worker: worker,
        }
    }

    /// Returns a permit for one more; `None` if there are too many.
    pub(super) fn permit(&self) -> Option<OwnedSemaphorePermit> {
        self.permits.clone().try_acquire_owned().ok()
    }

    /// Returns the number of a request that has just come.
    pub(super) fn arrival(&self) -> u64 {
        self.arrivals.fetch_add(1, Ordering::Relaxed)
    }

    /// Connects a client once its websocket is there.
    pub(super) fn connect(
        &self,
        connected: impl Future<Output = Option<WebSocket>> + Send + 'static,
        client: Client,
    ) {
        let commands = self.commands.clone();
        tokio::spawn(async move {
            if let Some(stream) = connected.await {
                let connection = Connection { stream, client };
                let _ = commands.send(WorkerCommand::Connect(Box::new(connection)));
            }
        });
    }

    /// Interrupts what the kernel with an id runs, if a front end is connected to it; `None` if there is none. No kernel
    /// is asked what it does before.
    pub(super) async fn interrupt_connected(&self, id: String) -> Option<Result<(), String>> {
        self.send_interrupt(InterruptTarget::ConnectedKernel(id))
            .await
    }

    /// Interrupts what a notebook's kernel runs.
    ///
    /// # Errors
    /// Why it was not interrupted.
    pub(super) async fn interrupt(&self, notebook: PathBuf) -> Result<(), String> {
        let result = self
            .send_interrupt(InterruptTarget::Notebook(notebook))
            .await;
        result.unwrap_or(Ok(()))
    }

    async fn send_interrupt(&self, target: InterruptTarget) -> Option<Result<(), String>> {
        let (sender, answer) = oneshot::channel();
        let _ = self.commands.send(WorkerCommand::Interrupt(target, sender));
        answer
            .await
            .unwrap_or_else(|error| Some(Err(error.to_string())))
    }

    /// Restarts a notebook's kernel.
    ///
    /// # Errors
    /// Why it was not restarted.
    pub(super) async fn restart(&self, notebook: PathBuf) -> Result<(), String> {
        let (sender, answer) = oneshot::channel();
        let _ = self.commands.send(WorkerCommand::Restart(notebook, sender));
        answer.await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Ends all of them, before the process ends. The kernels go on.
    pub(in crate::web) async fn close(&self) {
        let (sender, answer) = oneshot::channel();
        let _ = self.commands.send(WorkerCommand::Close(sender));
        let _ = answer.await;
    }
}

/// A front end, and the connection that it has now.
struct AttachedFrontEnd {
    front_end: Rc<FrontEnd>,
    session: Option<String>,
    /// The connection that it is for, by its arrival.
    current_arrival: watch::Sender<u64>,
    /// Is locked by the connection that passes messages.
    passing: Mutex<()>,
    /// Is kept until the end.
    _permit: OwnedSemaphorePermit,
}

#[derive(Default)]
struct Registry(RefCell<Vec<Rc<AttachedFrontEnd>>>);

async fn serve_commands(mut commands: mpsc::UnboundedReceiver<WorkerCommand>) {
    let registry = Rc::new(Registry::default());
    while let Some(command) = commands.recv().await {
        let registry = Rc::clone(&registry);
        tokio::task::spawn_local(async move {
            match command {
                WorkerCommand::Connect(connection) => registry.connect(*connection).await,
                WorkerCommand::Interrupt(target, sender) => {
                    let notebook = match target {
                        InterruptTarget::Notebook(notebook) => Some(notebook),
                        InterruptTarget::ConnectedKernel(id) => registry.notebook_of(&id),
                    };
                    let _ = sender.send(match notebook {
                        Some(notebook) => Some(registry.interrupt(&notebook).await),
                        None => None,
                    });
                }
                WorkerCommand::Restart(notebook, sender) => {
                    // Not by a connected front end: its window may close meanwhile.
                    let work = async |front_end: &FrontEnd| front_end.restart().await;
                    let _ = sender.send(with_temporary_front_end(&notebook, work).await);
                }
                WorkerCommand::Close(sender) => {
                    let all = registry.0.borrow().clone();
                    all.iter().for_each(|it| it.front_end.leave());
                    for attached in all {
                        attached.front_end.wait_for_end().await;
                    }
                    let _ = sender.send(());
                }
            }
        });
    }
}

impl Registry {
    /// Returns the notebook whose kernel has an id, if a front end is connected to it.
    fn notebook_of(&self, kernel: &str) -> Option<PathBuf> {
        let all = self.0.borrow();
        let mut notebooks = all.iter().map(|it| it.front_end.notebook());
        let notebook = notebooks.find(|it| kernel_id(it) == kernel);
        notebook.map(Path::to_owned)
    }

    /// Interrupts for a request of the REST interface, which does not name its front end: as the front end whose cell
    /// without a reply was sent last, else as any front end, else as a temporary one.
    async fn interrupt(&self, notebook: &Path) -> Result<(), String> {
        let front_end = {
            let all = self.0.borrow();
            let all = all.iter().map(|attached| &attached.front_end);
            let of_notebook = all.filter(|it| it.notebook() == notebook && !it.is_leaving());
            of_notebook.max_by_key(|it| it.last_open_cell()).cloned()
        };
        if let Some(front_end) = front_end {
            let result = front_end.interrupt().await;
            if result.is_ok() || !front_end.is_leaving() {
                return result;
            }
        }
        with_temporary_front_end(notebook, async |front_end| front_end.interrupt().await).await
    }

    /// Serves a websocket until it closes.
    async fn connect(&self, connection: Connection) {
        let Connection { mut stream, client } = connection;
        let Client {
            framing,
            notebook,
            session,
            arrival,
            permit,
        } = client;
        let attached = match self.attached(notebook, session, arrival, permit) {
            Ok(attached) => attached,
            Err(error) => {
                tracing::warn!(%error, "a front end was not started");
                return close(&mut stream, CloseCode::Error, &error.to_string()).await;
            }
        };
        let mut current_arrival = attached.current_arrival.subscribe();
        let passing = async {
            let _passing = attached.passing.lock().await;
            pass(&attached.front_end, framing, &mut stream).await
        };
        let end = tokio::select! {
            biased;
            _ = current_arrival.wait_for(|now| *now != arrival) => PassingEnd::Replaced,
            end = passing => end,
        };
        let (code, reason) = match &end {
            PassingEnd::Closed | PassingEnd::Lost => (CloseCode::Normal, ""),
            PassingEnd::Replaced => (CloseCode::Normal, "the same session has connected again"),
            PassingEnd::TooLong => (CloseCode::Size, "a message has at most 64 MiB"),
            PassingEnd::Slow => (CloseCode::Again, "the client takes no messages"),
            PassingEnd::Ended(reason) if reason.is_empty() => {
                (CloseCode::Normal, "the front end has left")
            }
            PassingEnd::Ended(reason) => (CloseCode::Error, &**reason),
        };
        close(&mut stream, code, reason).await;
        drop(stream);
        if let PassingEnd::Lost = end
            && attached.session.is_some()
        {
            tokio::select! {
                () = tokio::time::sleep(RECONNECT_TIME) => {}
                _ = current_arrival.wait_for(|now| *now != arrival) => {}
                _ = attached.front_end.wait_for_end() => {}
            }
        }
        if *attached.current_arrival.borrow() == arrival {
            self.end(&attached).await;
        }
    }

    /// Returns the front end of a session, for another connection; makes one if it has none.
    ///
    /// Requests that come at once may be served in any order: the front end is for the one that came last. A client may
    /// have given up the others, and reads nothing from them.
    fn attached(
        &self,
        notebook: PathBuf,
        session: Option<String>,
        arrival: u64,
        permit: OwnedSemaphorePermit,
    ) -> std::io::Result<Rc<AttachedFrontEnd>> {
        let is_of_session = |it: &&Rc<AttachedFrontEnd>| {
            session.is_some()
                && it.session == session
                && it.front_end.notebook() == notebook
                && !it.front_end.is_leaving()
        };
        let mut all = self.0.borrow_mut();
        if let Some(attached) = all.iter().find(is_of_session) {
            attached
                .current_arrival
                .send_modify(|current_arrival| *current_arrival = arrival.max(*current_arrival));
            return Ok(Rc::clone(attached));
        }
        let attached = Rc::new(AttachedFrontEnd {
            front_end: FrontEnd::start(notebook)?,
            session,
            current_arrival: watch::Sender::new(arrival),
            passing: Mutex::new(()),
            _permit: permit,
        });
        all.push(Rc::clone(&attached));
        Ok(attached)
    }

    async fn end(&self, attached: &Rc<AttachedFrontEnd>) {
        self.0.borrow_mut().retain(|it| !Rc::ptr_eq(it, attached));
        attached.front_end.leave();
        attached.front_end.wait_for_end().await;
    }
}

/// Runs a task with a front end that exists for this task only.
async fn with_temporary_front_end(
    notebook: &Path,
    work: impl AsyncFnOnce(&FrontEnd) -> Result<(), String>,
) -> Result<(), String> {
    let front_end = FrontEnd::start(notebook.to_owned()).map_err(|it| it.to_string())?;
    let result = work(&front_end).await;
    front_end.leave();
    front_end.wait_for_end().await;
    result
}

/// How the passing of messages has ended.
enum PassingEnd {
    /// The client has closed the websocket.
    Closed,
    /// The connection was lost.
    Lost,
    /// The same session has connected again.
    Replaced,
    /// The client has sent a message that is too long.
    TooLong,
    /// The client takes no messages.
    Slow,
    /// No proxy serves the front end any more.
    Ended(String),
}

/// Passes messages between a websocket and a front end.
async fn pass(front_end: &FrontEnd, framing: Framing, stream: &mut WebSocket) -> PassingEnd {
    let (mut to_client, mut from_client) = stream.split();
    let last_received = Cell::new(Instant::now());
    let writer = async {
        let mut pings =
            tokio::time::interval_at((Instant::now() + PING_INTERVAL).into(), PING_INTERVAL);
        loop {
            let (channel, message) = tokio::select! {
                next = front_end.next() => next,
                _ = pings.tick() => {
                    if last_received.get().elapsed() >= SILENCE_MAX {
                        return PassingEnd::Lost;
                    }
                    match timeout(SILENCE_MAX, to_client.send(Message::Ping(Default::default()))).await {
                        Ok(Ok(())) => continue,
                        Ok(Err(_)) => return PassingEnd::Lost,
                        Err(_) => return PassingEnd::Slow,
                    }
                }
            };
            // All waiting messages are written together.
            let mut next = Some((channel, message));
            while let Some((channel, message)) = next {
                match framing.write(channel, &message) {
                    Ok(message) => match timeout(SILENCE_MAX, to_client.feed(message)).await {
                        Ok(Ok(())) => {}
                        Ok(Err(_)) => return PassingEnd::Lost,
                        Err(_) => return PassingEnd::Slow,
                    },
                    Err(error) => tracing::warn!(%channel, %error, "a message was dropped"),
                }
                next = front_end.take();
            }
            match timeout(SILENCE_MAX, to_client.flush()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return PassingEnd::Lost,
                Err(_) => return PassingEnd::Slow,
            }
        }
    };
    let reader = async {
        loop {
            let received = match from_client.next().await {
                Some(Ok(Message::Close(_))) => return PassingEnd::Closed,
                Some(Ok(received)) => received,
                Some(Err(Error::Capacity(_))) => return PassingEnd::TooLong,
                Some(Err(_)) | None => return PassingEnd::Lost,
            };
            last_received.set(Instant::now());
            match framing.read(received) {
                Ok(Some((Channel::Iopub | Channel::Heartbeat, _)) | None) => {}
                Ok(Some((channel, message))) => front_end.client_message(channel, message).await,
                Err(error) => tracing::warn!(%error, "a client's frame was dropped"),
            }
        }
    };
    tokio::pin!(writer);
    tokio::select! {
        end = reader => end,
        end = &mut writer => end,
        reason = front_end.wait_for_end() => {
            // The last messages of the proxy may still arrive.
            let _ = timeout(LAST_MESSAGES_TIME, writer).await;
            PassingEnd::Ended(reason.to_owned())
        }
    }
}

/// Closes a websocket, which may be closed already.
async fn close(stream: &mut WebSocket, code: CloseCode, reason: &str) {
    let mut end = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    let reason = reason.get(..end).unwrap_or_default().to_owned().into();
    let closes = async {
        // The answer to the client's own close frame may still wait.
        let _ = stream.flush().await;
        let _ = stream.close(Some(CloseFrame { code, reason })).await;
        // A connection with unread bytes is reset, and the client then may not read why.
        let mut bytes = vec![0; 1 << 16];
        while let Ok(1..) = stream.get_mut().read(&mut bytes).await {}
    };
    let _ = timeout(CLOSE_TIMEOUT, closes).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `jupyter_server` as a gateway's client gives up a connection that is not answered yet, makes another, and closes
    /// neither. It got no message any more if the first was answered after the second.
    #[tokio::test]
    async fn the_later_of_two_requests_of_a_session_is_served() {
        let registry = Registry::default();
        let front_ends = FrontEnds::new();
        let [first, second] = [front_ends.arrival(), front_ends.arrival()];
        let attached = |arrival| {
            let permit = front_ends.permit().unwrap();
            let session = Some("window-1".to_owned());
            registry.attached("/none/t.ipynb".into(), session, arrival, permit)
        };
        let test = async {
            let for_second = attached(second).unwrap();
            let for_first = attached(first).unwrap();
            assert!(Rc::ptr_eq(&for_first, &for_second));
            *for_first.current_arrival.borrow()
        };
        let local = tokio::task::LocalSet::new();
        assert_eq!(local.run_until(test).await, second);
    }
}
