//! How sockets, bridge and project files meet.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
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
use super::keep::{Keep, Published, Settle, Which};
use super::links::Links;
use super::log;
use super::origin::Origin;
use super::panics;
use super::relaunch;
use super::report;
use super::stop::{Asked, Orphan, Signals};
use super::storage::FileWork;
use super::target::{Named, Target, read_connection};
use super::words;
use crate::kernel::process::{Process, Signal};
use crate::kernel::variables::ProcessVariables;
use crate::project::Config;
use crate::route::{Action, Bridge, ClientId, FrontEnd, Kernel, Note, Now, Settings};
use crate::socket::{Dialer, Message, PeerId, UnsentReason};
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
    /// How many panics there were.
    panics: Cell<u32>,
    #[cfg(test)]
    panics_next: Cell<bool>,
    /// When the alarm of [`Shell::run`] goes off.
    armed: Cell<Option<Instant>>,
    pub(super) rearm: Rc<Notify>,
    /// Reading and writing the state.
    pub(super) state_work: FileWork,
    /// A refresh waits for its turn.
    pub(super) refresh_waits: Cell<bool>,
    /// How often the state was read on this thread: what another thread has read before is older.
    pub(super) looks: Cell<u64>,
    /// Writing the records of who is joined.
    pub(super) presence_work: Rc<FileWork>,
    stop: Notify,
    /// A subscriber has left.
    pub(super) parted: Notify,
    why: Cell<Option<&'static str>>,
    /// How the kernel ended with which this process ends.
    died: RefCell<Option<String>>,
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
    panics::begin();
    let connection =
        read_connection(&launch.connection_file).context("the front end's connection file")?;
    let origin = Origin::read(&ProcessVariables);
    let folder = working_folder()?;
    let named = Named::read(&launch, &origin, &ProcessVariables, &folder);
    let connection_file = launch.connection_file;
    let shell = Shell::bind(&connection, connection_file, origin, folder)?;
    shell.listen(signals)?;
    if let Err(error) = shell.begin(named).await {
        shell.finish_records(Instant::now()).await;
        return Err(error);
    }
    shell.run_on().await;

    let orphaned = shell.why.get() == Some(ORPHANED);
    tracing::info!("stops: {}", shell.why.get().unwrap_or("asked to"));
    shell.close().await;
    if orphaned {
        // Nobody is left who would use it again; a front end that restarts its kernel does.
        let _ = std::fs::remove_file(&shell.connection_file);
    }
    if shell.why.get() == Some(BROKEN) {
        bail!(
            "it had {} internal faults; its log says where",
            shell.panics.get()
        );
    }
    match shell.died.take() {
        Some(how) => bail!(how),
        None => Ok(()),
    }
}

const SIGTERM: &str = "SIGTERM";
/// A front end has restarted its kernel.
pub(super) const RESTARTS: &str = "its front end restarts it";
/// Its front end runs cells without a person, and looks whether this process lives.
const DIED: &str = "the kernel has ended, and its front end is to see that";
const BROKEN: &str = "of its internal faults";
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
            panics: Cell::new(0),
            #[cfg(test)]
            panics_next: Cell::new(false),
            armed: Cell::new(None),
            rearm: Rc::default(),
            state_work: FileWork::default(),
            refresh_waits: Cell::new(false),
            looks: Cell::new(0),
            presence_work: Rc::default(),
            stop: Notify::new(),
            parted: Notify::new(),
            why: Cell::new(None),
            died: RefCell::new(None),
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
        let acting = Acting(&self.acting);
        loop {
            // The borrow ends here: an action may lead to the next input.
            let action = self.bridge.borrow_mut().poll_action();
            let Some(action) = action else { break };
            self.act(action);
        }
        drop(acting);
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
            self.route(|bridge, _| bridge.close_idle_links());
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
        #[cfg(test)]
        assert!(!self.panics_next.take(), "a test's panic");
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
                    if why == UnsentReason::Full {
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
                        let kernel = (&*kernel.owner, kernel.generation);
                        bound.keep.take(&execution, kernel, self.published());
                        self.wake_by(bound.keep.due());
                    }
                    bound.journal.take(execution);
                    bound.journal.write_soon();
                }
            }
            Action::IdleLost { msg_id } => {
                if let Some(bound) = self.bound() {
                    bound.keep.idle_lost(&msg_id, self.published());
                }
            }
            Action::JournalInterrupt { withdrawn, .. } => {
                if let Some(bound) = self.bound() {
                    bound.journal.interrupted(self.number.get(), withdrawn);
                    bound.journal.write_soon();
                }
            }
            Action::WidgetsVersion { version } => self.remember_widgets(version),
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
            Action::SessionSeen { session } => self.heard(session),
            Action::HandOver { sessions } => self.spawn(async move |shell| {
                if let Some(bound) = shell.bound() {
                    let which = Which::Sessions(&sessions);
                    let asked = bound.keep.hand_over(&bound.target, which).await;
                    shell.keep_prompts(&asked);
                }
            }),
            Action::ResolveNotebook { notebook } => self.bind_to(notebook),
            Action::Revive { .. } => self.revive(),
            Action::ExitWithKernel(ending) => {
                *self.died.borrow_mut() = Some(ending.text);
                self.leave(DIED);
            }
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
            bound.keep.heard(message, self.published());
            // At once: in a flood a timer is late.
            self.wake_by(Keep::store_soon(&bound.keep, &bound.target));
            if bound.keep.is_full()
                && let Some(links) = &*self.links.borrow()
            {
                links.hold_iopub(true);
            }
        }
    }

    /// Returns what was published so far.
    pub(super) fn published(&self) -> Published {
        let front = self.front.get();
        Published {
            messages: front.map_or(0, Front::published),
            is_heard: front.is_some_and(|front| front.subscribers() > 0),
        }
    }

    /// Lets go of the outputs of cells that have ended where a subscriber has read them; says whether there
    /// are others, to be handed over.
    fn settle_kept(&self, bound: &Bound, settle: Settle) -> bool {
        let Some(front) = self.front.get() else {
            return false;
        };
        let bridge = self.bridge.borrow();
        let is_joined = |client: &ClientId| bridge.joined().any(|joined| joined == client);
        let reach = |number| front.reach(number);
        bound.keep.settle(reach, is_joined, settle)
    }

    /// Keeps what the kernel asks a client of this front end: one that goes cannot answer.
    pub(super) fn keeps_question(&self, client: &ClientId, message: &Verified) {
        let Some(bound) = self.bound() else { return };
        if let Some((folder, question)) = bound.keep.asked_input(client, message) {
            let client = client.clone();
            self.spawn(async move |shell| {
                if bound.keep.pass_on(&client, folder, question).await {
                    shell.keep_prompts(&[client]);
                }
            });
        }
    }

    /// Leaves the answers to what was asked of these clients to the recorders of their cells.
    fn keep_prompts(&self, clients: &[ClientId]) {
        self.route(|bridge, _| {
            let kept = clients.iter();
            kept.for_each(|client| bridge.prompt_handed_over(client));
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
                    shell.tell_of_no_restart();
                    shell.leave_record();
                    shell.leave(SIGTERM);
                }
                Asked::Interrupt => shell.route(|bridge, now| bridge.interrupt(now)),
                Asked::Report => shell.report(),
            }
        })?;
        Ok(())
    }

    /// Says in the log why this end restarts nothing, where it may have been meant as a restart:
    /// jupyverse asks for one by SIGTERM and another launch, as others end a kernel.
    fn tell_of_no_restart(&self) {
        let says_it_in_words = self.origin.front_end != FrontEnd::Other;
        if says_it_in_words || self.shutdown_requested.get() {
            return;
        }
        if let Some(bound) = self.bound() {
            tracing::info!("{}", words::not_restarted(&bound.target));
        }
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

    /// As [`Shell::run`], also after a panic in it.
    async fn run_on(self: &Rc<Self>) {
        loop {
            let mut task = tokio::task::JoinSet::new();
            let me = Rc::clone(self);
            task.spawn_local(async move { me.run().await });
            match task.join_next().await {
                Some(Err(error)) if error.is_panic() => {}
                _ => return,
            }
        }
    }

    /// Puts right what a panic has left; the message that led to it is lost, and with it perhaps an answer.
    fn recover(self: &Rc<Self>) {
        self.panics.update(|count| count + 1);
        tracing::error!("an internal fault at {}: please report it", panics::place());
        // The bridge may be in no good state, either.
        let done = catch_unwind(AssertUnwindSafe(|| self.connect_anew()));
        if done.is_err() || self.panics.get() >= panics::MOST {
            self.leave(BROKEN);
        }
    }

    /// Ends every request that the kernel has with an error, and takes the connections to it anew.
    fn connect_anew(&self) {
        let live = matches!(self.bridge.borrow().kernel(), Kernel::Live { .. });
        if live {
            let links = self.links.borrow().clone();
            let unsent = links.map(|links| links.take_unsent()).unwrap_or_default();
            let ending = words::fault();
            self.route(|bridge, now| bridge.kernel_is(now, Kernel::Awaited, &ending, unsent));
        } else {
            // What the panic has left undone.
            self.route(|_, _| {});
        }
        self.look_again();
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
            let bound = self.bound();
            let keep = bound.as_ref().map(|bound| &*bound.keep);
            if let (Some(keep), Some(links)) = (keep, &*self.links.borrow()) {
                links.hold_iopub(keep.is_full());
            }
            let stores = keep.and_then(Keep::due);
            let settles = keep.and_then(Keep::settles);
            for due in [self.bridge.borrow().poll_timeout(), stores, settles] {
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
                        Keep::store_soon(&bound.keep, &bound.target);
                        if self.settle_kept(&bound, Settle::Due) {
                            self.spawn(async move |_| {
                                bound.keep.hand_over(&bound.target, Which::Unseen).await;
                            });
                        }
                    }
                    let links = self.links.borrow().clone();
                    let is_behind = links.is_some_and(|links| links.iopub_is_behind());
                    self.route(|bridge, now| {
                        bridge.set_iopub_behind(is_behind);
                        bridge.handle_timeout(now);
                    });
                }
                () = self.rearm.notified() => {}
                () = self.look.notified() => self.refresh_soon(),
                () = panics::HAPPENED.notified() => self.recover(),
                () = self.parted.notified() => {
                    orphan.is_heard();
                    look_at_parent.reset_after(Orphan::SOON);
                }
                _ = look_at_parent.tick() => {
                    let subscribers = self.front.get().map_or(0, Front::subscribers);
                    if orphan.is_over(Instant::now(), subscribers) {
                        self.leave(ORPHANED);
                    }
                    if orphan.is_about_to_go() {
                        look_at_parent.reset_after(Orphan::SOON);
                    }
                }
            }
        }
    }

    /// Writes what waits for the journal, or says what is lost, and removes the record of this proxy.
    async fn finish_records(&self, deadline: Instant) {
        let Some(bound) = self.bound() else { return };
        let deadline = deadline.max(Instant::now() + LEAST);
        let _ = tokio::time::timeout_at(deadline.into(), bound.journal.written()).await;
        if bound.journal.waiting() > 0 {
            tracing::warn!(
                "{} entries of the journal are lost: it could not be written until the end",
                bound.journal.waiting()
            );
        }
        let deadline = deadline.max(Instant::now() + LEAST);
        let rest = async { tokio::join!(bound.presence.withdraw(), bound.keep.tidy()) };
        let _ = tokio::time::timeout_at(deadline.into(), rest).await;
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
                let settle = match self.why.get() {
                    Some(ORPHANED) => Settle::Orphaned,
                    _ => Settle::Stopped,
                };
                self.settle_kept(&bound, settle);
                let asked = bound.keep.hand_over(&bound.target, Which::All).await;
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
        if let Some(own) = self.record.take() {
            own.withdraw();
        }
        if left > 0 {
            tracing::warn!(
                "{left} connections did not take what was queued for them within a second"
            );
        }
        self.report();
        self.finish_records(deadline).await;
    }
}

fn now() -> Now {
    Now {
        instant: Instant::now(),
        date: jiff::Timestamp::now(),
    }
}

/// Says that no actions are carried out any more, also after a panic in one.
struct Acting<'a>(&'a Cell<bool>);

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        self.0.set(false);
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use bytes::Bytes;
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

    use super::*;
    use crate::project::Project;
    use crate::socket::{DialAs, DialHandler, DialRole, DisconnectReason, Limits};
    use crate::wire::NewHeader;

    /// A client's own socket: passes on that it is connected, and what it gets.
    struct Client(UnboundedSender<Option<Message>>);

    impl DialHandler for Client {
        fn up(&self) {
            let _ = self.0.send(None);
        }

        fn message(&self, message: Message) {
            let _ = self.0.send(Some(message));
        }

        fn down(&self, _: &DisconnectReason, _: Vec<Message>) {}

        fn refused(&self, _: &io::Error) {}
    }

    fn ask(msg_id: &str) -> Verified {
        let header = NewHeader {
            msg_id,
            session: "s",
            username: "u",
            date: "2026-01-01T00:00:00Z",
            msg_type: "kernel_info_request",
        };
        let nothing = serde_json::json!({});
        Verified::new(&header, Bytes::from_static(b"{}"), &nothing)
    }

    /// Returns a proxy in a folder that also has its sockets, and how they are reached.
    fn bound_in(folder: &std::path::Path) -> (Rc<Shell>, ConnectionInfo) {
        let file = serde_json::json!({
            "transport": "ipc", "ip": folder.join("k"), "key": "a key",
            "signature_scheme": "hmac-sha256",
            "shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5,
        });
        let connection = ConnectionInfo::parse(file.to_string().as_bytes()).unwrap();
        let origin = Origin::read(&HashMap::<&str, &str>::new());
        let folder = folder.to_owned();
        let shell = Shell::bind(&connection, folder.join("c.json"), origin, folder).unwrap();
        (shell, connection)
    }

    #[tokio::test]
    async fn the_notebooks_project_gives_the_settings_not_the_working_directorys() {
        let local = tokio::task::LocalSet::new();
        let test = async {
            let temp = tempfile::tempdir().unwrap();
            let (here, there) = (temp.path().join("here"), temp.path().join("there"));
            std::fs::create_dir(&here).unwrap();
            std::fs::create_dir(&there).unwrap();
            let project = Project::for_notebook(&here.join("a.ipynb")).unwrap();
            std::fs::write(project.dir().join("config.toml"), "autostart = false").unwrap();
            let (shell, _) = bound_in(&here);
            shell.obey(Some(&project));
            assert!(shell.target_of(&here.join("b.ipynb")).is_ok());
            assert!(!shell.settings.borrow().autostart);
            assert!(shell.target_of(&there.join("b.ipynb")).is_ok());
            assert!(shell.settings.borrow().autostart);
        };
        local.run_until(test).await;
    }

    #[tokio::test]
    async fn after_a_panic_in_the_middle_of_an_action_the_next_request_is_answered() {
        let local = tokio::task::LocalSet::new();
        local.run_until(a_panic_in_the_middle_of_an_action()).await;
    }

    async fn a_panic_in_the_middle_of_an_action() {
        let temp = tempfile::tempdir().unwrap();
        let (shell, connection) = bound_in(temp.path());
        let ending = words::fault();
        let unnamed = Kernel::Unresolved { info: None };
        shell.route(|bridge, now| bridge.kernel_is(now, unnamed, &ending, []));

        let (sender, mut events) = unbounded_channel();
        let as_ = DialAs {
            socket_type: DialRole::Dealer,
            identity: Bytes::from_static(b"client"),
            subscribe: Vec::new(),
        };
        let endpoint = connection.endpoint(Channel::Shell);
        let dialer = Dialer::connect(endpoint, as_, Limits::default(), Rc::new(Client(sender)));
        assert_eq!(events.recv().await, Some(None));
        shell.panics_next.set(true);
        dialer
            .send(ask("one").into_frames(&connection.key))
            .unwrap();
        // The connection is lost and made anew.
        while events.recv().await != Some(None) {}
        assert!(!shell.panics_next.get());
        dialer
            .send(ask("two").into_frames(&connection.key))
            .unwrap();
        let answered = async {
            while let Some(event) = events.recv().await {
                let frames = event.unwrap_or_default();
                let text: Vec<u8> = frames.concat();
                if memchr::memmem::find(&text, b"\"two\"").is_some() {
                    return;
                }
            }
        };
        let patience = Duration::from_secs(20);
        tokio::time::timeout(patience, answered).await.unwrap();

        for _ in 0..panics::MOST {
            assert_eq!(shell.why.get(), None);
            shell.recover();
        }
        assert_eq!(shell.why.get(), Some(BROKEN));
    }
}
