//! The connected websockets, and the front end that each one has.
//!
//! A connection that is lost without a word leaves its front end in place for a while: a client that connects again
//! with the same `session_id` gets what the kernel said meanwhile.

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
const MOST: usize = 32;

/// How often a client is asked whether it is still there.
const PING: Duration = Duration::from_secs(30);

/// How long a client may be silent, and take no message.
const SILENCE: Duration = Duration::from_secs(90);

/// How long a front end waits for a client whose connection was lost.
const KEPT: Duration = Duration::from_secs(300);

/// How long a client may take its part in closing.
const CLOSES: Duration = Duration::from_secs(1);

/// How long to pass on what a proxy has sent before it ended.
const LAST: Duration = Duration::from_millis(200);

/// The longest reason in a close frame, in bytes.
const REASON: usize = 123;

/// What is asked of the thread on which the front ends live.
enum Order {
    Connect(Box<Connection>),
    Interrupt(Interrupted, oneshot::Sender<Option<Result<(), String>>>),
    Restart(PathBuf, oneshot::Sender<Result<(), String>>),
    Close(oneshot::Sender<()>),
}

/// Which kernel is interrupted.
enum Interrupted {
    /// The one with this id, if a front end is connected to it.
    Connected(String),
    /// That of this notebook.
    Of(PathBuf),
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
    /// When its request came, as a number that grows.
    pub(super) arrival: u64,
    /// Is free again when its front end has ended.
    pub(super) place: OwnedSemaphorePermit,
}

/// The front ends that are connected.
pub(in crate::web) struct FrontEnds {
    orders: mpsc::UnboundedSender<Order>,
    places: Arc<Semaphore>,
    arrivals: AtomicU64,
    /// The sockets stay on the thread that made them.
    _worker: LocalPoolHandle,
}

impl FrontEnds {
    /// Starts the thread on which they live.
    pub(in crate::web) fn new() -> Self {
        let (orders, taken) = mpsc::unbounded_channel();
        let worker = LocalPoolHandle::new(1);
        worker.spawn_pinned(|| serve_orders(taken));
        Self {
            orders,
            places: Arc::new(Semaphore::new(MOST)),
            arrivals: AtomicU64::new(0),
            _worker: worker,
        }
    }

    /// Returns a place for one more; `None` if there are too many.
    pub(super) fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.places.clone().try_acquire_owned().ok()
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
        let orders = self.orders.clone();
        tokio::spawn(async move {
            if let Some(stream) = connected.await {
                let connection = Connection { stream, client };
                let _ = orders.send(Order::Connect(Box::new(connection)));
            }
        });
    }

    /// Interrupts what the kernel with an id runs, if a front end is connected to it; `None` if there is none. No kernel
    /// is asked what it does before.
    pub(super) async fn interrupt_connected(&self, id: String) -> Option<Result<(), String>> {
        self.send_interrupt(Interrupted::Connected(id)).await
    }

    /// Interrupts what a notebook's kernel runs.
    ///
    /// # Errors
    /// Why it was not interrupted.
    pub(super) async fn interrupt(&self, notebook: PathBuf) -> Result<(), String> {
        let done = self.send_interrupt(Interrupted::Of(notebook)).await;
        done.unwrap_or(Ok(()))
    }

    async fn send_interrupt(&self, which: Interrupted) -> Option<Result<(), String>> {
        let (done, answer) = oneshot::channel();
        let _ = self.orders.send(Order::Interrupt(which, done));
        answer
            .await
            .unwrap_or_else(|error| Some(Err(error.to_string())))
    }

    /// Restarts a notebook's kernel.
    ///
    /// # Errors
    /// Why it was not restarted.
    pub(super) async fn restart(&self, notebook: PathBuf) -> Result<(), String> {
        let (done, answer) = oneshot::channel();
        let _ = self.orders.send(Order::Restart(notebook, done));
        answer.await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Ends all of them, before the process ends. The kernels go on.
    pub(in crate::web) async fn close(&self) {
        let (done, answer) = oneshot::channel();
        let _ = self.orders.send(Order::Close(done));
        let _ = answer.await;
    }
}

/// A front end, and the connection that it has now.
struct Attached {
    front_end: Rc<FrontEnd>,
    session: Option<String>,
    /// The connection that it is for, by its arrival.
    turn: watch::Sender<u64>,
    /// Is locked by the connection that passes messages.
    passing: Mutex<()>,
    /// Is kept until the end.
    _place: OwnedSemaphorePermit,
}

#[derive(Default)]
struct Registry(RefCell<Vec<Rc<Attached>>>);

async fn serve_orders(mut orders: mpsc::UnboundedReceiver<Order>) {
    let registry = Rc::new(Registry::default());
    while let Some(order) = orders.recv().await {
        let registry = Rc::clone(&registry);
        tokio::task::spawn_local(async move {
            match order {
                Order::Connect(connection) => registry.connect(*connection).await,
                Order::Interrupt(which, done) => {
                    let notebook = match which {
                        Interrupted::Of(notebook) => Some(notebook),
                        Interrupted::Connected(id) => registry.notebook_of(&id),
                    };
                    let _ = done.send(match notebook {
                        Some(notebook) => Some(registry.interrupt(&notebook).await),
                        None => None,
                    });
                }
                Order::Restart(notebook, done) => {
                    // Not by a front end that is connected: its window may close meanwhile.
                    let work = async |front_end: &FrontEnd| front_end.restart().await;
                    let _ = done.send(once(&notebook, work).await);
                }
                Order::Close(done) => {
                    let all = registry.0.borrow().clone();
                    all.iter().for_each(|it| it.front_end.leave());
                    for attached in all {
                        attached.front_end.ended().await;
                    }
                    let _ = done.send(());
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
        let found = notebooks.find(|it| kernel_id(it) == kernel);
        found.map(Path::to_owned)
    }

    /// Interrupts for a request of the REST interface, which does not say whose it is: as the front end that has sent a
    /// cell last that is not over, else as any, else as one that is there for this only.
    async fn interrupt(&self, notebook: &Path) -> Result<(), String> {
        let found = {
            let all = self.0.borrow();
            let all = all.iter().map(|attached| &attached.front_end);
            let own = all.filter(|it| it.notebook() == notebook && !it.is_leaving());
            own.max_by_key(|it| it.last_open_cell()).cloned()
        };
        if let Some(front_end) = found {
            let done = front_end.interrupt().await;
            if done.is_ok() || !front_end.is_leaving() {
                return done;
            }
        }
        once(notebook, async |front_end| front_end.interrupt().await).await
    }

    /// Serves a websocket until it closes.
    async fn connect(&self, connection: Connection) {
        let Connection { mut stream, client } = connection;
        let Client {
            framing,
            notebook,
            session,
            arrival: own,
            place,
        } = client;
        let attached = match self.attached(notebook, session, own, place) {
            Ok(attached) => attached,
            Err(error) => {
                tracing::warn!(%error, "a front end was not started");
                return close(&mut stream, CloseCode::Error, &error.to_string()).await;
            }
        };
        let mut turn = attached.turn.subscribe();
        let passes = async {
            let _passing = attached.passing.lock().await;
            pass(&attached.front_end, framing, &mut stream).await
        };
        let left = tokio::select! {
            biased;
            _ = turn.wait_for(|now| *now != own) => Left::Replaced,
            left = passes => left,
        };
        let (code, reason) = match &left {
            Left::Closed | Left::Lost => (CloseCode::Normal, ""),
            Left::Replaced => (CloseCode::Normal, "the same session has connected again"),
            Left::TooLong => (CloseCode::Size, "a message has at most 64 MiB"),
            Left::Slow => (CloseCode::Again, "the client takes no messages"),
            Left::Ended(why) if why.is_empty() => (CloseCode::Normal, "the front end has left"),
            Left::Ended(why) => (CloseCode::Error, &**why),
        };
        close(&mut stream, code, reason).await;
        drop(stream);
        if let Left::Lost = left
            && attached.session.is_some()
        {
            tokio::select! {
                () = tokio::time::sleep(KEPT) => {}
                _ = turn.wait_for(|now| *now != own) => {}
                _ = attached.front_end.ended() => {}
            }
        }
        if *attached.turn.borrow() == own {
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
        place: OwnedSemaphorePermit,
    ) -> std::io::Result<Rc<Attached>> {
        let is_it = |it: &&Rc<Attached>| {
            session.is_some()
                && it.session == session
                && it.front_end.notebook() == notebook
                && !it.front_end.is_leaving()
        };
        let mut all = self.0.borrow_mut();
        if let Some(attached) = all.iter().find(is_it) {
            attached.turn.send_modify(|turn| *turn = arrival.max(*turn));
            return Ok(Rc::clone(attached));
        }
        let attached = Rc::new(Attached {
            front_end: FrontEnd::start(notebook)?,
            session,
            turn: watch::Sender::new(arrival),
            passing: Mutex::new(()),
            _place: place,
        });
        all.push(Rc::clone(&attached));
        Ok(attached)
    }

    async fn end(&self, attached: &Rc<Attached>) {
        self.0.borrow_mut().retain(|it| !Rc::ptr_eq(it, attached));
        attached.front_end.leave();
        attached.front_end.ended().await;
    }
}

/// Does something as a front end that is there for this only.
async fn once(
    notebook: &Path,
    work: impl AsyncFnOnce(&FrontEnd) -> Result<(), String>,
) -> Result<(), String> {
    let front_end = FrontEnd::start(notebook.to_owned()).map_err(|it| it.to_string())?;
    let done = work(&front_end).await;
    front_end.leave();
    front_end.ended().await;
    done
}

/// How the passing of messages has ended.
enum Left {
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
async fn pass(front_end: &FrontEnd, framing: Framing, stream: &mut WebSocket) -> Left {
    let (mut to_client, mut from_client) = stream.split();
    let heard = Cell::new(Instant::now());
    let writer = async {
        let mut pings = tokio::time::interval_at((Instant::now() + PING).into(), PING);
        loop {
            let (channel, message) = tokio::select! {
                next = front_end.next() => next,
                _ = pings.tick() => {
                    if heard.get().elapsed() >= SILENCE {
                        return Left::Lost;
                    }
                    match timeout(SILENCE, to_client.send(Message::Ping(Default::default()))).await {
                        Ok(Ok(())) => continue,
                        Ok(Err(_)) => return Left::Lost,
                        Err(_) => return Left::Slow,
                    }
                }
            };
            // What waits is written at once.
            let mut next = Some((channel, message));
            while let Some((channel, message)) = next {
                match framing.write(channel, &message) {
                    Ok(message) => match timeout(SILENCE, to_client.feed(message)).await {
                        Ok(Ok(())) => {}
                        Ok(Err(_)) => return Left::Lost,
                        Err(_) => return Left::Slow,
                    },
                    Err(error) => tracing::warn!(%channel, %error, "a message was dropped"),
                }
                next = front_end.take();
            }
            match timeout(SILENCE, to_client.flush()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Left::Lost,
                Err(_) => return Left::Slow,
            }
        }
    };
    let reader = async {
        loop {
            let received = match from_client.next().await {
                Some(Ok(Message::Close(_))) => return Left::Closed,
                Some(Ok(received)) => received,
                Some(Err(Error::Capacity(_))) => return Left::TooLong,
                Some(Err(_)) | None => return Left::Lost,
            };
            heard.set(Instant::now());
            match framing.read(received) {
                Ok(Some((Channel::Iopub | Channel::Heartbeat, _)) | None) => {}
                Ok(Some((channel, message))) => front_end.client_message(channel, message).await,
                Err(error) => tracing::warn!(%error, "a client's frame was dropped"),
            }
        }
    };
    tokio::pin!(writer);
    tokio::select! {
        left = reader => left,
        left = &mut writer => left,
        why = front_end.ended() => {
            // What the proxy has sent before may still arrive.
            let _ = timeout(LAST, writer).await;
            Left::Ended(why.to_owned())
        }
    }
}

/// Closes a websocket, which may be closed already.
async fn close(stream: &mut WebSocket, code: CloseCode, reason: &str) {
    let mut end = reason.len().min(REASON);
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
    let _ = timeout(CLOSES, closes).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `jupyter_server` as a gateway's client gives up a connection that is not answered yet, makes another, and closes
    /// neither. It got no message any more if the first was answered after the second.
    #[tokio::test]
    async fn of_two_requests_of_a_session_the_later_is_served() {
        let registry = Registry::default();
        let front_ends = FrontEnds::new();
        let [first, second] = [front_ends.arrival(), front_ends.arrival()];
        let attached = |arrival| {
            let place = front_ends.place().unwrap();
            let session = Some("window-1".to_owned());
            registry.attached("/none/t.ipynb".into(), session, arrival, place)
        };
        let serves = async {
            let of_second = attached(second).unwrap();
            let of_first = attached(first).unwrap();
            assert!(Rc::ptr_eq(&of_first, &of_second));
            *of_first.turn.borrow()
        };
        let local = tokio::task::LocalSet::new();
        assert_eq!(local.run_until(serves).await, second);
    }
}
