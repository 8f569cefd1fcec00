//! Kernels, kernelspecs and sessions, as Jupyter's REST interface describes them.
//!
//! Source: "REST API" in the documentation of Jupyter Server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::api;
use crate::api::problem::Problem;
use crate::kernel::spec::{SHARED, is_python, shared_display_name, shared_name};
use crate::web::callers::Callers;

/// A notebook below the root whose kernel lives.
#[derive(Clone, Debug)]
pub(super) struct LiveNotebook {
    /// The notebook's file.
    pub(super) notebook: PathBuf,
    /// Its path below the root.
    path: String,
    /// The language of its kernel.
    language: String,
    /// What the kernel does.
    state: &'static str,
    /// When something last happened.
    last_activity: Timestamp,
    /// How many front ends are joined.
    connections: usize,
}

/// A kernel.
#[derive(Clone, Debug, Serialize)]
pub(super) struct KernelModel {
    id: String,
    /// The name of its kernelspec.
    name: String,
    /// jupyter_server's client reads exactly this form: `2026-01-31T10:20:30.123456Z`.
    last_activity: String,
    execution_state: &'static str,
    connections: usize,
}

/// A notebook with its kernel.
#[derive(Debug, Serialize)]
pub(super) struct SessionModel {
    id: String,
    path: String,
    name: String,
    #[serde(rename = "type")]
    session_type: &'static str,
    kernel: KernelModel,
    /// What older clients read.
    notebook: NotebookModel,
}

#[derive(Debug, Serialize)]
struct NotebookModel {
    path: String,
    name: String,
}

/// All kernelspecs.
#[derive(Debug, Serialize)]
pub(super) struct KernelspecsModel {
    default: &'static str,
    pub(super) kernelspecs: BTreeMap<String, KernelspecModel>,
}

/// A kernelspec.
#[derive(Debug, Serialize)]
pub(super) struct KernelspecModel {
    name: String,
    spec: SpecModel,
    resources: Map<String, Value>,
}

#[derive(Debug, Serialize)]
struct SpecModel {
    /// Clients start no program.
    argv: [String; 0],
    display_name: String,
    language: String,
    interrupt_mode: &'static str,
    env: Map<String, Value>,
    metadata: Map<String, Value>,
}

/// The state of the server.
#[derive(Debug, Serialize)]
pub(super) struct ServerModel {
    started: String,
    last_activity: String,
    connections: usize,
    kernels: usize,
}

impl LiveNotebook {
    /// Returns the id of its kernel.
    pub(super) fn kernel_id(&self) -> String {
        kernel_id(&self.notebook)
    }

    /// Returns the id of its session.
    pub(super) fn session_id(&self) -> String {
        id_of("session", &self.notebook)
    }

    /// Returns the notebook's name and its path below the root.
    pub(super) fn name_and_path(&self) -> (&str, &str) {
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        (name, &self.path)
    }

    pub(super) fn kernel(&self) -> KernelModel {
        KernelModel {
            id: self.kernel_id(),
            name: shared_name(&self.language),
            last_activity: time(self.last_activity),
            execution_state: self.state,
            connections: self.connections,
        }
    }

    pub(super) fn session(&self) -> SessionModel {
        let (name, path) = self.name_and_path();
        let (name, path) = (name.to_owned(), path.to_owned());
        SessionModel {
            id: self.session_id(),
            notebook: NotebookModel {
                path: path.clone(),
                name: name.clone(),
            },
            path,
            name,
            session_type: "notebook",
            kernel: self.kernel(),
        }
    }
}

impl KernelspecsModel {
    /// Returns the shared kernelspec, and those of the languages of these kernels.
    pub(super) fn of(live: &[LiveNotebook]) -> Self {
        let languages = live.iter().map(|it| &*it.language);
        let specs = languages.chain(["python"]).map(|language| {
            let name = shared_name(language);
            (name, KernelspecModel::of(language))
        });
        Self {
            default: SHARED,
            kernelspecs: specs.collect(),
        }
    }
}

impl KernelspecModel {
    fn of(language: &str) -> Self {
        Self {
            name: shared_name(language),
            spec: SpecModel {
                argv: [],
                display_name: shared_display_name(language),
                language: language.to_owned(),
                interrupt_mode: "message",
                env: Map::new(),
                metadata: Map::from_iter([("debugger".to_owned(), is_python(language).into())]),
            },
            resources: Map::new(),
        }
    }
}

impl ServerModel {
    /// Returns the state of a server that was started at a time.
    pub(super) fn of(started: Timestamp, live: &[LiveNotebook]) -> Self {
        let last = live.iter().map(|it| it.last_activity).max();
        Self {
            started: time(started),
            last_activity: time(last.unwrap_or(started)),
            connections: live.iter().map(|it| it.connections).sum(),
            kernels: live.len(),
        }
    }
}

/// Returns the notebooks below the root whose kernels live, by path.
pub(super) async fn live(callers: &Callers) -> Result<Vec<LiveNotebook>, Problem> {
    let now = Timestamp::now();
    let caller = callers.jupyter(None)?;
    let all = api::status_everywhere(&caller).await?.kernels.into_iter();
    let live = all.filter_map(|listed| {
        let kernel = listed.kernel;
        let path = callers.id_of(&kernel.path)?;
        let language = kernel.known.session.kernelspec.as_ref();
        let language = language.map(|spec| spec.language.clone());
        kernel.is_up().then(|| LiveNotebook {
            path,
            language: language
                .filter(|it| !it.is_empty())
                .unwrap_or_else(|| "python".to_owned()),
            state: execution_state(kernel.state),
            last_activity: kernel.idle_since.unwrap_or(now),
            connections: kernel.joined.len(),
            notebook: kernel.path,
        })
    });
    let mut live: Vec<_> = live.collect();
    live.sort_by(|left, right| left.path.cmp(&right.path));
    live.dedup_by(|left, right| left.path == right.path);
    Ok(live)
}

/// Returns Jupyter's word for what a kernel does.
fn execution_state(state: &str) -> &'static str {
    match state {
        "idle" => "idle",
        "busy" => "busy",
        "starting" => "starting",
        "restarting" => "restarting",
        _ => "unknown",
    }
}

/// Returns the id of a notebook's kernel.
pub(super) fn kernel_id(notebook: &Path) -> String {
    id_of("kernel", notebook)
}

/// Returns an id that is the same whenever the server runs, in the form that jupyter_server takes for an id.
fn id_of(kind: &str, notebook: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let hash = Sha256::new()
        .chain_update(kind)
        .chain_update([0])
        .chain_update(notebook.as_os_str().as_bytes())
        .finalize();
    let mut bytes = [0; 16];
    bytes
        .iter_mut()
        .zip(hash)
        .for_each(|(byte, part)| *byte = part);
    let id = uuid::Builder::from_random_bytes(bytes).into_uuid();
    id.hyphenated().to_string()
}

fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_that_of_its_notebook_and_its_kind() {
        let id = |kind, notebook| id_of(kind, Path::new(notebook));
        assert_eq!(id("kernel", "/a.ipynb"), id("kernel", "/a.ipynb"));
        assert_ne!(id("kernel", "/a.ipynb"), id("session", "/a.ipynb"));
        assert_ne!(id("kernel", "/a.ipynb"), id("kernel", "/b.ipynb"));
        let id = id("kernel", "/a.ipynb");
        assert_eq!(
            id.split('-').map(str::len).collect::<Vec<_>>(),
            [8, 4, 4, 4, 12]
        );
    }

    #[test]
    fn a_time_always_has_microseconds() {
        let at: Timestamp = "2026-01-31T10:20:30Z".parse().unwrap();
        assert_eq!(time(at), "2026-01-31T10:20:30.000000Z");
    }
}
