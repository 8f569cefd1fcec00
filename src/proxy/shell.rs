//! How sockets, bridge and project files meet.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use jiff::Timestamp;
use rustix::io::Errno;
use tokio::sync::Notify;

use super::args::Launch;
use super::bound::{Bound, working_folder};
use super::counters::{Counters, Way};
use super::front::Front;
use super::links::Links;
use super::log;
use super::origin::Origin;
use super::relaunch;
use super::report;
use super::stop::{Asked, Orphan, Signals};
use super::target::{Named, Target, read_connection};
use crate::kernel::paths::ProcessVariables;
use crate::kernel::process::{Process, Signal};
use crate::project::Config;
use crate::route::{Action, Bridge, ClientId, Kernel, Note, Now, Settings};
use crate::socket::{Dialer, Message, PeerId, WhyUnsent};
use crate::wire::{Channel, ConnectionInfo, Verified};

/// Everything of one proxy, on one thread.
pub(super) struct Shell {
    pub(super) me: Weak<Self>,
    pub(super) id: String,
    /// The front end that launched this process, the process that it is, and when.
    pub(super) origin: Origin,
    pub(super) parent: Option<Process>,
    pub(super) launched_at: Timestamp,
    /// The front end's connection file. A Jupyter server's restart keeps it.
    pub(super) connection_file: PathBuf,
    /// The working directory.
    pub(super) folder: PathBuf,
    pub(super) settings: RefCell<Config>,
    pub(super) bridge: RefCell<Bridge>,
    front: OnceCell<Front>,
    /// The session that is served, once it is known which.
    pub(super) bound: RefCell<Option<Rc<Bound>>>,
    /// The session that the launch has named, where more is awaited before it is served.
    pub(super) given: RefCell<Option<Target>>,
    /// The sockets to today's kernel; kept when it has ended, until another is there.
    pub(super) links: RefCell<Option<Rc<Links>>>,
    /// The bridge's number for the kernel's last life.
    pub(super) number: Cell<u64>,
    /// What the clients' messages carry.
    pub(super) session: RefCell<Option<String>>,
    /// What makes the next launch recognisable as a restart.
    pub(super) record: RefCell<Option<relaunch::Own>>,
    pub(super) shutdown_requested: Cell<bool>,
    /// Whether actions are being carried out: what comes meanwhile is carried out by the same loop.
    acting: Cell<bool>,
    /// When the alarm of [`Shell::run`] goes off.
    armed: Cell<Option<Instant>>,
    rearm: Notify,
    /// The journal has something to write.
    write: Notify,
    stop: Notify,
    why: Cell<Option<&'static str>>,
    /// `state.json` or the kernel's process may have changed. Told from the watcher's thread too.
    pub(super) look: Arc<Notify>,
    pub(super) count: Rc<Counters>,
}

/// How long what is queued for the kernel has at the end, at least.
const LEAST: Duration = Duration::from_millis(200);
/// How many bytes of one client wait for a kernel before the client is not read any more.
const HELD_BYTES: usize = 64 << 20;
/// How many bytes wait for a client that is between two connections.
const UNDELIVERED_BYTES: usize = 64 << 20;

/// Serves a front end until it or the system says stop.
///
/// # Errors
/// What keeps it from starting, in words for the person who chose the kernel.
pub(super) async fn serve(launch: Launch, signals: Signals) -> anyhow::Result<()> {
    if std::env::var_os("NB_KERNEL").is_some() {
        bail!("this was launched from inside a shared kernel, which cannot be its own kernel");
    }
    log::begin();
    let connection =
        read_connection(&launch.connection_file).context("the front end's connection file")?;
    let origin = Origin::read(&ProcessVariables);
    let folder = working_folder()?;
    let named = Named::read(&launch, &origin, &ProcessVariables, &folder);
    let connection_file = launch.connection_file;
    let shell = Shell::bind(&connection, connection_file, origin, folder)?;
    shell.listen(signals)?;
    shell.begin(named).await?;
    shell.run().await;

    let orphaned = shell.why.get() == Some(ORPHANED);
    tracing::info!("stops: {}", shell.why.get().unwrap_or("asked to"));
    shell.close().await;
    if orphaned {
        // Nobody is left who would use it again; a front end that restarts its kernel does.
        let _ = std::fs::remove_file(&shell.connection_file);
    }
    Ok(())
}

const SIGTERM: &str = "SIGTERM";
/// A front end has restarted its kernel.
pub(super) const RESTARTS: &str = "its front end restarts it";
const ORPHANED: &str = "its front end is gone";

impl Shell {
    /// Binds the front end's ports. Whoever dials now waits for the kernel that is looked for next.
    fn bind(
        connection: &ConnectionInfo,
        connection_file: PathBuf,
        origin: Origin,
        folder: PathBuf,
    ) -> anyhow::Result<Rc<Self>> {
        let launched_at = Timestamp::now();
        let id = format!("nb-proxy-{}", uuid::Uuid::new_v4().simple());
        let settings = Settings {
            id: id.clone(),
            held_bytes: HELD_BYTES,
            undelivered_bytes: UNDELIVERED_BYTES,
            front_end: origin.front_end,
        };
        let shell = Rc::new_cyclic(|me| Self {
            me: me.clone(),
            id,
            origin,
            parent: parent(),
            launched_at,
            connection_file,
            folder,
            settings: RefCell::default(),
            bridge: RefCell::new(Bridge::new(settings, now())),
            front: OnceCell::new(),
            bound: RefCell::new(None),
            given: RefCell::new(None),
            links: RefCell::new(None),
            number: Cell::new(0),
            session: RefCell::new(None),
            record: RefCell::new(None),
            shutdown_requested: Cell::new(false),
            acting: Cell::new(false),
            armed: Cell::new(None),
            rearm: Notify::new(),
            write: Notify::new(),
            stop: Notify::new(),
            why: Cell::new(None),
            look: Arc::new(Notify::new()),
            count: Rc::default(),
        });
        let front = Front::bind(connection, &shell.me)?;
        shell
            .front
            .set(front)
            .unwrap_or_else(|_| unreachable!("bound once"));
        Ok(shell)
    }

    /// Lets the bridge take something, and carries out what it says.
    pub(super) fn route(&self, input: impl FnOnce(&mut Bridge, Now)) {
        input(&mut self.bridge.borrow_mut(), now());
        if self.acting.replace(true) {
            return;
        }
        loop {
            // The borrow ends here: an action may lead to the next input.
            let action = self.bridge.borrow_mut().poll_action();
            let Some(action) = action else { break };
            self.act(action);
        }
        self.acting.set(false);
        self.count.routed();
        let due = self.bridge.borrow().poll_timeout();
        self.wake_by(due);
    }

    /// Closes sockets that nobody needs now, where an error says that there are no descriptors left;
    /// returns whether it does.
    pub(super) fn makes_room(&self, error: &io::Error) -> bool {
        let full = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
        let full = error
            .raw_os_error()
            .is_some_and(|code| full.contains(&code));
        if full {
            self.route(|bridge, _| bridge.make_room());
        }
        full
    }

    /// Sees to it that timers are looked at no later than then.
    ///
    /// A time that has become later leaves the alarm as it is: to wake once for nothing is cheaper than to
    /// set it anew with each request that starts a timer and each reply that stops it.
    fn wake_by(&self, due: Option<Instant>) {
        if is_sooner(due, self.armed.get()) {
            self.rearm.notify_one();
        }
    }

    fn act(&self, action: Action) {
        let Some(front) = self.front.get() else {
            return;
        };
        let links = self.links.borrow().clone();
        match action {
            Action::ToClient {
                client,
                channel,
                message,
            } => {
                self.count.passed(Way::ToClients, channel, message.size());
                if let Err(why) = front.send(&client, channel, message) {
                    self.count.lost(1);
                    if why == WhyUnsent::Full {
                        self.count.cut();
                    }
                }
            }
            Action::Publish(message) => {
                let size = message.size();
                self.count.passed(Way::ToClients, Channel::Iopub, size);
                front.publish(message);
            }
            Action::ToKernel {
                client,
                channel,
                message,
            } => {
                self.count.passed(Way::ToKernel, channel, message.size());
                if channel == Channel::Stdin
                    && let Some(bound) = self.bound()
                {
                    bound.keep.answered(&client);
                }
                if let Some(links) = links {
                    links.send(&client, channel, message);
                }
            }
            Action::OpenLink { client, channel } => {
                if let Some(links) = links {
                    links.open(&client, channel);
                }
            }
            Action::CloseLinks(client) => {
                if let Some(links) = links {
                    links.close(&client);
                }
            }
            Action::SignalKernel => self.signal_kernel(),
            Action::Pause(client) => front.set_paused(&client, true),
            Action::Resume(client) => front.set_paused(&client, false),
            Action::Journal(execution) => {
                if let Some(bound) = self.bound() {
                    if let Some(links) = &links {
                        let kernel = links.kernel();
                        bound
                            .keep
                            .take(&execution, (&kernel.owner, kernel.generation));
                        self.wake_by(bound.keep.due());
                    }
                    bound.journal.take(execution);
                    self.write.notify_one();
                }
            }
            Action::JournalInterrupt { withdrawn, .. } => {
                if let Some(bound) = self.bound() {
                    bound.journal.interrupted(self.number.get(), withdrawn);
                    self.write.notify_one();
                }
            }
            Action::Widgets { version } => self.remember_widgets(&version),
            Action::Log(note) => {
                if let Note::Undeliverable { count, .. } | Note::NoKernel { count, .. } = note {
                    self.count.lost(count);
                }
                match note {
                    Note::RequestFailed { .. }
                    | Note::Undeliverable { .. }
                    | Note::NoKernel { .. } => {
                        tracing::warn!("{note}");
                    }
                    _ => tracing::info!("{note}"),
                }
            }
            Action::Heard { session } => self.heard(session),
            Action::HandOver { sessions } => self.spawn(async move |shell| {
                if let Some(bound) = shell.bound() {
                    let asked = bound.keep.hand_over(&bound.target, Some(&sessions)).await;
                    shell.keep_prompts(&asked);
                }
            }),
            Action::Bind { notebook } => self.bind_to(notebook),
            Action::Revive { .. } => self.revive(),
            Action::Leave { restart } => {
                self.shutdown_requested.set(true);
                if restart {
                    self.restart_and_leave();
                } else {
                    self.leave("its front end has shut it down");
                }
            }
        }
    }

    /// Keeps what a cell of this front end says.
    pub(super) fn keeps(&self, message: &Verified) {
        if let Some(bound) = &*self.bound.borrow() {
            bound.keep.heard(message);
            self.wake_by(bound.keep.due());
        }
    }

    /// Keeps what the kernel asks a client of this front end: one that goes cannot answer.
    pub(super) fn keeps_question(&self, client: &ClientId, message: &Verified) {
        let bound = self.bound();
        if bound.is_some_and(|bound| bound.keep.asked_input(client, message)) {
            self.keep_prompts(std::slice::from_ref(client));
        }
    }

    /// Leaves the answers to what was asked of these clients to the recorders of their cells.
    fn keep_prompts(&self, clients: &[ClientId]) {
        self.route(|bridge, _| {
            let kept = clients.iter();
            kept.for_each(|client| bridge.prompt_is_kept(client));
        });
    }

    fn signal_kernel(&self) {
        let process = self
            .links
            .borrow()
            .as_ref()
            .and_then(|links| links.kernel().process.clone());
        let done = process.map(|process| process.signal_group(Signal::INT));
        match done {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::warn!("the kernel was not interrupted: {error}"),
            None => tracing::warn!("the kernel was not interrupted: its process is not known"),
        }
    }

    pub(super) fn has_link(
        &self,
        client: &ClientId,
        channel: Channel,
        dialer: &Rc<Dialer>,
    ) -> bool {
        self.links
            .borrow()
            .as_ref()
            .is_some_and(|links| links.has(client, channel, dialer))
    }

    // ---- the heartbeat: bytes, whatever they are

    pub(super) fn beat_kernel(&self, peer: &PeerId, frames: Message) {
        let live = matches!(self.bridge.borrow().kernel(), Kernel::Live { .. });
        if live && let Some(links) = &*self.links.borrow() {
            self.count_beat(Way::FromClients, &frames);
            links.beat(peer, frames);
        }
    }

    fn count_beat(&self, way: Way, frames: &Message) {
        let size = frames.iter().map(bytes::Bytes::len).sum();
        self.count.passed(way, Channel::Heartbeat, size);
    }

    pub(super) fn beat_client(&self, peer: &PeerId, frames: Message) {
        if let Some(front) = self.front.get() {
            self.count_beat(Way::ToClients, &frames);
            front.beat(peer, frames);
        }
    }

    pub(super) fn heartbeat_left(&self, peer: &PeerId) {
        if let Some(links) = &*self.links.borrow() {
            links.stop_beat(peer);
        }
    }

    /// Returns whether somebody has shown that it is this client, a moment ago at least.
    pub(super) fn knows(&self, client: &ClientId) -> bool {
        self.bridge.borrow().knows(client)
    }

    // ---- running and stopping

    /// Who is connected has changed.
    pub(super) fn changed(&self) {
        if let Some(bound) = self.bound() {
            bound.tell(self.bridge.borrow().joined().count(), None);
        }
        self.count.touch();
    }

    /// Begins something that this thread does beside the rest.
    pub(super) fn spawn<F>(&self, task: F)
    where
        F: AsyncFnOnce(Rc<Self>) + 'static,
    {
        if let Some(shell) = self.me.upgrade() {
            tokio::task::spawn_local(async move { task(shell).await });
        }
    }

    fn listen(self: &Rc<Self>, signals: Signals) -> anyhow::Result<()> {
        let me = self.me.clone();
        signals.listen(move |asked| {
            let Some(shell) = me.upgrade() else { return };
            match asked {
                Asked::Stop => {
                    shell.leave_record();
                    shell.leave(SIGTERM);
                }
                Asked::Interrupt => shell.route(|bridge, now| bridge.interrupt(now)),
                Asked::Report => shell.report(),
            }
        })?;
        Ok(())
    }

    pub(super) fn leave(&self, why: &'static str) {
        self.why.set(Some(why));
        self.stop.notify_one();
    }

    /// Returns when it is time to stop.
    pub(super) async fn is_to_stop(&self) {
        self.stop.notified().await;
        // Kept for `run`, which ends at once.
        self.stop.notify_one();
    }

    /// Runs timers and follows the kernel until it is time to stop.
    async fn run(self: &Rc<Self>) {
        tokio::task::spawn_local(Rc::clone(&self.count).time());
        let telling = report::keep_telling(self.me.clone(), Rc::clone(&self.count));
        tokio::task::spawn_local(telling);
        let mut orphan = Orphan::watch();
        let mut look_at_parent = tokio::time::interval(Orphan::EVERY);
        let mut alarm = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
        loop {
            let keep_due = self.bound().and_then(|bound| bound.keep.due());
            for due in [self.bridge.borrow().poll_timeout(), keep_due] {
                if let Some(due) = due.filter(|_| is_sooner(due, self.armed.get())) {
                    alarm.as_mut().reset(due.into());
                    self.armed.set(Some(due));
                }
            }
            tokio::select! {
                () = self.stop.notified() => return,
                () = alarm.as_mut(), if self.armed.get().is_some() => {
                    self.armed.set(None);
                    if let Some(bound) = self.bound() {
                        bound.keep.store(&bound.target);
                    }
                    self.route(|bridge, now| bridge.handle_timeout(now));
                }
                () = self.rearm.notified() => {}
                () = self.write.notified() => self.write_journal(),
                () = self.look.notified() => self.refresh(),
                _ = look_at_parent.tick() => {
                    let subscribers = self.front.get().map_or(0, Front::subscribers);
                    if orphan.is_over(Instant::now(), subscribers) {
                        self.leave(ORPHANED);
                    }
                }
            }
        }
    }

    pub(super) fn write_journal(&self) {
        if let Some(bound) = self.bound() {
            bound.journal.write();
        }
    }

    /// Returns the front end's sockets.
    pub(super) fn front(&self) -> Option<&Front> {
        self.front.get()
    }

    /// Returns what is queued for the kernel, in bytes.
    pub(super) fn queued_for_kernel(&self) -> usize {
        let links = self.links.borrow();
        links.as_ref().map_or(0, |links| links.queued_bytes())
    }

    /// Delivers what was accepted, within a second at most. The kernel lives on.
    async fn close(&self) {
        let deadline = Instant::now() + Duration::from_secs(1);
        let links = self.links.borrow().clone();
        let bound = self.bound();
        let to_kernel = async {
            // A kernel that is restarted runs nothing of it any more.
            if let Some(bound) = bound.filter(|_| self.why.get() != Some(RESTARTS)) {
                let asked = bound.keep.hand_over(&bound.target, None).await;
                self.keep_prompts(&asked);
                self.route(|bridge, now| bridge.end_prompts(now));
            }
            if let Some(links) = links {
                links.finish(deadline.max(Instant::now() + LEAST)).await;
            }
        };
        let to_clients = async {
            match self.front.get() {
                Some(front) => front.close().await,
                None => 0,
            }
        };
        let ((), left) = tokio::join!(to_kernel, to_clients);
        self.write_journal();
        if let Some(own) = self.record.take() {
            own.withdraw();
        }
        if left > 0 {
            tracing::warn!(
                "{left} connections did not take what was queued for them within a second"
            );
        }
        self.report();
    }
}

fn now() -> Now {
    Now {
        instant: Instant::now(),
        date: jiff::Timestamp::now(),
    }
}

/// Returns the process that launched this one.
fn parent() -> Option<Process> {
    let pid = rustix::process::getppid()?.as_raw_nonzero().get();
    Process::of(u32::try_from(pid).ok()?)
}

/// Returns whether something is due before the alarm goes off; none goes off never.
fn is_sooner(due: Option<Instant>, alarm: Option<Instant>) -> bool {
    due.is_some_and(|due| alarm.is_none_or(|alarm| due < alarm))
}
