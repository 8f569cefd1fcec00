//! The connection of the one process that listens on a kernel for late outputs.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::client::{Client, ClientError, ExecutionStep};
use crate::execution::run::{RunError, reach};
use crate::kernel::spec::quirks;
use crate::project::{Lock, Project, Session, beneath};
use crate::wire::Verified;

/// A connection to a kernel, and the lock that no other process listens.
pub(super) struct LateListener {
    /// The key of the session.
    pub(super) key: String,
    client: Client,
    lock: Option<Lock>,
    lock_file: PathBuf,
}

/// How long to wait for a proof that messages of iopub arrive. A kernel that runs a cell may not give one before that
/// cell ends; its next cell begins later than the connection.
const PROOF: Duration = Duration::from_secs(1);

impl LateListener {
    /// Connects to a session's kernel; no output is missed from then on. `None` if another process listens.
    pub(super) async fn begin(
        project: &Project,
        key: &str,
        session: &Session,
    ) -> Result<Option<Self>, RunError> {
        // The recorder itself takes what such a kernel sends after a cell's end.
        let spec = session.kernelspec.as_ref();
        if spec.and_then(quirks::silence_after_idle).is_some() {
            return Ok(None);
        }
        let Ok((lock_file, Some(lock))) = lock(project, session) else {
            return Ok(None);
        };
        let (info, process) = reach(project, key, session).await?;
        let mut client = Client::connect(&info, "nb").await?;
        if let Some(process) = process {
            client.watch(async move {
                process.death().await;
                format!("process {} has ended", process.pid)
            });
        }
        // No other process may hear what another client's execution changed.
        let (project, key_then, generation) = (project.clone(), key.to_owned(), session.generation);
        client.observe(move |seen| {
            if let ExecutionStep::Facts { content } = seen.step {
                project.record_facts(&key_then, generation, &seen.msg_id, &content);
            }
        });
        if let Ok(proof) = tokio::time::timeout(PROOF, client.prove_iopub()).await {
            proof?;
        }
        Ok(Some(Self {
            key: key.to_owned(),
            client,
            lock: Some(lock),
            lock_file,
        }))
    }

    /// Waits for the next message on iopub; the future may be dropped.
    pub(super) async fn next_message(&mut self) -> Result<Verified, ClientError> {
        self.client.next_on_iopub().await
    }

    /// Releases the lock, and removes its file if the kernel has ended.
    pub(super) fn release(&mut self, has_kernel_ended: bool) {
        self.lock = None;
        if has_kernel_ended {
            let _ = beneath::remove_file(&self.lock_file);
        }
    }
}

/// Takes the lock of the process that listens on a session's kernel; returns its file, too.
fn lock(project: &Project, session: &Session) -> io::Result<(PathBuf, Option<Lock>)> {
    let kernel = (&session.connection_file, session.generation);
    let hash = hex::encode(Sha256::digest(format!("{kernel:?}")));
    let file = project
        .make_folder("locks")?
        .join(format!("late-{}", &hash[..16]));
    let lock = Lock::attempt(&file)?;
    Ok((file, lock))
}
