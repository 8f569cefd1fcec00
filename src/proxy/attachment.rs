//! Attachment to a session: found at launch, or once the front end's traffic names its notebook.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::bail;

use super::journal;
use super::log;
use super::messages;
use super::presence::Presence;
use super::shell::Shell;
use super::start::Pending;
use super::stored_outputs::StoredOutputs;
use super::target::{Found, Look, Named, Target, usual};
use super::trouble::Trouble;
use super::watch::Watch;
use crate::project::counters::Counters;
use crate::project::{Config, OnRestart, Project, StartupCode};
use crate::route::{Ending, FrontEnd, Kernel, Policies};

/// The session that this process is attached to, and what is written for it.
pub(super) struct Attachment {
    pub(super) target: Target,
    pub(super) journal: Rc<journal::Log>,
    pub(super) outputs: Rc<StoredOutputs>,
    pub(super) presence: Rc<Presence>,
    /// The session's state cannot be read.
    pub(super) unread: Trouble,
    /// The kernel's end cannot be written into it.
    pub(super) unwritten: Trouble,
    /// Whether `state.json` has the session, as far as was read last.
    pub(super) is_recorded: Cell<bool>,
    /// Whether a kernel may be started here for it, as far as was read last.
    pub(super) may_start: Cell<bool>,
    /// The kernel's process may live, and its sockets do not answer.
    pub(super) is_unreachable: Cell<bool>,
    /// What this proxy is doing to the kernel.
    pub(super) pending: Cell<Pending>,
    /// Why the kernel could not be started.
    pub(super) failure: RefCell<Option<Ending>>,
    /// Whether the front end's user knows the variables of a kernel that this proxy never reached.
    pub(super) missed: Cell<bool>,
    _watch: Watch,
}

impl Attachment {
    /// Takes what was read.
    pub(super) fn note(&self, look: &Look) {
        self.is_recorded.set(look.is_recorded);
        self.may_start.set(look.may_start);
    }

    /// Writes into this proxy's record how many clients are connected, and what was counted.
    pub(super) fn update_record(&self, clients: usize, counted: Option<Counters>) {
        self.presence.update(clients, counted);
    }
}

impl Shell {
    /// Finds the kernel, or lets the front end's first messages say more.
    ///
    /// # Errors
    /// What keeps it from serving, in words for the person who chose the kernel.
    pub(super) async fn begin(&self, named: Named) -> anyhow::Result<()> {
        self.obey(Project::find(&self.launch.folder).as_ref());
        let target = match named {
            Named::Later => None,
            Named::State(path) => Some(Target::of_state(&path)?),
            Named::Notebook(notebook) => Some(self.target_of(&notebook)?),
            Named::Nothing => Some(Target::of_folder(&self.launch.folder)?),
        };
        let Some(target) = target else {
            self.log_launch(None);
            if let Some(project) = Project::find(&self.launch.folder) {
                open_log(&project, &self.settings.borrow());
            }
            return Ok(());
        };
        self.obey(Some(&target.project));
        open_log(&target.project, &self.settings.borrow());
        self.log_launch(Some(&target));
        let ending = match target.look()? {
            Found::Died(ended) => Some(messages::died(&target, ended.as_ref())),
            Found::None(ending) => Some(ending),
            Found::Live(_) | Found::Awaited => None,
        };
        if let Some(ending) = ending.filter(|_| !self.may_start(&target)) {
            tracing::error!("{}", ending.text);
            bail!("{}", ending.text.replace(". Start", ".\nStart"));
        }
        if self.launch.front_end.kind == FrontEnd::VsCode {
            // Its first message says whether this launch is a restart.
            *self.given.borrow_mut() = Some(target);
            return Ok(());
        }
        self.attach(target);
        self.read_note();
        if self.launch.front_end.kind == FrontEnd::Jupyter {
            // A server shows nobody what a kernel wrote while it failed: a cell can say it.
            self.arrive();
            return Ok(());
        }
        self.arrive_now().await
    }

    fn log_launch(&self, target: Option<&Target>) {
        tracing::info!(
            front_end = self.launch.front_end.name,
            notebook = target.map(|target| &*target.key),
            "launched, version {}",
            env!("CARGO_PKG_VERSION")
        );
    }

    /// Takes the settings of a project, or those of the environment alone.
    pub(super) fn obey(&self, project: Option<&Project>) {
        let variable = |name: &str| std::env::var_os(name);
        let read = match project {
            Some(project) => project.settings(),
            None => Config::default().with(variable),
        };
        let settings = read.unwrap_or_else(|error| {
            let error = anyhow::Error::from(error);
            tracing::warn!("settings are not used: {error:#}");
            Config::default().with(variable).unwrap_or_default()
        });
        let policies = Policies {
            turns: settings.turns,
            answer_startup: settings.startup_code == StartupCode::Answer,
            restart: settings.on_restart == OnRestart::Restart,
            startup_known: settings.startup_known.clone(),
        };
        *self.settings.borrow_mut() = settings;
        self.bridge.borrow_mut().set_policies(policies);
    }

    /// Returns a notebook's session; its project is made where a kernel may be started for it.
    ///
    /// The settings are those of its project from now on, whatever the working directory's says.
    pub(super) fn target_of(&self, notebook: &Path) -> anyhow::Result<Target> {
        self.obey(Project::find(notebook).as_ref());
        Target::of_notebook(notebook, self.settings.borrow().autostart)
    }

    /// Takes the session that the clients' messages carry.
    pub(super) fn heard(&self, session: String) {
        *self.session.borrow_mut() = Some(session);
        if self.launch.front_end.kind != FrontEnd::VsCode {
            return;
        }
        self.spawn(async |shell| {
            let given = shell.given.take();
            let project = match &given {
                Some(target) => Some(target.project.clone()),
                None => Project::find(&shell.launch.folder),
            };
            if let Some(project) = project
                && let Some(record) = shell.relaunched(&project).await
            {
                return shell.resume(project, &record).await;
            }
            match given {
                Some(target) => {
                    shell.attach(target);
                    shell.arrive();
                }
                None => shell.await_notebook(),
            }
        });
    }

    fn await_notebook(&self) {
        let (info, widgets) = usual(&self.launch.folder, &self.launch.front_end.language).unzip();
        let unnamed = Kernel::Unresolved { info };
        let ending = no_ending();
        self.route(|bridge, now| {
            // First, since what was held is answered at once.
            bridge.set_widgets(widgets.flatten());
            bridge.kernel_is(now, unnamed, &ending, []);
        });
    }

    /// Takes the notebook that the front end's traffic names; none where nothing names one.
    pub(super) fn resolve(&self, notebook: Option<String>) {
        let named = notebook
            .map(|name| self.launch.folder.join(name))
            .filter(|path| path.extension() == Some(OsStr::new("ipynb")));
        let looked_in = Project::find(&self.launch.folder);
        let found = match &named {
            Some(notebook) => self.target_of(notebook),
            None => Target::of_folder(&self.launch.folder),
        };
        let target = match found {
            Ok(target) => target,
            Err(error) => {
                tracing::error!("{error:#}");
                let ending = messages::nothing(&error);
                let ended = Kernel::Ended(ending.clone());
                return self.route(|bridge, now| bridge.kernel_is(now, ended, &ending, []));
            }
        };
        let attachment = self.attachment();
        if let Some(attachment) = &attachment {
            if attachment.target == target {
                return;
            }
            tracing::info!(
                "the notebook is {}, not {}",
                target.key,
                attachment.target.key
            );
        }
        drop(attachment);
        self.detach(&messages::renamed(&target));
        self.obey(Some(&target.project));
        open_log(&target.project, &self.settings.borrow());
        tracing::info!(
            "attached to {}, {}",
            target.notebook().display(),
            if named.is_some() {
                "which the front end names"
            } else {
                "since nothing names another"
            }
        );
        if looked_in.as_ref() == Some(&target.project) {
            self.attach(target);
            return self.arrive();
        }
        // Where the front end's folder is in another project, the record is in the notebook's.
        self.spawn(async move |shell| {
            if let Some(record) = shell.relaunched(&target.project).await {
                return shell.resume(target.project, &record).await;
            }
            shell.attach(target);
            shell.arrive();
        });
    }

    /// Leaves the session; every request waits for the kernel that is found next.
    fn detach(&self, ending: &Ending) {
        if let Some(attachment) = self.attachment.take() {
            attachment.journal.write_soon();
            self.spawn(async move |_| attachment.presence.withdraw().await);
        }
        let links = self.links.take();
        let unsent = links.map(|links| links.take_unsent()).unwrap_or_default();
        self.route(|bridge, now| bridge.kernel_is(now, Kernel::Awaited, ending, unsent));
    }

    /// Attaches to a session. Its kernel is looked for next.
    pub(super) fn attach(&self, target: Target) {
        self.bridge.borrow_mut().set_info(target.last_info());
        let presence = Rc::new(Presence::new(
            target.project.clone(),
            target.key.clone(),
            self.launch.front_end.name.to_owned(),
            Rc::clone(&self.presence_work),
        ));
        presence.update(self.bridge.borrow().joined().count(), None);
        let attachment = Attachment {
            journal: Rc::new(journal::Log::open(
                &target.project,
                self.launch.front_end.by(),
            )),
            outputs: Rc::new(StoredOutputs::new(
                self.launch.front_end.by(),
                self.launch.front_end.name,
                self.alarm.rearm(),
            )),
            presence,
            unread: Trouble::default(),
            unwritten: Trouble::default(),
            is_recorded: Cell::new(target.is_recorded()),
            may_start: Cell::new(target.may_start()),
            is_unreachable: Cell::new(false),
            pending: Cell::new(Pending::Nothing),
            failure: RefCell::new(None),
            missed: Cell::new(false),
            _watch: Watch::begin(target.project.dir(), &self.state_reads.wanted()),
            target,
        };
        *self.attachment.borrow_mut() = Some(Rc::new(attachment));
        // What changed between the read and the watch.
        self.look_again();
        self.leave_traces();
    }

    /// Returns the session that is served, once it is known which.
    pub(super) fn attachment(&self) -> Option<Rc<Attachment>> {
        self.attachment.borrow().clone()
    }
}

/// Opens the project's log; where it cannot be written, one line on stderr says so.
pub(super) fn open_log(project: &Project, settings: &Config) {
    if let Err(error) = log::open(project, settings.log.as_deref()) {
        eprintln!(
            "nb-proxy: cannot write {}: {error}",
            project.proxy_log().display()
        );
    }
    if let Some(notice) = project.notice() {
        tracing::info!("{notice}");
    }
    if let Some(dir) = project.foreign() {
        tracing::warn!(
            "{} was not made by this user's nb on this machine: only a kernel that its state.json names in three keys is used",
            dir.display()
        );
    }
}

/// Returns an ending for a change from no kernel: no client reads it.
fn no_ending() -> Ending {
    Ending {
        name: "NoKernel",
        text: String::new(),
    }
}

/// Returns the working directory.
pub(super) fn working_folder() -> anyhow::Result<PathBuf> {
    use anyhow::Context;
    std::env::current_dir().context("cannot tell the working directory")
}
