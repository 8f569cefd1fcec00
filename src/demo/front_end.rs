//! A front end: it launches an installed kernelspec as VS Code does, and is that kernel's client.
//!
//! TCP on 127.0.0.1, a fresh connection file, the notebook's folder as working directory, and no
//! `JPY_…` variables; then requests until it is answered. It ends what it launched by SIGTERM.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::process::Child;

use crate::client::{Client, ClientError};
use crate::kernel::process::{Process, Signal};
use crate::kernel::spec::{self, SpecError};
use crate::kernel::variables::ProcessVariables;
use crate::wire::{Channel, ConnectionFileError, ConnectionInfo};

/// How long a launched kernel may take until it answers: VS Code's limit.
const READY: Duration = Duration::from_secs(60);

/// How long it may take to go.
const GOES: Duration = Duration::from_secs(5);

/// Why the front end has no kernel.
#[derive(Debug, thiserror::Error)]
pub enum FrontEndError {
    /// The installed kernelspec is unusable.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The connection file could not be written, or the program not be started.
    #[error("cannot launch {program}")]
    Launch {
        /// `argv[0]`.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// What we wrote ourselves; listed so that nothing is taken for granted.
    #[error("the connection file is unusable")]
    ConnectionFile(#[from] ConnectionFileError),
    /// It ended before it answered.
    #[error("the launched kernel ended with {status}: {said}")]
    Ended {
        /// How it ended.
        status: ExitStatus,
        /// Its stderr.
        said: String,
    },
    /// It does not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// A front end with its launched kernel. Dropping it kills what it launched.
pub(super) struct FrontEnd {
    launched: Child,
    pub(super) client: Client,
    /// From the launch to the first `kernel_info_reply`.
    pub(super) took: Duration,
    /// The launched program.
    pub(super) argv: Vec<OsString>,
}

impl FrontEnd {
    /// Launches the kernelspec in `spec` for a notebook in `folder`.
    pub(super) async fn launch(
        spec: &Path,
        folder: &Path,
        files: &Path,
        environment: &[(OsString, OsString)],
    ) -> Result<Self, FrontEndError> {
        let spec = spec::read(spec)?;
        let file = files.join("front-end.json");
        let argv = spec::command(&spec, &file);
        let program = argv.first().cloned().unwrap_or_default();
        let failed = |source| FrontEndError::Launch {
            program: program.to_string_lossy().into_owned(),
            source,
        };
        let info = connection(&file).map_err(failed)?;
        let info = ConnectionInfo::parse(info.as_bytes())?;
        let began = Instant::now();
        let errors = files.join("front-end.stderr");
        let mut launched = super::quiet(&program)
            .args(argv.get(1..).unwrap_or_default())
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .envs(spec::environment(&spec, &ProcessVariables))
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(File::create(&errors).map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        let answered = async {
            let mut client = Client::connect_when_up(&info, "human", READY).await?;
            client.kernel_info(Channel::Shell, READY).await?;
            Ok::<_, ClientError>(client)
        };
        let client = tokio::select! {
            client = answered => client,
            status = launched.wait() => {
                let status = status.map_err(failed)?;
                let said = std::fs::read_to_string(&errors).unwrap_or_default();
                return Err(FrontEndError::Ended { status, said: said.trim().to_owned() });
            }
        };
        Ok(Self {
            launched,
            client: client?,
            took: began.elapsed(),
            argv,
        })
    }

    /// Goes as VS Code goes: SIGTERM to what it launched. Returns how that ended, and how long
    /// it took; after five seconds it is killed.
    pub(super) async fn leave(mut self) -> io::Result<(ExitStatus, Duration)> {
        let began = Instant::now();
        self.client.close().await;
        if let Some(process) = self.launched.id().and_then(Process::of) {
            process
                .signal(Signal::TERM)
                .map_err(|error| io::Error::other(error.to_string()))?;
        }
        let status = match tokio::time::timeout(GOES, self.launched.wait()).await {
            Ok(status) => status?,
            Err(_) => {
                self.launched.kill().await?;
                self.launched.wait().await?
            }
        };
        Ok((status, began.elapsed()))
    }
}

/// Writes a connection file with ports that are free now, as front ends do: found, not reserved.
fn connection(file: &Path) -> io::Result<String> {
    let mut ports = Vec::new();
    for _ in 0..5 {
        // All five are held until the last is found, so that they differ.
        ports.push(TcpListener::bind("127.0.0.1:0")?);
    }
    let mut free = ports
        .iter()
        .map(|port| io::Result::Ok(port.local_addr()?.port()));
    let mut port = || {
        free.next()
            .unwrap_or(Err(io::ErrorKind::AddrNotAvailable.into()))
    };
    let content = json!({
        "shell_port": port()?, "iopub_port": port()?, "stdin_port": port()?,
        "control_port": port()?, "hb_port": port()?,
        "ip": "127.0.0.1", "transport": "tcp", "kernel_name": "",
        "key": uuid::Uuid::new_v4().to_string(), "signature_scheme": "hmac-sha256",
    })
    .to_string();
    save(file, &content)?;
    Ok(content)
}

fn save(file: &Path, content: &str) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let _ = std::fs::remove_file(file);
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)?
        .write_all(content.as_bytes())
}

/// Returns the folder of the installed kernelspec.
pub(super) fn installed_spec(jupyter_data: &Path) -> PathBuf {
    jupyter_data.join("kernels/nb-shared")
}
