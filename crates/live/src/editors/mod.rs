//! `nb live`: one editor, the notebooks that it has open, and their files.

mod messages;
mod open_file;
mod record;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};

use self::messages::{Ability, Answer, DocumentRequest, EditorLine, Incoming, read};
use self::open_file::OpenFile;
use self::record::Records;
use crate::live::protocol::{EditorCell, EditorEvent, EditorRequest, PROTOCOL};
use crate::project::live_editor::RENEWED;
use crate::project::{FolderWatch, Project};

/// The longest line of an editor, in bytes. A longer one ends the connection.
const LONGEST_LINE: usize = 64 << 20;

/// How many notebooks an editor may have open. Another one is refused.
const MOST_DOCUMENTS: usize = 256;

/// The pause between two looks at a file where the system reports no changes.
const PACE: Duration = Duration::from_secs(1);

/// How long after a refusal the editor is asked again.
const AFTER_REFUSAL: Duration = Duration::from_millis(200);

/// How long `nb` asks for nothing while the editor writes the file.
const LONGEST_SAVE: Duration = Duration::from_secs(2);

/// Serves an editor until it closes its output.
///
/// # Errors
/// The editor reads nothing any more, or sends a line that is too long.
pub async fn serve(
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let (changes, mut changed) = mpsc::channel(MOST_DOCUMENTS);
    let mut editor = Editor {
        output,
        name: "an editor".to_owned(),
        can_change: false,
        documents: HashMap::new(),
        records: Records::default(),
        changes,
    };
    let mut lines = FramedRead::new(input, LinesCodec::new_with_max_length(LONGEST_LINE));
    let mut renewal = tokio::time::interval(RENEWED);
    renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let served = loop {
        let result = tokio::select! {
            line = lines.next() => match line {
                None => break Ok(()),
                Some(Ok(line)) => editor.line(&line).await,
                Some(Err(LinesCodecError::MaxLineLengthExceeded)) => {
                    let text = format!("a line has more than {} MiB", LONGEST_LINE >> 20);
                    break Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
                Some(Err(LinesCodecError::Io(error))) => break Err(error),
            },
            Some(doc) = changed.recv() => editor.read_file(&doc).await,
            () = editor.due() => editor.timers().await,
            _ = renewal.tick() => {
                editor.record(true);
                Ok(())
            }
        };
        if let Err(error) = result {
            break Err(error);
        }
    };
    editor.records.remove();
    served
}

/// The editor, and what it has open.
struct Editor<W> {
    output: W,
    name: String,
    can_change: bool,
    documents: HashMap<String, OpenDocument>,
    records: Records,
    /// Takes the names of documents whose file has changed.
    changes: mpsc::Sender<String>,
}

/// A notebook that the editor has open.
struct OpenDocument {
    file: OpenFile,
    watch: JoinHandle<()>,
    /// When the editor is asked again for what it has refused.
    again: Option<Instant>,
    /// When a save that does not end is given up.
    save_ends: Option<Instant>,
}

impl Drop for OpenDocument {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl<W: AsyncWrite + Unpin> Editor<W> {
    /// Takes in one line of the editor.
    async fn line(&mut self, line: &str) -> io::Result<()> {
        match read(line) {
            Ok(Incoming::Editor(message)) => self.message(message).await,
            Ok(Incoming::Document { doc, event }) => self.event(&doc, event).await,
            Ok(Incoming::Open {
                doc,
                notebook,
                cells,
                dirty,
            }) => self.open(&doc, &notebook, cells, dirty).await,
            // Of a later version.
            Ok(Incoming::Unknown) => Ok(()),
            Err(error) => self.problem(None, &error.to_string()).await,
        }
    }

    async fn message(&mut self, message: EditorLine) -> io::Result<()> {
        match message {
            EditorLine::Initialize { editor, can } => {
                self.name = editor;
                self.can_change = can.contains(&Ability::Change);
                self.send(&Answer::Initialized {
                    protocol: PROTOCOL,
                    version: env!("CARGO_PKG_VERSION"),
                })
                .await
            }
            EditorLine::Closed { doc } => {
                self.documents.remove(&doc);
                self.record(false);
                Ok(())
            }
        }
    }

    async fn open(
        &mut self,
        doc: &str,
        notebook: &Path,
        cells: Vec<EditorCell>,
        dirty: bool,
    ) -> io::Result<()> {
        if self.documents.contains_key(doc) {
            return self.event(doc, EditorEvent::Open { cells, dirty }).await;
        }
        if self.documents.len() >= MOST_DOCUMENTS {
            let text = format!("{MOST_DOCUMENTS} notebooks are open, which is the most");
            return self.problem(Some(doc), &text).await;
        }
        // Without a project no other command of `nb` reads a record, and none is to be made here.
        if !notebook.is_absolute() || Project::find(notebook).is_none() {
            let text = format!("{} is in no project of nb", notebook.display());
            return self.problem(Some(doc), &text).await;
        }
        let opened = OpenFile::open(notebook, cells, dirty, self.can_change).await;
        let file = match opened {
            Ok(file) => file,
            Err(error) => return self.problem(Some(doc), &error).await,
        };
        let watch = tokio::spawn(watch(
            file.real_path().to_owned(),
            doc.to_owned(),
            self.changes.clone(),
        ));
        let document = OpenDocument {
            file,
            watch,
            again: None,
            save_ends: None,
        };
        self.documents.insert(doc.to_owned(), document);
        // The file may have changed before the watch began.
        self.read_file(doc).await?;
        self.record(true);
        Ok(())
    }

    async fn event(&mut self, doc: &str, event: EditorEvent) -> io::Result<()> {
        let Some(document) = self.documents.get_mut(doc) else {
            return self.problem(Some(doc), "no such document is open").await;
        };
        document.file.live.event(event);
        if document.file.live.needs_file() {
            return self.read_file(doc).await;
        }
        self.answer(doc).await
    }

    async fn read_file(&mut self, doc: &str) -> io::Result<()> {
        if let Some(document) = self.documents.get_mut(doc) {
            document.file.read().await;
        }
        self.answer(doc).await
    }

    /// Sends what follows from a change, and records what is unsaved.
    async fn answer(&mut self, doc: &str) -> io::Result<()> {
        let mut requests: Vec<EditorRequest> = Vec::new();
        if let Some(document) = self.documents.get_mut(doc) {
            let live = &mut document.file.live;
            requests.extend(std::iter::from_fn(|| live.poll()));
            document.again = live.is_refused().then(|| Instant::now() + AFTER_REFUSAL);
            document.save_ends = match live.is_saving() {
                true => document
                    .save_ends
                    .or_else(|| Some(Instant::now() + LONGEST_SAVE)),
                false => None,
            };
        }
        for request in &requests {
            self.send(&DocumentRequest { doc, request }).await?;
        }
        self.record(false);
        Ok(())
    }

    /// Waits until a timer of a document ends.
    async fn due(&self) {
        let times = self.documents.values();
        let next = times
            .filter_map(|it| it.again.into_iter().chain(it.save_ends).min())
            .min();
        match next {
            Some(next) => tokio::time::sleep_until(next).await,
            None => std::future::pending().await,
        }
    }

    /// Does what the timers that have ended were for.
    async fn timers(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let mut concerned = Vec::new();
        for (doc, document) in &mut self.documents {
            if document.again.is_some_and(|at| at <= now) {
                document.file.live.try_again();
                concerned.push(doc.clone());
            }
            if document.save_ends.is_some_and(|at| at <= now) {
                document.file.live.give_up_save();
                document.save_ends = None;
                concerned.push(doc.clone());
            }
        }
        for doc in concerned {
            self.read_file(&doc).await?;
        }
        Ok(())
    }

    /// Records what is open and what is unsaved: if it has changed, or to renew the record.
    fn record(&mut self, renews: bool) {
        let files = self.documents.values_mut().map(|it| &mut it.file);
        self.records.write(&self.name, files, renews);
    }

    async fn problem(&mut self, doc: Option<&str>, message: &str) -> io::Result<()> {
        tracing::debug!(doc, message, "an editor's message is refused");
        self.send(&Answer::Problem { doc, message }).await
    }

    async fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.output.write_all(&line).await?;
        self.output.flush().await
    }
}

/// Reports each change of a notebook's file.
async fn watch(path: std::path::PathBuf, doc: String, changes: mpsc::Sender<String>) {
    let folder = path.parent().unwrap_or(&path).to_owned();
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let mut watch = FolderWatch::begin(&[&folder], PACE);
    loop {
        watch
            .changed(|changed| changed.is_none() || changed == name.as_deref())
            .await;
        if changes.send(doc.clone()).await.is_err() {
            return;
        }
    }
}
