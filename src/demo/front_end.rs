//! A front end: it launches an installed kernelspec as VS Code does, and is a client of that kernel.
//!
//! It uses TCP on 127.0.0.1, a fresh connection file, the notebook's folder as working directory, and no
//! `JPY_…` variables, and sends requests until one is answered. It ends the program that it launched with
//! SIGTERM.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tokio::process::Child;

use super::DemoError;
use crate::client::{Client, ClientError};
use crate::kernel::process::connection;
use crate::kernel::process::{Process, Signal};
use crate::kernel::spec;
use crate::kernel::variables::ProcessVariables;
use crate::project::beneath;
use crate::wire::Channel;

/// How long a launched kernel may take until it answers: VS Code's limit.
const READY: Duration = Duration::from_secs(60);

/// How long the launched program may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// A front end with its launched kernel. Dropping it kills the launched program.
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
    ) -> Result<Self, DemoError> {
        let spec = spec::read(spec)?;
        let file = files.join("front-end.json");
        let argv = spec::command(&spec, &file);
        let program = argv.first().cloned().unwrap_or_default();
        let failed = |source| DemoError::Launch {
            program: program.to_string_lossy().into_owned(),
            source,
        };
        let info = connection::on_tcp(false).map_err(failed)?;
        beneath::create(&file)
            .and_then(|mut it| it.write_all(info.to_json().as_bytes()))
            .map_err(failed)?;
        let start = Instant::now();
        let errors = files.join("front-end.stderr");
        let mut launched = super::isolated_command(&program)
            .args(argv.get(1..).unwrap_or_default())
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .envs(spec::environment(&spec, &ProcessVariables))
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(File::create(&errors).map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        let connect = async {
            let mut client = Client::connect_when_up(&info, "human", READY).await?;
            client.kernel_info(Channel::Shell, READY).await?;
            Ok::<_, ClientError>(client)
        };
        let client = tokio::select! {
            client = connect => client,
            status = launched.wait() => {
                let status = status.map_err(failed)?;
                let stderr = std::fs::read_to_string(&errors).unwrap_or_default();
                return Err(DemoError::Ended { status, stderr: stderr.trim().to_owned() });
            }
        };
        Ok(Self {
            launched,
            client: client?,
            took: start.elapsed(),
            argv,
        })
    }

    /// Leaves as VS Code does, with SIGTERM to the launched program. Returns how the program ended, and how
    /// long that took; it is killed after five seconds.
    pub(super) async fn leave(mut self) -> io::Result<(ExitStatus, Duration)> {
        let start = Instant::now();
        self.client.close().await;
        if let Some(process) = self.launched.id().and_then(Process::of) {
            process
                .signal(Signal::TERM)
                .map_err(|error| io::Error::other(error.to_string()))?;
        }
        let status = match tokio::time::timeout(END_TIMEOUT, self.launched.wait()).await {
            Ok(status) => status?,
            Err(_) => {
                self.launched.kill().await?;
                self.launched.wait().await?
            }
        };
        Ok((status, start.elapsed()))
    }
}
