//! The socket on which other commands of `nb` give `nb live` what they are about to write.
//!
//! It is in a folder that only this user can enter. A process in a sandbox, which may reach it all the same if it may use the
//! network, is not listened to: it could change notebooks that it cannot write. See [`LiveEditors`](crate::editing::transaction) for the lines.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::editing::transaction::{Proposal, ProposalAnswer, WRITTEN, is_confined};
use crate::kernel::process::connection::{live_sockets, socket_folder};
use crate::kernel::variables::ProcessVariables;
use crate::notebook::Document;

/// The longest line of a writer, and the largest notebook, in bytes. A longer one ends the connection.
const LONGEST_LINE: u64 = 64 << 10;
const LARGEST_NOTEBOOK: u64 = 1 << 30;

/// How many writers are served at the same time. Another one waits.
const MOST_WRITERS: usize = 32;

/// What a writer says; `writer` is a number of its connection.
pub(super) enum FromWriter {
    /// It is about to write this.
    Proposes(Box<Proposed>),
    /// The file has what it proposed last.
    Wrote { writer: u64 },
    /// It has ended.
    Gone { writer: u64 },
}

/// What a writer is about to write.
pub(super) struct Proposed {
    pub(super) writer: u64,
    pub(super) proposal: Proposal,
    pub(super) after: Document,
    pub(super) answer: oneshot::Sender<ProposalAnswer>,
}

/// The socket. Dropping it removes its file.
pub(super) struct WriterSocket {
    path: PathBuf,
    accepts: JoinHandle<()>,
}

impl WriterSocket {
    /// Listens; `None` if the system has no place for the socket: then writers write without telling.
    pub(super) fn bind(messages: mpsc::Sender<FromWriter>) -> Option<Self> {
        // Makes the folder, if no kernel was started yet.
        let _ = socket_folder(&ProcessVariables);
        let bound = live_sockets(std::process::id(), &ProcessVariables).find_map(|path| {
            // One of a process that was killed, and had the same pid.
            let _ = std::fs::remove_file(&path);
            UnixListener::bind(&path)
                .ok()
                .map(|listener| (path, listener))
        });
        let (path, listener) = bound?;
        let accepts = tokio::spawn(accept(listener, messages));
        Some(Self { path, accepts })
    }
}

impl Drop for WriterSocket {
    fn drop(&mut self) {
        self.accepts.abort();
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn accept(listener: UnixListener, messages: mpsc::Sender<FromWriter>) {
    let places = Arc::new(Semaphore::new(MOST_WRITERS));
    for writer in 0.. {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            return;
        };
        let peer = stream.peer_cred().ok().and_then(|it| it.pid());
        if peer.is_some_and(|pid| is_confined(&pid.to_string()) && !is_confined("self")) {
            tracing::warn!(pid = peer, "a process in a sandbox is not listened to");
            continue;
        }
        let messages = messages.clone();
        tokio::spawn(async move {
            if let Err(error) = serve(stream, writer, &messages).await {
                tracing::debug!(%error, "a writer is not understood");
            }
            let _ = messages.send(FromWriter::Gone { writer }).await;
            drop(place);
        });
    }
}

async fn serve(
    stream: UnixStream,
    writer: u64,
    messages: &mpsc::Sender<FromWriter>,
) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    loop {
        let mut line = String::new();
        (&mut read).take(LONGEST_LINE).read_line(&mut line).await?;
        if line.is_empty() {
            return Ok(());
        }
        if line.trim_end() == WRITTEN {
            let _ = messages.send(FromWriter::Wrote { writer }).await;
            continue;
        }
        let proposal: Proposal = serde_json::from_str(&line)?;
        if proposal.bytes > LARGEST_NOTEBOOK {
            return Err(io::Error::other("the notebook is too large"));
        }
        let mut bytes = Vec::new();
        (&mut read)
            .take(proposal.bytes)
            .read_to_end(&mut bytes)
            .await?;
        if (bytes.len() as u64) < proposal.bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let parsed = tokio::task::spawn_blocking(move || Document::parse(bytes));
        let after = parsed.await?.map_err(io::Error::other)?;
        let (answer, answered) = oneshot::channel();
        let proposed = Proposed {
            writer,
            proposal,
            after,
            answer,
        };
        let proposes = FromWriter::Proposes(Box::new(proposed));
        let _ = messages.send(proposes).await;
        let answer = answered.await.unwrap_or(ProposalAnswer::Go);
        let mut line = serde_json::to_vec(&answer)?;
        line.push(b'\n');
        write.write_all(&line).await?;
    }
}
