//! How sockets, bridge and project files meet.

use std::cell::{Cell, OnceCell, RefCell};
use std::path::Path;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use notify::{RecursiveMode, Watcher};
use tokio::sync::Notify;

use super::args::Launch;
use super::faults::Faults;
use super::front::Front;
use super::links::Links;
use super::presence::{Presence, front_end};
use super::stop::{Asked, Orphan, Signals};
use super::target::{Found, LiveKernel, Target, read_connection};
use super::{journal, log};
use crate::kernel::process::Signal;
use crate::ops::open::{OpenOptions, ensure_kernel};
use crate::route::{Action, Bridge, ClientId, Ending, FrontEnd, Kernel, Note, Now, Settings};
use crate::socket::{Dialer, Message, PeerId};
use crate::wire::{Channel, ConnectionInfo};

/// Everything of one proxy, on one thread.
pub(super) struct Shell {
    me: Weak<Self>,
    pub(super) faults: Faults,
    id: String,
    bridge: RefCell<Bridge>,
    front: OnceCell<Front>,
    /// The socket to today's kernel; kept when it has ended, until another is there.
    links: RefCell<Option<Rc<Links>>>,
    target: OnceCell<Target>,
    journal: OnceCell<journal::Log>,
    presence: OnceCell<Presence>,
    /// Whether actions are being carried out: what comes meanwhile is carried out by the same loop.
    acting: Cell<bool>,
    /// When the timer task will wake.
    armed: Cell<Option<Instant>>,
    rearm: Notify,
    /// The journal has something to write.
    write: Notify,
    stop: Notify,
    why: Cell<Option<&'static str>>,
    /// `state.json` or the kernel's process may have changed. Told from the watcher's thread too.
    look: Arc<Notify>,
    count: Counters,
}

/// What passed, for the log.
#[derive(Default)]
struct Counters {
    to_kernel: Cell<u64>,
    to_clients: Cell<u64>,
    published: Cell<u64>,
}

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
    let connection =
        read_connection(&launch.connection_file).context("the front end's connection file")?;
    let shell = Shell::bind(&connection)?;
    shell.listen(signals)?;
    let target = Target::find(&launch)?;
    let found = target.look()?;
    if let Err(error) = log::open(&target.project) {
        eprintln!(
            "nb-proxy: cannot write {}: {error}",
            target.project.proxy_log().display()
        );
    }
    let kind = front_end(|name| std::env::var_os(name).is_some());
    tracing::info!(
        front_end = kind,
        notebook = target.key,
        "launched, version {}",
        env!("CARGO_PKG_VERSION")
    );
    let stopped = async {
        shell.stop.notified().await;
        // Kept for `run`, which ends at once.
        shell.stop.notify_one();
    };
    let found = tokio::select! {
        found = start_if_none(&target, found, format!("human ({kind})")) => {
            found.inspect_err(|error| tracing::error!("{error:#}"))?
        }
        () = stopped => Found::Awaited,
    };
    shell.watch(target.project.dir());
    shell.attend(target, kind, found);
    // What changed between the look and the watch.
    shell.look_again();
    shell.run().await;

    let orphaned = shell.why.get() == Some(ORPHANED);
    tracing::info!("stops: {}", shell.why.get().unwrap_or("asked to"));
    shell.close().await;
    if orphaned {
        // Nobody is left who would use it again; a front end that restarts its kernel does.
        let _ = std::fs::remove_file(&launch.connection_file);
    }
    Ok(())
}

const ORPHANED: &str = "its front end is gone";

/// Makes sure that there is a kernel, so that choosing "nb shared kernel" always works.
///
/// It is started as `nb open` starts it: nobody's descendant, so that it survives the front end.
async fn start_if_none(target: &Target, found: Found, by: String) -> anyhow::Result<Found> {
    let Found::None(ending) = found else {
        return Ok(found);
    };
    tracing::info!("{}", ending.text);
    let refused = std::env::var("NB_AUTOSTART").is_ok_and(|value| value == "0");
    if refused || !target.may_start() {
        bail!("{}", ending.text.replace(". Start", ".\nStart"));
    }
    let options = OpenOptions {
        by,
        ..OpenOptions::default()
    };
    let notebook = target.project.notebook(&target.key);
    let opened = ensure_kernel(&target.project, &notebook, &options).await;
    opened.with_context(|| {
        format!(
            "cannot start a kernel for {}\nTry: {}",
            target.key,
            target.mend()
        )
    })?;
    target.look()
}

impl Shell {
    /// Binds the front end's ports. Whoever dials now waits for the kernel that is looked for next.
    fn bind(connection: &ConnectionInfo) -> anyhow::Result<Rc<Self>> {
        let id = format!("nb-proxy-{}", uuid::Uuid::new_v4().simple());
        let settings = Settings {
            id: id.clone(),
            held_bytes: HELD_BYTES,
            undelivered_bytes: UNDELIVERED_BYTES,
            front_end: FrontEnd::Other,
        };
        let shell = Rc::new_cyclic(|me| Self {
            me: me.clone(),
            faults: Faults::default(),
            id,
            bridge: RefCell::new(Bridge::new(settings, now())),
            front: OnceCell::new(),
            links: RefCell::new(None),
            target: OnceCell::new(),
            journal: OnceCell::new(),
            presence: OnceCell::new(),
            acting: Cell::new(false),
            armed: Cell::new(None),
            rearm: Notify::new(),
            write: Notify::new(),
            stop: Notify::new(),
            why: Cell::new(None),
            look: Arc::new(Notify::new()),
            count: Counters::default(),
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
        let due = self.bridge.borrow().poll_timeout();
        if due != self.armed.get() {
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
                add(&self.count.to_clients);
                front.send(&client, channel, message);
            }
            Action::Publish(message) => {
                add(&self.count.published);
                front.publish(message);
            }
            Action::ToKernel {
                client,
                channel,
                message,
            } => {
                add(&self.count.to_kernel);
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
                if let Some(journal) = self.journal.get() {
                    journal.take(execution);
                    self.write.notify_one();
                }
            }
            Action::Log(note) => match note {
                Note::RequestFailed { .. } | Note::Undeliverable { .. } | Note::NoKernel { .. } => {
                    tracing::warn!("{note}");
                }
                _ => tracing::info!("{note}"),
            },
            Action::Leave { .. } => self.leave("its front end has shut it down"),
            Action::Heard { .. }
            | Action::Bind { .. }
            | Action::Revive { .. }
            | Action::JournalInterrupt { .. } => {}
        }
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

    // ---- the kernel's life

    /// Looks at `state.json` and the kernel's process again, soon.
    pub(super) fn look_again(&self) {
        self.look.notify_one();
    }

    /// Begins with the kernel that was found.
    fn attend(&self, target: Target, front_end: &'static str, found: Found) {
        let journal = journal::Log::open(
            &target.project,
            target.key.clone(),
            format!("human ({front_end})"),
        );
        let presence = Presence::new(
            target.project.clone(),
            target.key.clone(),
            front_end.to_owned(),
        );
        presence.tell(self.bridge.borrow().joined().count());
        let _ = self.journal.set(journal);
        let _ = self.presence.set(presence);
        let _ = self.target.set(target);
        self.adopt(found);
    }

    /// Follows the kernel to what it is now.
    fn adopt(&self, found: Found) {
        let Some(target) = self.target.get() else {
            return;
        };
        let before = self.links.borrow().clone();
        let unsent = |links: &Option<Rc<Links>>| {
            links
                .as_ref()
                .map(|links| links.take_unsent())
                .unwrap_or_default()
        };
        match found {
            Found::Live(kernel) => {
                let live = matches!(self.bridge.borrow().kernel(), Kernel::Live { .. });
                if live
                    && before
                        .as_ref()
                        .is_some_and(|links| links.kernel().is_same(&kernel))
                {
                    return;
                }
                let unsent = unsent(&before);
                self.connect(*kernel, before.as_deref(), unsent);
            }
            Found::Awaited => {
                if *self.bridge.borrow().kernel() == Kernel::Awaited {
                    return;
                }
                tracing::info!("the kernel is being started; requests wait for it");
                let unsent = unsent(&before);
                let ending = target.restarted();
                self.route(|bridge, now| bridge.kernel_is(now, Kernel::Awaited, &ending, unsent));
            }
            Found::None(ending) => {
                let ended = Kernel::Ended(ending.clone());
                if *self.bridge.borrow().kernel() == ended {
                    return;
                }
                tracing::warn!("{}", ending.text);
                let unsent = unsent(&before);
                self.route(|bridge, now| bridge.kernel_is(now, ended, &ending, unsent));
            }
        }
    }

    fn connect(
        &self,
        kernel: LiveKernel,
        before: Option<&Links>,
        unsent: Vec<(ClientId, Channel, crate::wire::Verified)>,
    ) {
        let Some(target) = self.target.get() else {
            return;
        };
        // A state file without sessions counts no generations: another process is another one.
        let last = before.map_or(0, |links| links.kernel().generation);
        let mut kernel = kernel;
        if before.is_some_and(|links| !links.kernel().is_same(&kernel)) {
            kernel.generation = kernel.generation.max(last + 1);
        }
        tracing::info!(
            generation = kernel.generation,
            pid = kernel.process.as_ref().map(|process| process.pid),
            "connects to the kernel at {}",
            kernel.connection.endpoint(Channel::Shell)
        );
        let (generation, interrupt) = (kernel.generation, kernel.interrupt);
        if let Some(process) = kernel.process.clone() {
            let look = Arc::clone(&self.look);
            tokio::task::spawn_local(async move {
                process.death().await;
                look.notify_one();
            });
        }
        let links = Links::connect(kernel, self.id.clone(), &self.me);
        *self.links.borrow_mut() = Some(Rc::new(links));
        let ending = target.restarted();
        self.route(|bridge, now| {
            bridge.kernel_is(
                now,
                Kernel::Live {
                    generation,
                    interrupt,
                    info: None,
                },
                &ending,
                unsent,
            );
        });
    }

    /// The kernel's iopub is connected.
    pub(super) fn reached(&self) {
        let live = matches!(self.bridge.borrow().kernel(), Kernel::Live { .. });
        if live {
            self.route(|bridge, now| bridge.iopub_up(now));
        } else {
            self.look_again();
        }
    }

    /// A kernel of which only the sockets are known does not answer on them.
    pub(super) fn unreachable(&self, error: &std::io::Error) {
        let Some(target) = self.target.get() else {
            return;
        };
        if !matches!(self.bridge.borrow().kernel(), Kernel::Live { .. }) {
            return;
        }
        let text = format!(
            "The shared kernel of {} cannot be reached: {error}. Start one with: {}",
            target.key,
            target.mend()
        );
        self.adopt(Found::None(Ending {
            name: "KernelUnreachable",
            text,
        }));
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
            links.beat(peer, frames);
        }
    }

    pub(super) fn beat_client(&self, peer: &PeerId, frames: Message) {
        if let Some(front) = self.front.get() {
            front.beat(peer, frames);
        }
    }

    pub(super) fn heartbeat_left(&self, peer: &PeerId) {
        if let Some(links) = &*self.links.borrow() {
            links.stop_beat(peer);
        }
    }

    // ---- running and stopping

    /// Who is connected has changed.
    pub(super) fn changed(&self) {
        if let Some(presence) = self.presence.get() {
            presence.tell(self.bridge.borrow().joined().count());
        }
    }

    /// Watches the project's folder: the file in it is replaced, not written.
    fn watch(&self, folder: &Path) {
        let look = Arc::clone(&self.look);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let concerns = |event: notify::Event| {
                !event.kind.is_access()
                    && event.paths.iter().any(|path| path.ends_with("state.json"))
            };
            if event.map_or(true, concerns) {
                look.notify_one();
            }
        });
        let watched = watcher.and_then(|mut watcher| {
            watcher.watch(folder, RecursiveMode::NonRecursive)?;
            // It lives as long as this process.
            std::mem::forget(watcher);
            Ok(())
        });
        if let Err(error) = watched {
            tracing::warn!(
                "cannot watch {}: {error}; looking every second",
                folder.display()
            );
            let look = Arc::clone(&self.look);
            tokio::task::spawn_local(async move {
                loop {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    look.notify_one();
                }
            });
        }
    }

    fn listen(self: &Rc<Self>, signals: Signals) -> anyhow::Result<()> {
        let me = self.me.clone();
        signals.listen(move |asked| {
            let Some(shell) = me.upgrade() else { return };
            match asked {
                Asked::Stop => shell.leave("SIGTERM"),
                Asked::Interrupt => shell.route(|bridge, now| bridge.interrupt(now)),
                Asked::Report => shell.report(),
            }
        })?;
        Ok(())
    }

    fn leave(&self, why: &'static str) {
        self.why.set(Some(why));
        self.stop.notify_one();
    }

    /// Runs timers and follows the kernel until it is time to stop.
    async fn run(self: &Rc<Self>) {
        let mut orphan = Orphan::watch();
        let mut look_at_parent = tokio::time::interval(Orphan::EVERY);
        loop {
            let due = self.bridge.borrow().poll_timeout();
            self.armed.set(due);
            let timer = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.stop.notified() => return,
                () = timer => self.route(|bridge, now| bridge.handle_timeout(now)),
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

    fn refresh(&self) {
        let Some(target) = self.target.get() else {
            return;
        };
        match target.look() {
            Ok(found) => self.adopt(found),
            // What is known stays true until something better can be read.
            Err(error) => tracing::warn!("{error:#}"),
        }
    }

    fn write_journal(&self) {
        if let Some(journal) = self.journal.get() {
            journal.write();
        }
    }

    fn report(&self) {
        let count = &self.count;
        tracing::info!(
            to_kernel = count.to_kernel.get(),
            to_clients = count.to_clients.get(),
            published = count.published.get(),
            outstanding = self.bridge.borrow().outstanding(),
            dropped = self.faults.total(),
            subscribers = self.front.get().map_or(0, Front::subscribers),
            "counters"
        );
    }

    /// Delivers what was accepted, within a second at most. The kernel lives on.
    async fn close(&self) {
        let deadline = Instant::now() + Duration::from_secs(1);
        let links = self.links.borrow().clone();
        let to_kernel = async {
            if let Some(links) = links {
                links.finish(deadline).await;
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

fn add(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}
