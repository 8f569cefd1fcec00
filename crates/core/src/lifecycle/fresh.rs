//! A fresh kernel for one run of a notebook, beside the notebook's own, which goes on undisturbed.
//!
//! It is the kernel that `nb open` would start, in the same environment and the same sandbox, but its state is in a
//! [`TemporaryProject`], and by default it runs in a private copy of the project's folder. It ends with the process that
//! started it: that process ends it, or else its supervisor does once the process was killed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::end_kernel::end_kernel;
use super::open::{self, Notes, OpenOptions};
use super::open_error::OpenError;
use super::private_copy::{CopyLimits, PrivateCopy};
use super::sandbox;
use super::start::{FreshStart, KernelPlan, LockedSession};
use crate::editing::notebook_file::NotebookFile;
use crate::kernel::process::connection::KernelFiles;
use crate::kernel::process::detach::PreforkedProcess;
use crate::kernel::process::{Process, Signal};
use crate::kernel::variables::ProcessVariables;
use crate::notebook::Json;
use crate::project::temporary::TemporaryProject;
use crate::project::{Project, RealSpec, Session, beneath};

/// How long to wait for the lock of a session that no other process knows.
const LOCK: Duration = Duration::from_secs(5);

/// The kernel that is started, and where it runs.
#[derive(Clone, Debug)]
pub struct FreshOptions {
    /// How the kernel is chosen and confined; as it was for the notebook's last kernel where nothing is said.
    pub kernel: OpenOptions,
    /// Whether it runs in the notebook's own folder.
    pub in_place: bool,
}

/// A fresh kernel, and the folder in which it runs. Dropping it ends the kernel at once.
#[derive(Debug)]
pub struct FreshKernel {
    temporary: TemporaryProject,
    key: String,
    /// The folder of the notebook's own project.
    original: PathBuf,
    copy: PrivateCopy,
    session: Option<Session>,
}

impl FreshKernel {
    /// Chooses, copies and starts. May be cancelled at any await.
    ///
    /// # Errors
    /// No kernel can be chosen, the folder cannot be copied, or the kernel does not start.
    pub async fn start(notebook: &NotebookFile, options: &FreshOptions) -> Result<Self, OpenError> {
        // Three processes, each starting the next: they start up meanwhile.
        let preforked = PreforkedProcess::supervised().ok();
        let mut plan = plan(notebook, &options.kernel).await?;
        let fresh = FreshStart {
            owner: Process::current(),
            kernel_env: notebook.project.settings()?.kernel_env,
        };
        let (project, real) = (notebook.project.clone(), notebook.real.clone());
        let in_place = options.in_place;
        let making = tokio::task::spawn_blocking(move || prepare(&project, &real, in_place));
        let made = making.await;
        let (temporary, copy) = made
            .map_err(|error| OpenError::Internal(error.to_string()))?
            .map_err(|source| OpenError::Copy {
                folder: notebook.project.root().to_owned(),
                source,
            })?;
        let mut kernel = Self {
            temporary,
            key: notebook.key.clone(),
            original: notebook.project.root().to_owned(),
            copy,
            session: None,
        };
        kernel.confine(&mut plan);
        let timeout = options.kernel.timeout;
        let session = {
            let project = kernel.temporary.project();
            let mut locked = LockedSession::wait(project, &kernel.key, LOCK).await?;
            locked.set_preforked(preforked);
            locked.set_fresh(fresh);
            let notebook = project.notebook(&kernel.key);
            locked.start(&notebook, None, plan, timeout).await?
        };
        kernel.session = Some(session);
        Ok(kernel)
    }

    /// Adapts the plan of the notebook's last kernel to the folder.
    fn confine(&self, plan: &mut KernelPlan) {
        plan.settings.idle_timeout = None;
        let crate::project::Confinement::Sandbox(sandbox) = &mut plan.settings.confinement else {
            return;
        };
        // That of the running kernel stays as it is.
        sandbox.scratch = PathBuf::new();
        sandbox.keep_scratch = false;
        let root = self.temporary.project().root();
        for folder in sandbox
            .allow_read
            .iter_mut()
            .chain(&mut sandbox.allow_write)
        {
            if let Ok(inner) = folder.strip_prefix(&self.original) {
                // Without the dot that joining nothing would leave.
                *folder = root.join(inner).components().collect();
            }
        }
        if self.copy.has_links() {
            sandbox.allow_read.push(self.original.clone());
        }
    }

    /// Returns the project of the kernel, and its session's key in it.
    pub fn project(&self) -> (&Project, &str) {
        (self.temporary.project(), &self.key)
    }

    /// Returns the session: none once the kernel was ended.
    pub fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// Returns the kernelspec that was started.
    pub fn spec(&self) -> Option<&RealSpec> {
        self.session.as_ref()?.kernelspec.as_ref()
    }

    /// Returns notes on the copy.
    pub fn notes(&self) -> &[String] {
        &self.copy.notes
    }

    /// Returns the originals behind links of the copy that have changed since the last call.
    pub fn changed_originals(&mut self) -> Vec<PathBuf> {
        self.copy.changed_originals()
    }

    /// Returns an output with the paths of the copy as paths of the notebook's own folder.
    pub fn relocated(&self, output: Json) -> Json {
        let quoted = |path: &Path| {
            let text = Json::string(&path.to_string_lossy()).text().into_owned();
            text.trim_matches('"').to_owned()
        };
        let root = self.temporary.project().root();
        let (from, to) = (quoted(root), quoted(&self.original));
        if from == to || !output.text().contains(&from) {
            return output;
        }
        Json::parse(&output.text().replace(&from, &to)).unwrap_or(output)
    }

    /// Ends the kernel as `nb shutdown` does, and removes its folder.
    pub async fn end(mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        let project = self.temporary.project();
        if let Some(process) = Process::recorded(&session)
            && process.is_alive()
            && let Ok(locked) = LockedSession::wait(project, &self.key, LOCK).await
        {
            end_kernel(&locked, &session, &process, false).await;
        }
        // The removal of many files takes a moment.
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }
}

impl Drop for FreshKernel {
    fn drop(&mut self) {
        let sessions = self
            .temporary
            .project()
            .state()
            .unwrap_or_default()
            .sessions;
        for session in sessions.values() {
            let files = KernelFiles::of(&session.connection_file);
            // Without this file no kernel starts any more.
            let _ = beneath::remove_file(files.connection_file());
            if let Some(process) = files.process() {
                let _ = process.signal_group(Signal::KILL);
            }
            files.remove(&ProcessVariables);
            sandbox::end(session);
        }
    }
}

/// Chooses the kernel of a notebook, as opening it would.
async fn plan(notebook: &NotebookFile, options: &OpenOptions) -> Result<KernelPlan, OpenError> {
    let (project, key) = (&notebook.project, &notebook.key);
    let state = project.state()?;
    let before = state.session(&state.owner_key(key));
    let is_named = options.kernel.is_some() || options.python.is_some();
    if let Some(remote) = before
        .as_ref()
        .and_then(Session::as_remote)
        .filter(|_| !is_named)
    {
        return Err(OpenError::FreshOnServer {
            notebook: notebook.path.clone(),
            server: remote.server.clone(),
        });
    }
    let named = open::read_named(&notebook.real)?;
    open::plan(
        project,
        key,
        before.as_ref(),
        named,
        options,
        &mut Notes::default(),
    )
    .await
}

/// Makes the folder in which the kernel runs.
fn prepare(
    project: &Project,
    notebook: &Path,
    in_place: bool,
) -> std::io::Result<(TemporaryProject, PrivateCopy)> {
    let root = project.root();
    if in_place {
        return Ok((
            TemporaryProject::make(Some(root), "")?,
            PrivateCopy::default(),
        ));
    }
    let name = root.file_name().unwrap_or_default().to_string_lossy();
    let temporary = TemporaryProject::make(None, &name)?;
    let folder = notebook.parent().unwrap_or(notebook);
    let near = folder.strip_prefix(root).unwrap_or(Path::new(""));
    let copy = PrivateCopy::make(
        root,
        temporary.project().root(),
        near,
        CopyLimits::default(),
    )?;
    Ok((temporary, copy))
}
