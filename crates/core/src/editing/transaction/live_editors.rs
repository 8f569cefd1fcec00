//! The editors that have a notebook open through `nb live` and make changes: they get a change before it is written.
//!
//! An editor without unsaved changes loads its file anew when that is written, and what a person types during the load may
//! be lost. One that already has the change does not load it.
//!
//! Each `nb live` listens on a socket in a folder that only this user can enter. A writer sends one line of JSON
//! ([`Proposal`]) and the bytes of the notebook. `nb live` answers with a line once the editor has the change, or if it
//! does not answer in time. Then the writer writes the file and says so. If the connection ends before that, `nb live`
//! takes the change back.
//!
//! A notebook in a room of jupyter-collaboration is written by its server alone, which would drop what people type if the
//! file changed. One of the pages gets the change, and asks the server to save.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::editing::notebook_file::NotebookFile;
use crate::kernel::process::Process;
use crate::kernel::process::connection::live_sockets;
use crate::kernel::variables::ProcessVariables;
use crate::notebook::Document;
use crate::project::live_editor::{LiveEditor, StoredInRoom};

/// How long a writer waits for an answer. `nb live` itself waits for its editor for a second, and for the end of a save
/// for five.
const TIMEOUT: Duration = Duration::from_secs(8);

/// How many times `nb live` may say that the file is another one, before the change is written all the same.
const MOST_CHANGES: u32 = 5;

/// The line with which a writer begins. The bytes of the new notebook follow.
#[derive(Debug, Serialize, Deserialize)]
pub struct Proposal {
    /// The real path of the notebook's file.
    pub notebook: PathBuf,
    /// The SHA-256 of the file's bytes from which the change was made, in hexadecimal digits.
    pub before: String,
    /// The number of bytes of the new notebook.
    pub bytes: u64,
    /// Who writes.
    pub by: String,
}

/// The answer to a proposal, a word in a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposalAnswer {
    /// The file can be written: the editor has the change, or is not waited for.
    Go,
    /// The file is another one by now: the change is to be made again.
    Changed,
    /// The notebook is in a room: the editor has the change, and the room's server was asked to write the file.
    Stored(StoredInRoom),
    /// The notebook is in a room, and the editor did not answer in time.
    Silent,
}

/// The line with which a writer says that the file has the new notebook.
pub const WRITTEN: &str = "written";

/// The connections to the editors that have a notebook open.
pub(super) struct LiveEditors {
    connections: Vec<BufReader<UnixStream>>,
    /// Those that have the notebook open in a room.
    in_room: Vec<BufReader<UnixStream>>,
    /// Whether one of those did not answer in time.
    has_silent_room: bool,
    changes: u32,
}

/// Says whether an editor that makes changes, also those of outputs, has a notebook open.
pub(crate) fn has_open(notebook: &NotebookFile) -> bool {
    editors(notebook).any(|editor| !editor.only_texts)
}

/// Says whether an editor has a notebook open in a room, and has the room's server write it.
pub(crate) fn has_room(notebook: &NotebookFile) -> bool {
    editors(notebook).any(|editor| is_in_room(&editor, notebook))
}

fn is_in_room(editor: &LiveEditor, notebook: &NotebookFile) -> bool {
    let mut notebooks = editor.notebooks.iter();
    notebooks.any(|it| it.room && it.notebook == notebook.key)
}

/// Returns the names of the editors that get what this process writes into a notebook before it is written.
pub(crate) fn names_of_asked(notebook: &NotebookFile) -> Vec<String> {
    let mut editors: Vec<_> = running_editors(notebook).collect();
    editors.retain(|editor| {
        let mut sockets = live_sockets(editor.pid, &ProcessVariables);
        sockets.any(|socket| socket.exists())
            && (is_confined(&editor.pid.to_string()) || !is_confined("self"))
    });
    editors.into_iter().map(|editor| editor.editor).collect()
}

/// Says whether a process, of which a pid or "self" is given, cannot gain privileges, as all processes in sandboxes; `false`
/// if the system does not tell. `nb live` outside a sandbox does not listen to one inside.
pub fn is_confined(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line == "NoNewPrivs:\t1")
}

/// Returns the editors that make changes and have a notebook open.
fn editors(notebook: &NotebookFile) -> impl Iterator<Item = LiveEditor> {
    let editors = notebook.project.live_editors().into_iter();
    editors.filter(|editor| {
        editor.can_change
            && editor
                .notebooks
                .iter()
                .any(|it| it.notebook == notebook.key)
            && Process::is_live_editor_here(editor)
    })
}

/// Returns those of the editors whose `nb live` no signal such as SIGSTOP has stopped: it would answer nothing.
fn running_editors(notebook: &NotebookFile) -> impl Iterator<Item = LiveEditor> {
    editors(notebook).filter(|editor| !Process::is_stopped_live_editor(editor))
}

impl LiveEditors {
    /// Connects to the editors that have a notebook open.
    pub(super) fn of(notebook: &NotebookFile) -> Self {
        let mut all = Self {
            connections: Vec::new(),
            in_room: Vec::new(),
            has_silent_room: false,
            changes: 0,
        };
        for editor in running_editors(notebook) {
            if let Some(connection) = connect(&editor) {
                match is_in_room(&editor, notebook) {
                    true => all.in_room.push(connection),
                    false => all.connections.push(connection),
                }
            }
        }
        all
    }

    /// Says whether the notebook is in a room that one of the editors speaks for.
    pub(super) fn has_room(&self) -> bool {
        !self.in_room.is_empty()
    }

    /// Says whether an editor in a room did not answer in time: what people type there is not known.
    pub(super) fn has_silent_room(&self) -> bool {
        self.has_silent_room
    }

    /// Gives what is to be written to one of the editors in a room. If none takes it, there is no such editor any more.
    fn store(&mut self, proposal: &Proposal, after: &Document) -> ProposalAnswer {
        while let Some(connection) = self.in_room.first_mut() {
            let sent = send(connection.get_mut(), proposal, after);
            match sent.and_then(|()| answer(connection)) {
                Ok(answer @ (ProposalAnswer::Stored(_) | ProposalAnswer::Changed)) => {
                    return answer;
                }
                Ok(ProposalAnswer::Go) => {}
                Ok(ProposalAnswer::Silent) | Err(_) => self.has_silent_room = true,
            }
            self.in_room.remove(0);
        }
        ProposalAnswer::Go
    }

    /// Gives the editors what is to be written, and waits until each has it or is not waited for. In a room, one of its
    /// editors gets it, and has the room's server write it.
    pub(super) fn propose(
        &mut self,
        notebook: &NotebookFile,
        before: &Document,
        after: &Document,
        by: &str,
    ) -> ProposalAnswer {
        if self.connections.is_empty() && !self.has_room() {
            return ProposalAnswer::Go;
        }
        let proposal = Proposal {
            notebook: notebook.real.clone(),
            before: stamp(before),
            bytes: after.chunks().map(|chunk| chunk.len() as u64).sum(),
            by: by.to_owned(),
        };
        if self.has_room() {
            return self.store(&proposal, after);
        }
        self.connections
            .retain_mut(|connection| send(connection.get_mut(), &proposal, after).is_ok());
        let mut has_changed = false;
        // One that does not answer gets no further message: it reads the file.
        self.connections.retain_mut(|connection| {
            let answer = answer(connection);
            has_changed |= answer.as_ref().is_ok_and(|it| *it != ProposalAnswer::Go);
            answer.is_ok()
        });
        self.changes += u32::from(has_changed);
        match has_changed && self.changes < MOST_CHANGES {
            true => ProposalAnswer::Changed,
            false => ProposalAnswer::Go,
        }
    }

    /// Tells the editors that the file has what was proposed last.
    pub(super) fn written(&mut self) {
        for connection in &mut self.connections {
            let _ = writeln!(connection.get_mut(), "{WRITTEN}");
        }
    }
}

fn connect(editor: &LiveEditor) -> Option<BufReader<UnixStream>> {
    let mut sockets = live_sockets(editor.pid, &ProcessVariables);
    let stream = sockets.find_map(|socket| UnixStream::connect(socket).ok())?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    stream.set_write_timeout(Some(TIMEOUT)).ok()?;
    Some(BufReader::new(stream))
}

fn send(stream: &mut UnixStream, proposal: &Proposal, after: &Document) -> io::Result<()> {
    let mut line = serde_json::to_vec(proposal)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    for chunk in after.chunks() {
        stream.write_all(chunk)?;
    }
    Ok(())
}

fn answer(connection: &mut BufReader<UnixStream>) -> io::Result<ProposalAnswer> {
    let mut line = String::new();
    connection.read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Returns the SHA-256 of a notebook's bytes, in hexadecimal digits.
pub fn stamp(notebook: &Document) -> String {
    let mut digest = Sha256::new();
    for chunk in notebook.chunks() {
        digest.update(chunk);
    }
    hex::encode(digest.finalize())
}
