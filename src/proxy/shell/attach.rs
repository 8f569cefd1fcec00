//! Notebook resolution: finds the session at launch, or once the front end's traffic names its notebook.

use std::ffi::OsStr;
use std::path::Path;
use std::rc::Rc;

use anyhow::bail;

use super::Shell;
use crate::project::{Config, OnRestart, Project, StartupCode};
use crate::proxy::attachment::Attachment;
use crate::proxy::log;
use crate::proxy::messages;
use crate::proxy::snapshot::{KernelState, default_answers};
use crate::proxy::target::{LaunchTarget, Target};
use crate::route::{Ending, FrontEnd, Kernel, Policies};

impl Shell {
    /// Finds the kernel, or waits until the front end's first messages name it.
    ///
    /// # Errors
    /// What prevents the proxy from serving, in words for the person who chose the kernel.
    pub(super) async fn begin(&self, target: LaunchTarget) -> anyhow::Result<()> {
        self.take_settings(Project::find(&self.launch.folder).as_ref());
        let target = match target {
            LaunchTarget::FromTraffic => None,
            LaunchTarget::State(path) => Some(Target::of_state(&path)?),
            LaunchTarget::Notebook(notebook) => Some(self.target_of(&notebook)?),
            LaunchTarget::Unnamed => Some(self.likely_target()?),
        };
        let Some(target) = target else {
            self.log_launch(None);
            if let Some(project) = Project::find(&self.launch.folder) {
                self.open_log(&project);
            }
            return Ok(());
        };
        self.use_project(&target.project);
        self.log_launch(Some(&target));
        let snapshot = target.snapshot()?;
        let ending = match snapshot.kernel {
            KernelState::Died(ended) => Some(messages::died(&target, ended.as_ref())),
            KernelState::None(ending) => Some(ending),
            KernelState::Live(_) | KernelState::Awaited(_) => None,
        };
        let may_start = self.settings.borrow().autostart && snapshot.may_start;
        if let Some(ending) = ending.filter(|_| !may_start) {
            tracing::error!("{}", ending.text);
            bail!("{}", ending.text.replace(". Start", ".\nStart"));
        }
        if self.launch.front_end.kind == FrontEnd::VsCode {
            // The first message shows whether this launch is a restart.
            *self.pending_target.borrow_mut() = Some(target);
            return Ok(());
        }
        self.attach(target);
        self.read_note();
        if self.launch.front_end.kind == FrontEnd::Jupyter {
            // A server does not show what a kernel printed while it failed to start, but a cell's error can.
            self.follow_or_start();
            return Ok(());
        }
        self.follow_or_start_now().await
    }

    /// Returns the target of a launch that names none. The client of the first cell gets a notice if another notebook
    /// may be meant.
    fn likely_target(&self) -> anyhow::Result<Target> {
        let folder = &self.launch.folder;
        let program = match self.launch.front_end.kind {
            FrontEnd::Other => self.launch.parent.as_ref(),
            // A server's arguments do not name the notebook of a console in it.
            FrontEnd::Jupyter | FrontEnd::VsCode => None,
        };
        let Some(program) = program else {
            return Target::of_folder(folder);
        };
        let (target, notice) = Target::of_program(program.arguments(), folder)?;
        if let Some(notice) = notice {
            tracing::warn!("{notice}");
            self.bridge.borrow_mut().set_choice(notice);
        }
        Ok(target)
    }

    fn log_launch(&self, target: Option<&Target>) {
        tracing::info!(
            front_end = &*self.launch.front_end.name,
            notebook = target.map(|target| &*target.key),
            "launched, version {}",
            env!("CARGO_PKG_VERSION")
        );
    }

    /// Reads the settings of a project; without a project, those of the environment.
    pub(super) fn take_settings(&self, project: Option<&Project>) {
        let variable = |name: &str| std::env::var_os(name);
        let result = match project {
            Some(project) => project.settings(),
            None => Config::default().with(variable),
        };
        let settings = result.unwrap_or_else(|error| {
            let error = anyhow::Error::from(error);
            tracing::warn!("the settings cannot be used: {error:#}");
            Config::default().with(variable).unwrap_or_default()
        });
        let policies = Policies {
            turns: settings.turns,
            answer_startup: settings.startup_code == StartupCode::Answer,
            restart: settings.on_restart == OnRestart::Restart,
            startup_known: settings.startup_known.clone(),
            return_time: settings.return_time(),
        };
        *self.settings.borrow_mut() = settings;
        self.bridge.borrow_mut().set_policies(policies);
    }

    /// Returns a notebook's session; makes its project if a kernel may be started for the notebook.
    ///
    /// From now on the settings are those of the notebook's project, not those of the working directory's.
    pub(super) fn target_of(&self, notebook: &Path) -> anyhow::Result<Target> {
        self.take_settings(Project::find(notebook).as_ref());
        Target::of_notebook(notebook, self.settings.borrow().autostart)
    }

    /// Stores the session that the clients' messages carry.
    pub(super) fn take_session(&self, session: String) {
        *self.session.borrow_mut() = Some(session);
        if self.launch.front_end.kind != FrontEnd::VsCode {
            return;
        }
        self.spawn(async |shell| {
            let target = shell.pending_target.take();
            let project = match &target {
                Some(target) => Some(target.project.clone()),
                None => Project::find(&shell.launch.folder),
            };
            if let Some(project) = project
                && let Some(record) = shell.find_restart(&project).await
            {
                return shell.finish_restart(project, &record).await;
            }
            match target {
                Some(target) => {
                    shell.attach(target);
                    shell.follow_or_start();
                }
                None => shell.await_notebook(),
            }
        });
    }

    fn await_notebook(&self) {
        let (info, widgets) =
            default_answers(&self.launch.folder, &self.launch.front_end.language).unzip();
        let unresolved = Kernel::Unresolved { info };
        let ending = empty_ending();
        self.route(|bridge, now| {
            // Set first, since held requests are answered at once.
            bridge.set_widgets(widgets.flatten());
            bridge.set_kernel(now, unresolved, &ending, []);
        });
    }

    /// Takes the notebook that the front end's traffic names; `None` if nothing has named one.
    pub(super) fn resolve(&self, notebook: Option<String>) {
        let notebook = notebook
            .map(|name| self.launch.folder.join(name))
            .filter(|path| path.extension() == Some(OsStr::new("ipynb")));
        let folder_project = Project::find(&self.launch.folder);
        let result = match &notebook {
            Some(notebook) => self.target_of(notebook),
            None => Target::of_folder(&self.launch.folder),
        };
        let target = match result {
            Ok(target) => target,
            Err(error) => {
                tracing::error!("{error:#}");
                let ending = messages::no_session(&error);
                let ended = Kernel::Ended(ending.clone());
                return self.route(|bridge, now| bridge.set_kernel(now, ended, &ending, []));
            }
        };
        let attachment = self.attachment();
        if let Some(attachment) = &attachment {
            if attachment.target() == target {
                return;
            }
            tracing::info!(
                "the notebook is {}, not {}",
                target.key,
                attachment.target().key
            );
        }
        drop(attachment);
        self.detach(&messages::renamed(&target));
        self.use_project(&target.project);
        tracing::info!(
            "attached to {}, {}",
            target.notebook().display(),
            if notebook.is_some() {
                "which the front end names"
            } else {
                "since nothing names another"
            }
        );
        if folder_project.as_ref() == Some(&target.project) {
            self.attach(target);
            return self.follow_or_start();
        }
        // If the front end's folder is in another project, the restart record is in the notebook's project.
        self.spawn(async move |shell| {
            if let Some(record) = shell.find_restart(&target.project).await {
                return shell.finish_restart(target.project, &record).await;
            }
            shell.attach(target);
            shell.follow_or_start();
        });
    }

    /// Leaves the session; requests wait for the kernel that is found next.
    fn detach(&self, ending: &Ending) {
        if let Some(attachment) = self.attachment.take() {
            attachment.journal.write_soon();
            self.spawn(async move |_| attachment.presence.withdraw().await);
        }
        let unsent = self.take_unsent();
        self.links.take();
        self.route(|bridge, now| bridge.leave_kernel(now, ending, unsent));
    }

    /// Attaches to a session. The caller resolves its kernel next.
    pub(super) fn attach(&self, target: Target) {
        let attachment = Attachment::new(
            target,
            &self.launch.front_end,
            &self.presence_work,
            self.alarm.rearm(),
            self.state_reads.notification(),
        );
        let clients = self.bridge.borrow().joined().count();
        attachment.presence.update(clients, None);
        *self.attachment.borrow_mut() = Some(Rc::new(attachment));
        // The state may have changed before the watch began.
        self.state_reads.request();
        self.write_restart_record();
    }

    /// Reads the settings of a project and opens its log.
    pub(super) fn use_project(&self, project: &Project) {
        self.take_settings(Some(project));
        self.open_log(project);
    }

    /// Opens the project's log; prints one line on stderr if it cannot be written.
    fn open_log(&self, project: &Project) {
        if let Err(error) = log::open(project, self.settings.borrow().log.as_deref()) {
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
}

/// Returns an ending for a change from a state without a kernel: no client gets it.
fn empty_ending() -> Ending {
    Ending::new("NoKernel", String::new())
}
