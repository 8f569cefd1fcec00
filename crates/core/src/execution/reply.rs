//! Answers the input requests of a job's code.
//!
//! An answer is a file in the job's folder, from which its recorder takes it. A password is never
//! in a file: it is sent through a socket in a folder that only this user may enter.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use super::follow::wait_until_taken;
use crate::kernel::process::connection::socket_folder;
use crate::kernel::variables::ProcessVariables;
use crate::project::jobs::{JobFolder, JobPrompt, RecorderRequest};

/// How long a recorder may take to read a password from the socket.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest password, in bytes.
const LONGEST_PASSWORD: u64 = 1 << 20;

/// Answers a job's input request, and waits until its recorder has the answer. The recorder drops an answer to another
/// request than the present one.
///
/// # Errors
/// The answer could not be passed on.
pub async fn reply(folder: &JobFolder, prompt: &JobPrompt, text: String) -> io::Result<()> {
    if !prompt.password {
        folder.request(&RecorderRequest::Reply {
            text,
            prompt: prompt.number,
        })?;
        wait_until_taken(folder).await;
        return Ok(());
    }
    // In a sandbox that forbids Unix sockets, nb's runtime has no I/O driver and could not wait for
    // a socket.
    std::os::unix::net::UnixStream::pair()?;
    let private = socket_folder(&ProcessVariables)
        .map_err(|_| io::Error::other("there is no private folder for a socket"))?;
    let socket = private.join(format!("reply-{}", folder.id()));
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket)?;
    let _guard = RemovedSocket(&socket);
    folder.request(&RecorderRequest::Secret {
        socket: socket.clone(),
        prompt: prompt.number,
    })?;
    let handed_over = async {
        let (mut stream, _) = listener.accept().await?;
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await
    };
    let handed_over = tokio::time::timeout(FETCH_TIMEOUT, handed_over).await;
    handed_over.map_err(|_| io::Error::other("its recorder does not fetch it"))??;
    wait_until_taken(folder).await;
    Ok(())
}

/// Reads a password from a socket.
///
/// # Errors
/// The command that offered the password has ended.
pub(super) async fn fetch(socket: &Path) -> io::Result<String> {
    let fetched = async {
        let stream = UnixStream::connect(socket).await?;
        let mut text = String::new();
        stream
            .take(LONGEST_PASSWORD)
            .read_to_string(&mut text)
            .await?;
        Ok::<_, io::Error>(text)
    };
    let fetched = tokio::time::timeout(FETCH_TIMEOUT, fetched).await;
    fetched.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// A socket that is removed on drop.
struct RemovedSocket<'a>(&'a PathBuf);

impl Drop for RemovedSocket<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::Project;
    use crate::project::jobs::{Job, JobState};

    #[tokio::test]
    async fn a_password_is_in_no_file() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let mut job: Job = serde_json::from_value(serde_json::json!({
            "id": "", "by": "ada", "notebook": "a.ipynb", "path": "a.ipynb", "session": "a.ipynb",
            "state": JobState::WaitingInput, "asked_at": jiff::Timestamp::now(), "cells": [],
        }))
        .unwrap();
        let folder = project.make_job(&mut job).unwrap();
        let prompt = JobPrompt {
            prompt: String::new(),
            password: true,
            number: Some(1),
        };
        let takes = async {
            loop {
                if let Some((file, request)) = folder.requests().pop() {
                    let RecorderRequest::Secret { socket, .. } = request else {
                        panic!("{request:?}");
                    };
                    let text = std::fs::read_to_string(&file).unwrap();
                    assert!(!text.contains("hunter2"), "{text}");
                    let fetched = fetch(&socket).await.unwrap();
                    folder.forget(&file);
                    return (fetched, socket);
                }
                tokio::task::yield_now().await;
            }
        };
        let (replied, (fetched, socket)) =
            tokio::join!(reply(&folder, &prompt, "hunter2".to_owned()), takes);
        replied.unwrap();
        assert_eq!(fetched, "hunter2");
        assert!(!socket.exists());
        assert!(fetch(&socket).await.is_err());
    }
}
