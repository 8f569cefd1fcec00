//! How sockets, bridge and project files meet.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use jiff::Timestamp;
use rustix::io::Errno;
use tokio::sync::Notify;

use super::alarm::Alarm;
use super::args::Launch;
use super::attachment::{Attachment, working_folder};
use super::counters::{Counters, Way};
use super::exit::{Exit, ExitReason};
use super::follow::StateReads;
use super::front::Front;
use super::front_end::DetectedFrontEnd;
use super::links::Links;
use super::log;
use super::messages;
use super::panics;
use super::report;
use super::stop::{Asked, Orphan, Signals};
use super::storage::FileWork;
use super::stored_outputs::{HandOffScope, Published, ReleaseReason, StoredOutputs};
use super::target::{Named, Target, read_connection};
use super::vscode_restart;
use crate::kernel::process::{Process, Signal};
use crate::kernel::variables::ProcessVariables;
use crate::project::Config;
use crate::route::{Action, Bridge, ClientId, FrontEnd, Kernel, Note, Now, Settings};
use crate::socket::{Dialer, Message, PeerId, UnsentReason};
use crate::wire::{Channel, ConnectionInfo, Verified};

/// Everything of one proxy, on one thread.
pub(super) struct Shell {
    pub(super) me: Weak<Self>,
    pub(super) launch: LaunchInfo,
    pub(super) settings: RefCell<Config>,
    pub(super) bridge: RefCell<Bridge>,
    front: OnceCell<Front>,
    /// The session that is served, once it is known which.
    pub(super) attachment: RefCell<Option<Rc<Attachment>>>,
    /// The session that the launch has named, where more is awaited before it is served.
    pub(super) given: RefCell<Option<Target>>,
    /// The sockets to the kernel; those to one that has ended stay until another is there.
    pub(super) links: RefCell<Option<Rc<Links>>>,
    /// The bridge's number for the kernel's last generation.
    pub(super) number: Cell<u64>,
    /// What the clients' messages carry.
    pub(super) session: RefCell<Option<String>>,
    /// What makes the next launch recognisable as a restart.
    pub(super) record: RefCell<Option<vscode_restart::OwnRecord>>,
    pub(super) shutdown_requested: Cell<bool>,
    /// Whether actions are being carried out: what comes meanwhile is carried out by the same loop.
    acting: Cell<bool>,
    /// How many panics there were.
    panics: Cell<u32>,
    #[cfg(test)]
    panics_next: Cell<bool>,
    pub(super) alarm: Alarm,
    pub(super) state_reads: StateReads,
    /// Writing the records of who is joined.
    pub(super) presence_work: Rc<FileWork>,
    exit: Exit,
    /// A subscriber has left.
    pub(super) parted: Notify,
    pub(super) count: Rc<Counters>,
}

/// What is known of the launch of this process, for good.
pub(super) struct LaunchInfo {
    /// The identity of the proxy's own sockets to the kernel.
    pub(super) id: String,
    pub(super) front_end: DetectedFrontEnd,
    /// The process that has launched this one.
    pub(super) parent: Option<Process>,
    pub(super) at: Timestamp,
    /// The front end's connection file. A Jupyter server's restart keeps it.
    pub(super) connection_file: PathBuf,
    /// The working directory.
    pub(super) folder: PathBuf,
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
    let front_end = DetectedFrontEnd::read(&ProcessVariables);
    let folder = working_folder()?;
    let named = Named::read(&launch, &front_end, &ProcessVariables, &folder);
    let connection_file = launch.connection_file;
    let shell = Shell::bind(&connection, connection_file, front_end, folder)?;
    shell.listen(signals)?;
    if let Err(error) = shell.begin(named).await {
        shell.finish_records(Instant::now()).await;
        return Err(error);
    }
    shell.run_on().await;

    tracing::info!("stops: {}", shell.exit.text());
    shell.close().await;
    match shell.exit.reason() {
        Some(ExitReason::Orphaned) => {
            // Nobody is left who would use it again; a front end that restarts its kernel does.
            let _ = std::fs::remove_file(&shell.launch.connection_file);
        }
        Some(ExitReason::Faults) => bail!(
            "it had {} internal faults; its log says where",
            shell.panics.get()
        ),
        Some(ExitReason::KernelEnded(how)) => bail!(how),
        _ => {}
    }
    Ok(())
}

impl Shell {
    /// Binds the front end's ports. Whoever dials now waits for the kernel that is looked for next.
    fn bind(
        connection: &ConnectionInfo,
        connection_file: PathBuf,
        front_end: DetectedFrontEnd,
        folder: PathBuf,
    ) -> anyhow::Result<Rc<Self>> {
        let launched_at = Timestamp::now();
        let id = format!("nb-proxy-{}", uuid::Uuid::new_v4().simple());
        let settings = Settings {
            id: id.clone(),
            held_bytes: HELD_BYTES,
            undelivered_bytes: UNDELIVERED_BYTES,
            front_end: front_end.kind,
        };
        let shell = Rc::new_cyclic(|me| Self {
            me: me.clone(),
            launch: LaunchInfo {
                id,
                front_end,
                parent: parent(),
                at: launched_at,
                connection_file,
                folder,
            },
            settings: RefCell::default(),
            bridge: RefCell::new(Bridge::new(settings, now())),
            front: OnceCell::new(),
            attachment: RefCell::new(None),
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
            alarm: Alarm::default(),
            state_reads: StateReads::default(),
            presence_work: Rc::default(),
            exit: Exit::default(),
            parted: Notify::new(),
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
        let due = self.bridge.borrow().poll_timeout();
        self.alarm.wake_by(due);
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
                    && let Some(attachment) = self.attachment()
                {
                    attachment.outputs.answered(&client);
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
                if let Some(attachment) = self.attachment() {
                    if let Some(links) = &links {
                        let kernel = links.kernel();
                        let kernel = (&*kernel.owner, kernel.generation);
                        attachment
                            .outputs
                            .take(&execution, kernel, self.published());
                        self.alarm.wake_by(attachment.outputs.due());
                    }
                    attachment.journal.take(execution);
                    attachment.journal.write_soon();
                }
            }
            Action::IdleLost { msg_id } => {
                if let Some(attachment) = self.attachment() {
                    attachment.outputs.idle_lost(&msg_id, self.published());
                }
            }
            Action::JournalInterrupt { withdrawn, .. } => {
                if let Some(attachment) = self.attachment() {
                    attachment.journal.interrupted(self.number.get(), withdrawn);
                    attachment.journal.write_soon();
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
                if let Some(attachment) = shell.attachment() {
                    let which = HandOffScope::Sessions(&sessions);
                    let asked = attachment.outputs.hand_off(&attachment.target, which).await;
                    shell.leave_prompts(&asked);
                }
            }),
            Action::ResolveNotebook { notebook } => self.resolve(notebook),
            Action::Revive { .. } => self.revive(),
            Action::ExitWithKernel(ending) => {
                self.leave(ExitReason::KernelEnded(ending.text));
            }
            Action::Leave { restart } => {
                self.shutdown_requested.set(true);
                if restart {
                    self.restart_and_leave();
                } else {
                    self.leave(ExitReason::Shutdown);
                }
            }
        }
    }

    /// Stores what the kernel publishes for a cell of this front end.
    pub(super) fn buffer_output(&self, message: &Verified) {
        if let Some(attachment) = &*self.attachment.borrow() {
            attachment.outputs.take_iopub(message, self.published());
            // At once: in a flood a timer is late.
            self.alarm
                .wake_by(attachment.outputs.store_soon(&attachment.target));
            if attachment.outputs.is_full()
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
    fn release_outputs(&self, attachment: &Attachment, reason: ReleaseReason) -> bool {
        let Some(front) = self.front.get() else {
            return false;
        };
        let bridge = self.bridge.borrow();
        let is_joined = |client: &ClientId| bridge.joined().any(|joined| joined == client);
        let reach = |number| front.reach(number);
        attachment.outputs.release(reach, is_joined, reason)
    }

    /// Stores what the kernel asks a client of this front end: one that goes cannot answer.
    pub(super) fn buffer_question(&self, client: &ClientId, message: &Verified) {
        let Some(attachment) = self.attachment() else {
            return;
        };
        if let Some((folder, question)) = attachment.outputs.asked_input(client, message) {
            let client = client.clone();
            self.spawn(async move |shell| {
                if attachment.outputs.pass_on(&client, folder, question).await {
                    shell.leave_prompts(&[client]);
                }
            });
        }
    }

    /// Leaves the answers to what was asked of these clients to the recorders of their cells.
    fn leave_prompts(&self, clients: &[ClientId]) {
        self.route(|bridge, _| {
            for client in clients {
                bridge.prompt_handed_over(client);
            }
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
        if let Some(attachment) = self.attachment() {
            attachment.update_record(self.bridge.borrow().joined().count(), None);
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
                    shell.log_no_restart();
                    shell.leave_record();
                    shell.leave(ExitReason::Signal);
                }
                Asked::Interrupt => shell.route(|bridge, now| bridge.interrupt(now)),
                Asked::Report => shell.report(),
            }
        })?;
        Ok(())
    }

    /// Says in the log why this end restarts nothing, where it may have been meant as a restart:
    /// jupyverse asks for one by SIGTERM and another launch, as others end a kernel.
    fn log_no_restart(&self) {
        let sends_shutdown_requests = self.launch.front_end.kind != FrontEnd::Other;
        if sends_shutdown_requests || self.shutdown_requested.get() {
            return;
        }
        if let Some(attachment) = self.attachment() {
            tracing::info!("{}", messages::not_restarted(&attachment.target));
        }
    }

    /// Ends this process.
    pub(super) fn leave(&self, reason: ExitReason) {
        self.exit.decide(reason);
    }

    /// Returns when it is time to stop.
    pub(super) async fn is_to_stop(&self) {
        self.exit.is_decided().await;
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
            self.leave(ExitReason::Faults);
        }
    }

    /// Ends every request that the kernel has with an error, and takes the connections to it anew.
    fn connect_anew(&self) {
        let live = matches!(self.bridge.borrow().kernel(), Kernel::Live { .. });
        if live {
            let links = self.links.borrow().clone();
            let unsent = links.map(|links| links.take_unsent()).unwrap_or_default();
            let ending = messages::fault();
            self.route(|bridge, now| bridge.kernel_is(now, Kernel::Awaited, &ending, unsent));
        } else {
            // What the panic has left undone.
            self.route(|_, _| {});
        }
        self.look_again();
    }

    /// Runs timers and follows the kernel until it is time to stop.
    async fn run(self: &Rc<Self>) {
        let record = report::keep_record_current(self.me.clone(), Rc::clone(&self.count));
        tokio::task::spawn_local(record);
        let mut orphan = Orphan::watch();
        let mut look_at_parent = tokio::time::interval(Orphan::EVERY);
        let mut sleep = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
        loop {
            let attachment = self.attachment();
            let outputs = attachment.as_ref().map(|attachment| &*attachment.outputs);
            if let (Some(outputs), Some(links)) = (outputs, &*self.links.borrow()) {
                links.hold_iopub(outputs.is_full());
            }
            let stores = outputs.and_then(StoredOutputs::due);
            let releases = outputs.and_then(StoredOutputs::release_at);
            let timers = self.bridge.borrow().poll_timeout();
            if let Some(due) = self.alarm.set([timers, stores, releases]) {
                sleep.as_mut().reset(due.into());
            }
            tokio::select! {
                () = self.exit.is_decided() => return,
                () = sleep.as_mut(), if self.alarm.is_set() => {
                    self.alarm.went_off();
                    if let Some(attachment) = self.attachment() {
                        attachment.outputs.store_soon(&attachment.target);
                        if self.release_outputs(&attachment, ReleaseReason::Due) {
                            self.spawn(async move |_| {
                                attachment.outputs.hand_off(&attachment.target, HandOffScope::Unseen).await;
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
                () = self.alarm.may_be_sooner() => {}
                () = self.state_reads.is_wanted() => self.refresh_soon(),
                () = panics::HAPPENED.notified() => self.recover(),
                () = self.parted.notified() => {
                    orphan.is_heard();
                    look_at_parent.reset_after(Orphan::SOON);
                }
                _ = look_at_parent.tick() => {
                    let subscribers = self.front.get().map_or(0, Front::subscribers);
                    if orphan.is_over(Instant::now(), subscribers) {
                        self.leave(ExitReason::Orphaned);
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
        let Some(attachment) = self.attachment() else {
            return;
        };
        let deadline = deadline.max(Instant::now() + LEAST);
        let _ = tokio::time::timeout_at(deadline.into(), attachment.journal.written()).await;
        if attachment.journal.waiting() > 0 {
            tracing::warn!(
                "{} entries of the journal are lost: it could not be written until the end",
                attachment.journal.waiting()
            );
        }
        let deadline = deadline.max(Instant::now() + LEAST);
        let rest =
            async { tokio::join!(attachment.presence.withdraw(), attachment.outputs.tidy()) };
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

    /// Delivers what was accepted, within a second at most. The kernel goes on.
    async fn close(&self) {
        let deadline = Instant::now() + Duration::from_secs(1);
        let links = self.links.borrow().clone();
        let (attachment, reason) = (self.attachment(), self.exit.reason());
        let to_kernel = async {
            // A kernel that is restarted runs nothing of it any more.
            if let Some(attachment) = attachment.filter(|_| reason != Some(ExitReason::Restart)) {
                let settle = match reason {
                    Some(ExitReason::Orphaned) => ReleaseReason::Orphaned,
                    _ => ReleaseReason::Stopped,
                };
                self.release_outputs(&attachment, settle);
                let asked = attachment
                    .outputs
                    .hand_off(&attachment.target, HandOffScope::All)
                    .await;
                self.leave_prompts(&asked);
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
        let front_end = DetectedFrontEnd::read(&HashMap::<&str, &str>::new());
        let folder = folder.to_owned();
        let shell = Shell::bind(&connection, folder.join("c.json"), front_end, folder).unwrap();
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
        let ending = messages::fault();
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
            assert_eq!(shell.exit.reason(), None);
            shell.recover();
        }
        assert_eq!(shell.exit.reason(), Some(ExitReason::Faults));
    }
}
