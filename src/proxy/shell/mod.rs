//! The shell owns the parts of one proxy and passes messages between them, on one thread.
//!
//! | file | content |
//! |---|---|
//! | `clients` | events of the front end's sockets, for the bridge |
//! | `kernel` | events of the kernel's sockets, for the bridge |
//! | `editors` | editors that speak the live protocol on a comm |
//! | `outputs` | outputs of cells, for their store |
//! | `attach` | the session, once it is found, and its settings |
//! | `follow`, `start`, `restart` | changes of the kernel; how this proxy starts and restarts it |
//! | `run`, `report` | timers, the end of this process; counters |

mod attach;
mod clients;
mod editors;
mod follow;
mod kernel;
mod outputs;
mod pages;
mod report;
mod restart;
mod run;
mod start;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::time::Instant;

use anyhow::{Context, bail};
use jiff::Timestamp;

use self::editors::EditorQueue;
use super::alarm::Alarm;
use super::args::Launch;
use super::attachment::Attachment;
use super::counters::{Counters, Direction};
use super::exit::{Exit, ExitReason};
use super::front;
use super::front_end::DetectedFrontEnd;
use super::links::Links;
use super::log;
use super::panics;
use super::state_reads::StateReads;
use super::stop::{Orphan, SignalAction, Signals};
use super::storage::FileWork;
use super::stored_outputs::HandOffScope;
use super::target::{LaunchTarget, Target, read_connection};
use super::vscode_restart;
use crate::kernel::process::{Process, Signal};
use crate::kernel::variables::ProcessVariables;
use crate::project::Config;
use crate::route::{
    Action, Bridge, ClientId, ExecutionProgress, Kernel, Note, Now, Phase, Settings,
};
use crate::socket::{KernelEndpoint, UnsentReason};
use crate::wire::{Channel, ConnectionInfo, Verified};

/// All parts of one proxy, on one thread.
pub(super) struct Shell {
    handle: Handle,
    launch: LaunchInfo,
    settings: RefCell<Config>,
    bridge: RefCell<Bridge>,
    /// Whether actions are being carried out: the same loop also carries out those that are added meanwhile.
    is_acting: Cell<bool>,
    /// The front end's sockets.
    endpoint: KernelEndpoint,
    /// The session that is served, once it is known which.
    attachment: RefCell<Option<Rc<Attachment>>>,
    /// The session that the launch has named, while the proxy waits for a message before it serves it.
    pending_target: RefCell<Option<Target>>,
    /// The sockets to the kernel; those to an ended kernel stay until there is another kernel.
    links: RefCell<Option<Rc<Links>>>,
    /// The bridge's number for the kernel's last generation.
    bridge_generation: Cell<u64>,
    /// The `header.session` of the clients' messages.
    session: RefCell<Option<String>>,
    /// The record by which the next launch is recognised as a restart.
    record: RefCell<Option<vscode_restart::OwnRecord>>,
    /// The editors that speak the live protocol, by the ids of their comms.
    editors: RefCell<HashMap<String, EditorQueue>>,
    /// Whether one of them was answered, and the last one is not known to be gone.
    any_editor: Cell<bool>,
    /// Whether the pages of a Jupyter server are watched.
    watches_pages: Cell<bool>,
    shutdown_requested: Cell<bool>,
    /// How many panics have happened.
    panics: Cell<u32>,
    #[cfg(test)]
    panics_next: Cell<bool>,
    alarm: Alarm,
    state_reads: StateReads,
    /// The file work for the records of this process.
    presence_work: Rc<FileWork>,
    exit: Exit,
    orphan: Orphan,
    counters: Rc<Counters>,
}

/// A weak reference to the shell, for the sockets that it owns.
#[derive(Clone, Default)]
struct Handle(Rc<OnceCell<Weak<Shell>>>);

impl Handle {
    fn shell(&self) -> Option<Rc<Shell>> {
        self.0.get()?.upgrade()
    }
}

/// The facts about this process's launch, which do not change.
struct LaunchInfo {
    /// The identity of the proxy's own sockets to the kernel.
    id: String,
    front_end: DetectedFrontEnd,
    /// The process that launched this one.
    parent: Option<Process>,
    at: Timestamp,
    /// The front end's connection file. A Jupyter server keeps the file at a restart.
    connection_file: PathBuf,
    /// The working directory.
    folder: PathBuf,
}

/// How many bytes of one client may wait for a kernel before the client's connections are no longer read.
const HELD_BYTES: usize = 64 << 20;
/// How many bytes may wait for a client that is between two connections.
const UNDELIVERED_BYTES: usize = 64 << 20;

/// Serves a front end until it or the system asks to stop.
///
/// # Errors
/// What prevents the proxy from starting, in words for the person who chose the kernel.
pub(super) async fn serve(launch: Launch, signals: Signals) -> anyhow::Result<()> {
    if std::env::var_os("NB_KERNEL").is_some() {
        bail!("this was launched from inside a shared kernel, which cannot be its own kernel");
    }
    log::begin();
    panics::begin();
    let connection =
        read_connection(&launch.connection_file).context("the front end's connection file")?;
    let front_end = DetectedFrontEnd::read(&ProcessVariables);
    let folder = std::env::current_dir().context("cannot read the working directory")?;
    let target = LaunchTarget::read(&launch, &front_end, &ProcessVariables, &folder);
    let connection_file = launch.connection_file;
    let shell = Shell::bind(&connection, connection_file, front_end, folder).await?;
    shell.listen(signals)?;
    if let Err(error) = shell.begin(target).await {
        shell.finish_records(Instant::now()).await;
        return Err(error);
    }
    shell.run_until_exit().await;

    tracing::info!("stopping: {}", shell.exit.text());
    shell.close().await;
    match shell.exit.reason() {
        Some(ExitReason::Orphaned) => {
            // No front end uses the file again; one that restarts its kernel would.
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
    /// Binds the front end's ports. Clients that dial now wait until the kernel is resolved.
    async fn bind(
        connection: &ConnectionInfo,
        connection_file: PathBuf,
        front_end: DetectedFrontEnd,
        folder: PathBuf,
    ) -> anyhow::Result<Rc<Self>> {
        let at = Timestamp::now();
        let id = format!("nb-proxy-{}", uuid::Uuid::new_v4().simple());
        let settings = Settings {
            id: id.clone(),
            held_bytes: HELD_BYTES,
            undelivered_bytes: UNDELIVERED_BYTES,
            front_end: front_end.kind,
        };
        let handle = Handle::default();
        let shell = Rc::new(Self {
            endpoint: front::bind(connection, Rc::new(handle.clone())).await?,
            handle: handle.clone(),
            launch: LaunchInfo {
                id,
                front_end,
                parent: parent(),
                at,
                connection_file,
                folder,
            },
            settings: RefCell::default(),
            bridge: RefCell::new(Bridge::new(settings, now())),
            is_acting: Cell::new(false),
            attachment: RefCell::new(None),
            pending_target: RefCell::new(None),
            links: RefCell::new(None),
            bridge_generation: Cell::new(0),
            session: RefCell::new(None),
            record: RefCell::new(None),
            editors: RefCell::default(),
            any_editor: Cell::new(false),
            watches_pages: Cell::new(false),
            shutdown_requested: Cell::new(false),
            panics: Cell::new(0),
            #[cfg(test)]
            panics_next: Cell::new(false),
            alarm: Alarm::default(),
            state_reads: StateReads::default(),
            presence_work: Rc::default(),
            exit: Exit::default(),
            orphan: Orphan::watch(),
            counters: Rc::default(),
        });
        let _ = handle.0.set(Rc::downgrade(&shell));
        Ok(shell)
    }

    fn listen(&self, signals: Signals) -> anyhow::Result<()> {
        let handle = self.handle.clone();
        signals.listen(move |action| {
            let Some(shell) = handle.shell() else { return };
            match action {
                SignalAction::Stop => {
                    shell.log_no_restart();
                    shell.leave_record();
                    shell.exit.decide(ExitReason::Signal);
                }
                SignalAction::Interrupt => shell.route(|bridge, now| bridge.interrupt(now)),
                SignalAction::Report => shell.report(),
            }
        })?;
        Ok(())
    }

    /// Starts a task on this thread.
    fn spawn<F>(&self, task: F)
    where
        F: AsyncFnOnce(Rc<Self>) + 'static,
    {
        if let Some(shell) = self.handle.shell() {
            tokio::task::spawn_local(async move { task(shell).await });
        }
    }

    /// Returns the session that is served, once it is known which.
    fn attachment(&self) -> Option<Rc<Attachment>> {
        self.attachment.borrow().clone()
    }

    fn links(&self) -> Option<Rc<Links>> {
        self.links.borrow().clone()
    }

    fn is_live(&self) -> bool {
        matches!(self.bridge.borrow().kernel(), Kernel::Live { .. })
    }

    // ---- actions

    /// Calls an input method of the bridge, and carries out the resulting actions.
    fn route(&self, input: impl FnOnce(&mut Bridge, Now)) {
        input(&mut self.bridge.borrow_mut(), now());
        if self.is_acting.replace(true) {
            return;
        }
        let acting = Acting(&self.is_acting);
        loop {
            // The borrow ends here, because an action may call an input method.
            let action = self.bridge.borrow_mut().poll_action();
            let Some(action) = action else { break };
            self.act(action);
        }
        drop(acting);
        let due = self.bridge.borrow().poll_timeout();
        self.alarm.wake_by(due);
    }

    fn act(&self, action: Action) {
        #[cfg(test)]
        assert!(!self.panics_next.take(), "a test's panic");
        match action {
            Action::ToClient {
                client,
                channel,
                message,
            } => self.send_to_client(&client, channel, message),
            Action::Publish(message) => {
                let size = message.size();
                self.counters
                    .count_message(Direction::ToClients, Channel::Iopub, size);
                self.endpoint.publish(message);
            }
            Action::ToKernel {
                client,
                channel,
                message,
            } => self.send_to_kernel(&client, channel, message),
            Action::OpenLink { client, channel } => {
                if let Some(links) = self.links() {
                    links.open(&client, channel);
                }
            }
            Action::CloseLinks(client) => {
                if let Some(links) = self.links() {
                    links.close(&client);
                }
            }
            Action::Editor { comm, message } => self.editor_message(comm, message),
            Action::SignalKernel => self.signal_kernel(),
            Action::Pause(client) => self.endpoint.set_paused(client.bytes(), true),
            Action::Resume(client) => self.endpoint.set_paused(client.bytes(), false),
            Action::Journal(execution) => self.record(execution),
            Action::Facts {
                generation,
                msg_id,
                content,
            } => {
                if let Some(attachment) = self.attachment() {
                    attachment.journal.add_facts(generation, msg_id, content);
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
                    attachment
                        .journal
                        .add_interrupt(self.bridge_generation.get(), withdrawn);
                    attachment.journal.write_soon();
                }
            }
            Action::WidgetsVersion { version } => self.remember_widgets(version),
            Action::Log(note) => self.log(&note),
            Action::SessionSeen { session } => self.take_session(session),
            Action::HandOver { sessions } => self.spawn(async move |shell| {
                if let Some(attachment) = shell.attachment() {
                    let scope = HandOffScope::Sessions(&sessions);
                    let prompted = attachment
                        .outputs
                        .hand_off(&attachment.target(), scope)
                        .await;
                    shell.hand_over_prompts(&prompted);
                }
            }),
            Action::ResolveNotebook { notebook } => self.resolve(notebook),
            Action::Revive { .. } => self.revive(),
            Action::ExitWithKernel(ending) => {
                self.exit.decide(ExitReason::KernelEnded(ending.text));
            }
            Action::Leave { restart } => {
                self.shutdown_requested.set(true);
                if restart {
                    self.restart_and_leave();
                } else {
                    self.exit.decide(ExitReason::Shutdown);
                }
            }
        }
    }

    fn send_to_client(&self, client: &ClientId, channel: Channel, message: Verified) {
        self.counters
            .count_message(Direction::ToClients, channel, message.size());
        tracing::debug!(%client, %channel, ?message, "to the client");
        match self.endpoint.send(channel, client.bytes(), message) {
            Ok(()) => {}
            Err(UnsentReason::Full) => {
                tracing::warn!(%client, %channel, "the client does not read its replies: its connection is cut");
                self.counters.count_lost(1);
                self.counters.count_cut();
            }
            Err(UnsentReason::NoSuchPeer) => {
                tracing::warn!(%client, %channel, "a message could not be delivered: the client is not connected");
                self.counters.count_lost(1);
            }
        }
    }

    fn send_to_kernel(&self, client: &ClientId, channel: Channel, message: Verified) {
        self.counters
            .count_message(Direction::ToKernel, channel, message.size());
        if channel == Channel::Stdin
            && let Some(attachment) = self.attachment()
        {
            attachment.outputs.end_prompt(client);
        }
        if let Some(links) = self.links() {
            links.send(client, channel, message);
        }
    }

    fn signal_kernel(&self) {
        let links = self.links();
        let process = links.as_ref().and_then(|it| it.kernel().process.as_ref());
        match process.map(|process| process.signal_group(Signal::INT)) {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::warn!("the kernel was not interrupted: {error}"),
            None => tracing::warn!("the kernel was not interrupted: its process is not known"),
        }
    }

    /// Passes a step of an execution to the journal and to the stored outputs.
    fn record(&self, execution: ExecutionProgress) {
        let Some(attachment) = self.attachment() else {
            return;
        };
        if let Some(links) = self.links() {
            let kernel = links.kernel();
            let kernel = (&*kernel.owner, kernel.generation);
            let published = self.published();
            attachment
                .outputs
                .take_execution(&execution, kernel, published);
            self.alarm.wake_by(attachment.outputs.due());
            if matches!(execution.phase, Phase::Sent) {
                self.watch_pages();
            }
        }
        attachment.journal.add_execution(execution);
        attachment.journal.write_soon();
    }

    fn log(&self, note: &Note) {
        match note {
            Note::Undeliverable { count, .. } | Note::NoKernel { count, .. } => {
                self.counters.count_lost(*count);
                tracing::warn!("{note}");
            }
            Note::RequestFailed { .. } => tracing::warn!("{note}"),
            _ => tracing::info!("{note}"),
        }
    }
}

fn now() -> Now {
    Now {
        instant: Instant::now(),
        date: jiff::Timestamp::now(),
    }
}

/// Resets `Shell::is_acting` when it is dropped, also after a panic in an action.
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
    use std::io;
    use std::time::Duration;

    use bytes::Bytes;
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

    use super::super::messages;
    use super::*;
    use crate::project::Project;
    use crate::socket::{
        DialAs, DialHandler, DialRole, Dialer, DisconnectReason, Message, SocketLimits,
    };
    use crate::wire::fixtures::message;

    /// A client's own socket: reports when it is connected, and the messages that it gets.
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

    fn info_request(msg_id: &str) -> Verified {
        let content = serde_json::json!({});
        message("kernel_info_request", msg_id, "s", "{}".into(), &content)
    }

    /// Returns a proxy whose sockets are in this folder, and their addresses.
    async fn bound_in(folder: &std::path::Path) -> (Rc<Shell>, ConnectionInfo) {
        let file = serde_json::json!({
            "transport": "ipc", "ip": folder.join("k"), "key": "a key",
            "signature_scheme": "hmac-sha256",
            "shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5,
        });
        let connection = ConnectionInfo::parse(file.to_string().as_bytes()).unwrap();
        let front_end = DetectedFrontEnd::read(&HashMap::<&str, &str>::new());
        let folder = folder.to_owned();
        let shell = Shell::bind(&connection, folder.join("c.json"), front_end, folder)
            .await
            .unwrap();
        (shell, connection)
    }

    #[tokio::test]
    async fn the_settings_are_those_of_the_notebooks_project_not_of_the_working_directorys() {
        let local = tokio::task::LocalSet::new();
        let test = async {
            let temp = tempfile::tempdir().unwrap();
            let (folder, other) = (temp.path().join("folder"), temp.path().join("other"));
            std::fs::create_dir(&folder).unwrap();
            std::fs::create_dir(&other).unwrap();
            let project = Project::for_notebook(&folder.join("a.ipynb")).unwrap();
            std::fs::write(project.dir().join("config.toml"), "autostart = false").unwrap();
            let (shell, _) = bound_in(&folder).await;
            shell.take_settings(Some(&project));
            assert!(shell.target_of(&folder.join("b.ipynb")).is_ok());
            assert!(!shell.settings.borrow().autostart);
            assert!(shell.target_of(&other.join("b.ipynb")).is_ok());
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
        let (shell, connection) = bound_in(temp.path()).await;
        let ending = messages::fault();
        let unresolved = Kernel::Unresolved { info: None };
        shell.route(|bridge, now| bridge.set_kernel(now, unresolved, &ending, []));

        let (sender, mut events) = unbounded_channel();
        let dial_as = DialAs {
            socket_type: DialRole::Dealer,
            identity: Bytes::from_static(b"client"),
            subscribe: Vec::new(),
        };
        let endpoint = connection.endpoint(Channel::Shell);
        let dialer = Dialer::connect(
            endpoint,
            dial_as,
            SocketLimits::default(),
            Rc::new(Client(sender)),
        );
        assert_eq!(events.recv().await, Some(None));
        shell.panics_next.set(true);
        dialer
            .send(info_request("one").into_frames(&connection.key))
            .unwrap();
        // The connection is lost and made again.
        while events.recv().await != Some(None) {}
        assert!(!shell.panics_next.get());
        dialer
            .send(info_request("two").into_frames(&connection.key))
            .unwrap();
        let answer = async {
            while let Some(event) = events.recv().await {
                let frames = event.unwrap_or_default();
                let text: Vec<u8> = frames.concat();
                if memchr::memmem::find(&text, b"\"two\"").is_some() {
                    return;
                }
            }
        };
        let limit = Duration::from_secs(20);
        tokio::time::timeout(limit, answer).await.unwrap();

        for _ in 0..panics::PANICS_MAX {
            assert_eq!(shell.exit.reason(), None);
            shell.recover();
        }
        assert_eq!(shell.exit.reason(), Some(ExitReason::Faults));
    }
}
