//! Which kernel is served: found at launch, or once the front end's traffic names its notebook.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::bail;

use super::journal;
use super::keep::Keep;
use super::log;
use super::presence::Presence;
use super::shell::Shell;
use super::start::Pending;
use super::target::{Found, Look, Named, Target, usual};
use super::trouble::Trouble;
use super::watch::Watch;
use super::words;
use crate::project::counters::Counters;
use crate::project::{Config, OnRestart, Project, StartupCode};
use crate::route::{Ending, FrontEnd, Kernel, Policies};

/// The session that is served, and what is kept for it.
pub(super) struct Bound {
    pub(super) target: Target,
    pub(super) journal: Rc<journal::Log>,
    pub(super) keep: Rc<Keep>,
    pub(super) presence: Rc<Presence>,
    /// The kernel's record cannot be read.
    pub(super) unread: Trouble,
    /// Its end cannot be written into it.
    pub(super) unwritten: Trouble,
    /// The session is written down, as far as was seen last.
    pub(super) is_recorded: Cell<bool>,
    /// A kernel may be started here for it, as far as was seen last.
    pub(super) may_start: Cell<bool>,
    /// The kernel's process may live, and its sockets do not answer.
    pub(super) is_unreachable: Cell<bool>,
    /// What this proxy has set going for the kernel.
    pub(super) pending: Cell<Pending>,
    /// Why the kernel could not be started.
    pub(super) failure: RefCell<Option<Ending>>,
    /// Whether the front end's user knows the variables of a kernel that this proxy never reached.
    pub(super) missed: Cell<bool>,
    _watch: Watch,
}

impl Bound {
    /// Takes what a look has found.
    pub(super) fn note(&self, look: &Look) {
        self.is_recorded.set(look.is_recorded);
        self.may_start.set(look.may_start);
    }

    /// Tells others how many clients are joined, and what was counted.
    pub(super) fn tell(&self, clients: usize, counted: Option<Counters>) {
        self.presence.tell(clients, counted);
    }
}

impl Shell {
    /// Finds the kernel, or lets the front end's first messages say more.
    ///
    /// # Errors
    /// What keeps it from serving, in words for the person who chose the kernel.
    pub(super) async fn begin(&self, named: Named) -> anyhow::Result<()> {
        self.obey(Project::find(&self.folder).as_ref());
        let target = match named {
            Named::Later => None,
            Named::State(path) => Some(Target::of_state(&path)?),
            Named::Notebook(notebook) => Some(self.target_of(&notebook)?),
            Named::Nothing => Some(Target::of_folder(&self.folder)?),
        };
        let Some(target) = target else {
            self.log_launch(None);
            if let Some(project) = Project::find(&self.folder) {
                open_log(&project, &self.settings.borrow());
            }
            return Ok(());
        };
        self.obey(Some(&target.project));
        open_log(&target.project, &self.settings.borrow());
        self.log_launch(Some(&target));
        let ending = match target.look()? {
            Found::Died(ended) => Some(words::died(&target, ended.as_ref())),
            Found::None(ending) => Some(ending),
            Found::Live(_) | Found::Awaited => None,
        };
        if let Some(ending) = ending.filter(|_| !self.may_start(&target)) {
            tracing::error!("{}", ending.text);
            bail!("{}", ending.text.replace(". Start", ".\nStart"));
        }
        if self.origin.front_end == FrontEnd::VsCode {
            // Its first message says whether this launch is a restart.
            *self.given.borrow_mut() = Some(target);
            return Ok(());
        }
        self.take(target);
        self.read_note();
        if self.origin.front_end == FrontEnd::Jupyter {
            // A server shows nobody what a kernel wrote while it failed: a cell can say it.
            self.arrive();
            return Ok(());
        }
        self.arrive_now().await
    }

    fn log_launch(&self, target: Option<&Target>) {
        tracing::info!(
            front_end = self.origin.name,
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
        if self.origin.front_end != FrontEnd::VsCode {
            return;
        }
        self.spawn(async |shell| {
            let given = shell.given.take();
            let project = match &given {
                Some(target) => Some(target.project.clone()),
                None => Project::find(&shell.folder),
            };
            if let Some(project) = project
                && let Some(record) = shell.relaunched(&project).await
            {
                return shell.resume(project, &record).await;
            }
            match given {
                Some(target) => {
                    shell.take(target);
                    shell.arrive();
                }
                None => shell.wait_for_the_name(),
            }
        });
    }

    fn wait_for_the_name(&self) {
        let (info, widgets) = usual(&self.folder, &self.origin.language).unzip();
        let unnamed = Kernel::Unresolved { info };
        let ending = no_ending();
        self.route(|bridge, now| {
            // First, since what was held is answered at once.
            bridge.set_widgets(widgets.flatten());
            bridge.kernel_is(now, unnamed, &ending, []);
        });
    }

    /// Takes the notebook that the front end's traffic names; none where nothing names one.
    pub(super) fn bind_to(&self, notebook: Option<String>) {
        let named = notebook
            .map(|name| self.folder.join(name))
            .filter(|path| path.extension() == Some(OsStr::new("ipynb")));
        let looked_in = Project::find(&self.folder);
        let found = match &named {
            Some(notebook) => self.target_of(notebook),
            None => Target::of_folder(&self.folder),
        };
        let target = match found {
            Ok(target) => target,
            Err(error) => {
                tracing::error!("{error:#}");
                let ending = words::nothing(&error);
                let ended = Kernel::Ended(ending.clone());
                return self.route(|bridge, now| bridge.kernel_is(now, ended, &ending, []));
            }
        };
        let bound = self.bound();
        if let Some(bound) = &bound {
            if bound.target == target {
                return;
            }
            tracing::info!("the notebook is {}, not {}", target.key, bound.target.key);
        }
        drop(bound);
        self.let_go(&words::renamed(&target));
        self.obey(Some(&target.project));
        open_log(&target.project, &self.settings.borrow());
        tracing::info!(
            "serves {}, {}",
            target.notebook().display(),
            if named.is_some() {
                "which the front end names"
            } else {
                "since nothing names another"
            }
        );
        if looked_in.as_ref() == Some(&target.project) {
            self.take(target);
            return self.arrive();
        }
        // Where the front end's folder is in another project, the record is in the notebook's.
        self.spawn(async move |shell| {
            if let Some(record) = shell.relaunched(&target.project).await {
                return shell.resume(target.project, &record).await;
            }
            shell.take(target);
            shell.arrive();
        });
    }

    /// Lets everything wait for a kernel that is about to be found.
    fn let_go(&self, ending: &Ending) {
        if let Some(bound) = self.bound.take() {
            bound.journal.write_soon();
            self.spawn(async move |_| bound.presence.withdraw().await);
        }
        let links = self.links.take();
        let unsent = links.map(|links| links.take_unsent()).unwrap_or_default();
        self.route(|bridge, now| bridge.kernel_is(now, Kernel::Awaited, ending, unsent));
    }

    /// Makes it the session that is served. Its kernel is looked for next.
    pub(super) fn take(&self, target: Target) {
        self.bridge.borrow_mut().set_info(target.last_info());
        let presence = Rc::new(Presence::new(
            target.project.clone(),
            target.key.clone(),
            self.origin.name.to_owned(),
            Rc::clone(&self.presence_work),
        ));
        presence.tell(self.bridge.borrow().joined().count(), None);
        let bound = Bound {
            journal: Rc::new(journal::Log::open(&target.project, self.origin.by())),
            keep: Rc::new(Keep::new(
                self.origin.by(),
                self.origin.name,
                Rc::clone(&self.rearm),
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
            _watch: Watch::begin(target.project.dir(), &self.look),
            target,
        };
        *self.bound.borrow_mut() = Some(Rc::new(bound));
        // What changed between the look and the watch.
        self.look_again();
        self.leave_traces();
    }

    /// Returns the session that is served, once it is known which.
    pub(super) fn bound(&self) -> Option<Rc<Bound>> {
        self.bound.borrow().clone()
    }
}

/// Opens the project's log; one that cannot be written is told once.
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

/// Returns an ending for a change before which nothing lived: nobody reads it.
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
