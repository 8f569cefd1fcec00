//! Uses kernels that another program started, for as long as they run.
//!
//! They are JupyterLab's, a console's, or started by hand; only the connection file is known. Such
//! a kernel is alive as long as it answers; `nb` never signals, restarts or replaces it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use super::liveness::{Liveness, liveness, refusal, sandboxed};
use super::open_error::{AttachError, OpenError};
use super::share;
use super::start::{LockedSession, replace};
use crate::client::{Client, ClientError};
use crate::kernel::process::connection;
use crate::kernel::spec;
use crate::kernel::spec::jupyter_paths::JupyterPaths;
use crate::kernel::variables::Variables;
use crate::project::{Backend, InterruptMode, Project, RealSpec, Session, Status};
use crate::wire::{Channel, ConnectionInfo, Transport};

/// How long a kernel may take to answer on control, where a running cell does not delay it.
const CONTROL: Duration = Duration::from_secs(2);

/// For how long after the file was made the kernel may not listen yet.
const STARTING: Duration = Duration::from_secs(8);

/// A running kernel that has answered.
#[derive(Clone, Debug)]
pub struct RunningKernel {
    /// Its connection file.
    pub connection_file: PathBuf,
    /// How it is reached.
    pub transport: Transport,
    /// The content of its `kernel_info_reply`.
    pub kernel_info: Value,
    /// The known parts of its kernelspec; the command is not known.
    pub spec: RealSpec,
}

/// Finds a connection file by a path, or by a name in Jupyter's runtime folder.
///
/// Like `jupyter console --existing`: a file with that name, or else the file used last among those
/// whose names contain it.
pub fn locate(name: &Path, variables: &dyn Variables) -> Result<PathBuf, AttachError> {
    let runtime_dir = JupyterPaths::new(variables)?.runtime_dir;
    let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let bare = name.components().count() == 1;
    let exact = [name.to_owned(), runtime_dir.join(name)];
    if let Some(path) = exact.iter().find(|path| path.is_file()) {
        return Ok(canonical(path));
    }
    let no_file = AttachError::NoFile {
        name: name.to_owned(),
        runtime_dir: runtime_dir.clone(),
    };
    let Some(text) = name.to_str().filter(|_| bare) else {
        return Err(no_file);
    };
    let entries = std::fs::read_dir(&runtime_dir).into_iter().flatten();
    let mut matching: Vec<(SystemTime, PathBuf)> = entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.contains(text) && name.ends_with(".json") && !name.starts_with("jpserver-")
        })
        .filter_map(|entry| {
            let metadata = std::fs::metadata(entry.path()).ok()?;
            let used = metadata.accessed().or_else(|_| metadata.modified()).ok()?;
            metadata.is_file().then(|| (used, entry.path()))
        })
        .collect();
    matching.sort();
    matching
        .pop()
        .map(|(_, path)| canonical(&path))
        .ok_or(no_file)
}

/// Requests the `kernel_info` of the kernel behind a connection file.
pub async fn probe(
    file: PathBuf,
    timeout: Duration,
    variables: &dyn Variables,
) -> Result<RunningKernel, OpenError> {
    let info = connection::read(&file).map_err(AttachError::from)?;
    let of_proxy = |name: &String| spec::is_shared_name(name);
    if info.kernel_name.as_ref().is_some_and(of_proxy) {
        return Err(AttachError::Proxy { file }.into());
    }
    let kernel_info = kernel_info(&info, &file, timeout).await?;
    let spec = spec_of(&info, &kernel_info, variables);
    Ok(RunningKernel {
        transport: info.transport,
        connection_file: file,
        kernel_info,
        spec,
    })
}

async fn kernel_info(
    info: &ConnectionInfo,
    file: &Path,
    timeout: Duration,
) -> Result<Value, OpenError> {
    let start = Instant::now();
    let transport = info.transport;
    if let Some(cause) = sandboxed(transport) {
        let cause = refusal(&cause);
        return Err(AttachError::Sandboxed { cause }.into());
    }
    let not_listening = |source| AttachError::NotListening {
        file: file.to_owned(),
        source,
    };
    let is_new = std::fs::metadata(file)
        .and_then(|metadata| metadata.modified())
        .is_ok_and(|modified| modified.elapsed().unwrap_or_default() < STARTING);
    let start_timeout = if is_new {
        STARTING.min(timeout)
    } else {
        Duration::ZERO
    };
    let mut client = Client::connect_when_up(info, "nb", start_timeout)
        .await
        .map_err(not_listening)?;
    // Control is tried first, since a running cell does not delay it; IRkernel answers only on
    // shell.
    for (channel, limit) in [
        (Channel::Control, CONTROL.min(timeout)),
        (Channel::Shell, timeout),
    ] {
        let left = limit.saturating_sub(match channel {
            Channel::Control => Duration::ZERO,
            _ => start.elapsed(),
        });
        match client.kernel_info(channel, left).await {
            Ok(reply) => return Ok(serde_json::from_slice(reply.content()).unwrap_or_default()),
            Err(ClientError::NoAnswer { .. }) => {}
            Err(error) => return Err(not_listening(error).into()),
        }
    }
    let after = start.elapsed();
    let file = file.to_owned();
    Err(AttachError::NoReply { file, after }.into())
}

/// Returns the kernelspec of a running kernel as far as it is known: enough to name it in a
/// notebook.
fn spec_of(info: &ConnectionInfo, kernel_info: &Value, variables: &dyn Variables) -> RealSpec {
    let text_of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let language = text_of(&kernel_info["language_info"]["name"]);
    let version = text_of(&kernel_info["language_info"]["version"]);
    let implementation = text_of(&kernel_info["implementation"]);
    let folders = JupyterPaths::new(variables).map(|paths| paths.spec_folders(None));
    let installed = spec::list(&folders.unwrap_or_default());
    let is_same = |spec: &&RealSpec| match &info.kernel_name {
        Some(name) => spec.name.eq_ignore_ascii_case(name),
        None => spec.language.eq_ignore_ascii_case(&language),
    };
    let installed_spec = installed.iter().find(is_same);
    let python = language.eq_ignore_ascii_case("python");
    let name = match (&info.kernel_name, installed_spec) {
        (Some(name), _) => name.clone(),
        // Every Jupyter resolves this name to the Python in use.
        (None, _) if python => "python3".to_owned(),
        (None, Some(spec)) => spec.name.clone(),
        (None, None) => String::new(),
    };
    let display_name = match installed_spec {
        Some(spec) if !spec.display_name.is_empty() => spec.display_name.clone(),
        _ if python => "Python 3 (ipykernel)".to_owned(),
        _ => format!("{language} {version} ({implementation})"),
    };
    RealSpec {
        name,
        display_name,
        argv: Vec::new(),
        language,
        // `nb` must not signal its process.
        interrupt_mode: InterruptMode::Message,
        env: serde_json::Map::new(),
        resource_dir: None,
        other: serde_json::Map::new(),
    }
}

/// Fails for the kernel of a notebook of the project, which is shared in another way.
pub(super) fn check(
    project: &Project,
    notebook: &Path,
    running: &RunningKernel,
) -> Result<(), OpenError> {
    let state = project.state()?;
    let owner = state
        .sessions
        .values()
        .find(|session| session.as_local().is_some() && is_at(session, &running.connection_file));
    match owner {
        Some(session) => Err(AttachError::OfNotebook {
            file: running.connection_file.clone(),
            owner: session.notebook.clone(),
            notebook: notebook.to_owned(),
        }
        .into()),
        None => Ok(()),
    }
}

/// Attaches a notebook to a kernel that another program started; returns whether it already was.
pub(super) async fn attach(
    project: &Project,
    key: &str,
    running: &RunningKernel,
    timeout: Duration,
) -> Result<(Session, bool), OpenError> {
    let locked = LockedSession::wait(project, key, timeout).await?;
    let notebook = project.notebook(key);
    check(project, &notebook, running)?;
    let state = project.state()?;
    let before = state.sessions.get(key).cloned();
    let is_same = before.as_ref().is_some_and(|before| {
        before.is_attached()
            && before.status != Status::Died
            && is_at(before, &running.connection_file)
    });
    share::ensure_no_own_kernel(&locked, before.as_ref()).await?;
    let session = project.update(|state| {
        let before = state.sessions.get(key).cloned();
        let old_file = before.as_ref().map(|before| before.connection_file.clone());
        let is_first = before.is_none();
        let mut session = before.unwrap_or_else(|| Session::local(notebook.clone()));
        if !is_same {
            session.generation += u64::from(!is_first);
            session.started_at = Some(jiff::Timestamp::now());
        }
        let session = Session {
            connection_file: running.connection_file.clone(),
            backend: Backend::attached(None),
            kernelspec: Some(running.spec.clone()),
            transport: running.transport,
            status: Status::Live,
            ended: None,
            kernel_info: Some(running.kernel_info.clone()),
            ..session
        };
        replace(state, key, session.clone(), old_file.as_deref());
        session
    })?;
    Ok((session, is_same))
}

fn is_at(session: &Session, file: &Path) -> bool {
    session.connection_file == file
        || session
            .connection_file
            .canonicalize()
            .is_ok_and(|canonical| canonical == file)
}

/// Opens a session whose kernel another program started, if that kernel still answers.
pub(super) async fn reopen(
    locked: &LockedSession<'_>,
    session: Session,
) -> Result<Session, OpenError> {
    if liveness(&session).await == Liveness::Dead {
        return Err(AttachError::Gone {
            notebook: session.notebook,
        }
        .into());
    }
    let died = session.status == Status::Died;
    locked.record(|session| {
        // The kernel had ended, so this is another one on the same sockets.
        session.generation += u64::from(died);
        session.status = Status::Live;
        session.ended = None;
    })?;
    Ok(locked.session()?.unwrap_or(session))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_name_is_looked_for_in_jupyters_runtime_folder() {
        let temp = tempfile::tempdir().unwrap();
        let runtime = temp.path().canonicalize().unwrap();
        let text = runtime.to_string_lossy().into_owned();
        let variables = HashMap::from([("JUPYTER_RUNTIME_DIR", text.as_str()), ("HOME", "/h")]);
        let seconds = |count| SystemTime::UNIX_EPOCH + Duration::from_secs(count);
        for (name, used) in [
            ("kernel-11.json", 30),
            ("kernel-111.json", 20),
            ("kernel-1-9.json", 10),
            ("jpserver-11.json", 40),
            ("notes-11.txt", 50),
        ] {
            let file = std::fs::File::create(runtime.join(name)).unwrap();
            let times = std::fs::FileTimes::new().set_accessed(seconds(used));
            file.set_times(times).unwrap();
        }
        let found = |name: &str| locate(Path::new(name), &variables);
        let name = |name: &str| found(name).unwrap().file_name().unwrap().to_owned();
        assert_eq!(name("kernel-111.json"), "kernel-111.json");
        assert_eq!(name("111"), "kernel-111.json");
        assert_eq!(name("1"), "kernel-11.json");
        let whole = runtime.join("kernel-1-9.json");
        assert_eq!(found(whole.to_str().unwrap()).unwrap(), whole);
        for missing in ["222", "no/11", "/no/kernel-11.json"] {
            let error = found(missing).unwrap_err();
            assert!(error.hints()[0].to_string().contains(&text), "{error}");
        }
    }
}
