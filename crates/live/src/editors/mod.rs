//! `nb live`: one editor, the notebooks that it has open, and their files.

mod actions;
mod activity;
mod messages;
mod open_file;
mod outgoing;
mod record;
mod running_outputs;
#[cfg(test)]
mod tests;
mod writers;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};

use self::actions::{Action, Ended, act};
pub use self::activity::FollowStale;
use self::activity::{DocumentActivity, Happened};
use self::messages::{Ability, Answer, DocumentMessage, EditorLine, Incoming, read};
use self::open_file::OpenFile;
use self::outgoing::Outgoing;
use self::record::Records;
use self::running_outputs::{OutputsSoFar, RunningOutputs};
use self::writers::{FromWriter, Proposed, WriterSocket};
use crate::activity::jupyter_server::notebook_of_server;
use crate::editing::transaction::ProposalAnswer;
use crate::kernel::variables::ProcessVariables;
pub use crate::live::protocol::StaleMark;
use crate::live::protocol::{
    ActivityMessage, EditorEvent, EditorRequest, OpenedDocument, PROTOCOL,
};
use crate::project::joined::person_at;
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

/// How long a writer waits for an editor that does not answer. Each answer renews it.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// How long a writer may take from the editor's answer to the end of its write. Then the editor gets what the file has.
const LONGEST_WRITE: Duration = Duration::from_secs(10);

/// How long `nb` asks for nothing while the editor writes the file, and how long a writer waits for an editor in a room,
/// without which it cannot write.
const LONGEST_SAVE: Duration = Duration::from_secs(5);

/// Serves an editor until it closes its output. `follow_stale` finds out which cells of its notebooks are out of date, if it
/// shows that.
///
/// # Errors
/// The editor reads nothing any more, or sends a line that is too long.
pub async fn serve(
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
    follow_stale: FollowStale,
) -> io::Result<()> {
    let (changes, mut changed) = mpsc::channel(MOST_DOCUMENTS);
    let (reports, mut reported) = mpsc::channel(1);
    let (outputs, mut running_outputs) = mpsc::channel(1);
    let (actions, mut ended) = mpsc::channel(actions::MOST);
    let (writers, mut from_writers) = mpsc::channel(1);
    let _socket = WriterSocket::bind(writers);
    let mut editor = Editor {
        out: Outgoing::new(output),
        name: "an editor".to_owned(),
        can_change: false,
        only_texts: false,
        shows_activity: false,
        shows_output: false,
        shows_stale: false,
        follow_stale,
        documents: HashMap::new(),
        records: Records::default(),
        actions,
        changes,
        reports,
        outputs,
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
            Some(action) = ended.recv() => editor.ended(action).await,
            Some(happened) = reported.recv() => editor.happened(happened).await,
            Some(so_far) = running_outputs.recv() => editor.output(so_far).await,
            Some(message) = from_writers.recv() => editor.writer(message).await,
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
    for document in editor.documents.values() {
        document.file.record_save().await;
    }
    editor.records.remove();
    served
}

/// The editor, and what it has open.
struct Editor<W> {
    out: Outgoing<W>,
    name: String,
    can_change: bool,
    /// Whether it takes texts and the order of cells alone.
    only_texts: bool,
    /// Whether the editor shows what others do.
    shows_activity: bool,
    /// Whether it shows what running cells have output so far, too.
    shows_output: bool,
    /// Whether it shows which cells are out of date, too.
    shows_stale: bool,
    follow_stale: FollowStale,
    documents: HashMap<String, OpenDocument>,
    records: Records,
    /// What the person has asked for.
    actions: mpsc::Sender<Ended>,
    /// Takes the names of documents whose file has changed.
    changes: mpsc::Sender<String>,
    /// Takes what happens to documents.
    reports: mpsc::Sender<Happened>,
    /// Takes what running cells have output so far.
    outputs: mpsc::Sender<OutputsSoFar>,
}

/// A notebook that the editor has open.
struct OpenDocument {
    file: OpenFile,
    watch: JoinHandle<()>,
    /// When the editor is asked again for what it has refused.
    again: Option<Instant>,
    /// When a save that does not end is given up.
    save_ends: Option<Instant>,
    writer: Option<Writer>,
    /// Whether the editor did not answer when a writer waited for it, and has said nothing since.
    is_slow: bool,
    /// What others do; none if the editor does not show it.
    activity: Option<DocumentActivity>,
    /// The outputs of the cell that runs.
    running_outputs: Option<RunningOutputs>,
}

/// A command of `nb` that is about to write the file.
struct Writer {
    number: u64,
    state: WriterState,
    /// When the state ends.
    until: Instant,
}

enum WriterState {
    /// It waits until the editor has saved, or has what it proposed.
    Waits(oneshot::Sender<ProposalAnswer>),
    /// It writes the file.
    Writes,
}

/// Returns how long a writer waits for an answer of an editor.
fn longest_wait(file: &OpenFile) -> Duration {
    match file.live.is_room() {
        true => LONGEST_SAVE,
        false => LONGEST_WAIT,
    }
}

impl Drop for OpenDocument {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl OpenDocument {
    /// Answers a writer if the editor has what it proposed, or if the file is another one by now. Returns whether the file
    /// is to be read: a room's server has written it.
    fn answer_writer(&mut self) -> bool {
        let live = &self.file.live;
        let answer = match self.file.is_proposed() {
            true if live.has_version() && live.is_room() => {
                ProposalAnswer::Stored(live.stored().clone())
            }
            true if live.has_version() => ProposalAnswer::Go,
            false if !live.is_saving() => ProposalAnswer::Changed,
            _ => return false,
        };
        let is_stored = matches!(answer, ProposalAnswer::Stored(_));
        self.tell_writer(answer);
        is_stored
    }

    /// Follows the outputs of a run, and those of no other one.
    fn follow_outputs(
        &mut self,
        doc: &str,
        run: Option<&str>,
        reports: &mpsc::Sender<OutputsSoFar>,
    ) {
        let before = self.running_outputs.take();
        self.running_outputs = run.map(|run| match before {
            Some(before) if before.is_of(run) => before,
            _ => {
                let project = self.file.project().clone();
                RunningOutputs::follow(project, doc.to_owned(), run.to_owned(), reports.clone())
            }
        });
    }

    fn tell_writer(&mut self, answer: ProposalAnswer) {
        let Some(writer) = self
            .writer
            .take_if(|it| matches!(it.state, WriterState::Waits(_)))
        else {
            return;
        };
        if let WriterState::Waits(waits) = writer.state {
            let _ = waits.send(answer);
        }
        if self.file.live.is_room() {
            self.file.forget_proposal();
        } else if self.file.is_proposed() {
            self.writer = Some(Writer {
                state: WriterState::Writes,
                until: Instant::now() + LONGEST_WRITE,
                ..writer
            });
        }
    }

    /// Does not wait any longer for an editor that does not answer, or for a writer that does not write.
    fn give_up_writer(&mut self) {
        match &self.writer {
            Some(Writer {
                state: WriterState::Waits(_),
                ..
            }) => {
                let is_room = self.file.live.is_room();
                self.is_slow = self.file.is_proposed() && !is_room;
                self.tell_writer(match is_room {
                    true => ProposalAnswer::Silent,
                    false => ProposalAnswer::Go,
                });
            }
            _ => {
                self.writer = None;
                self.file.forget_proposal();
            }
        }
    }
}

impl<W: AsyncWrite + Unpin> Editor<W> {
    /// Takes in one line of the editor.
    async fn line(&mut self, line: &str) -> io::Result<()> {
        self.out.heard();
        match read(line) {
            Ok(Incoming::Editor(message)) => self.message(message).await,
            Ok(Incoming::Document { doc, event }) => self.event(&doc, event).await,
            Ok(Incoming::Action { doc, action }) => self.act(doc, action).await,
            Ok(Incoming::Open {
                doc,
                notebook,
                opened,
            }) => self.open(&doc, &notebook, opened).await,
            // Of a later version.
            Ok(Incoming::Unknown) => Ok(()),
            Err(error) => self.problem(None, None, &error.to_string()).await,
        }
    }

    async fn message(&mut self, message: EditorLine) -> io::Result<()> {
        match message {
            EditorLine::Initialize { editor, can } => {
                self.name = editor;
                self.can_change = can.contains(&Ability::Change);
                self.only_texts = can.contains(&Ability::OnlyTexts);
                self.shows_activity = can.contains(&Ability::Activity);
                self.shows_output = can.contains(&Ability::Output);
                self.shows_stale = can.contains(&Ability::Stale);
                if can.contains(&Ability::Acknowledge) {
                    self.out.number();
                }
                self.send(&Answer::Initialized {
                    protocol: PROTOCOL,
                    version: env!("CARGO_PKG_VERSION"),
                })
                .await
            }
            EditorLine::Received { n } => {
                self.out.received(n);
                Ok(())
            }
            EditorLine::Closed { doc } => {
                if let Some(document) = self.documents.remove(&doc) {
                    document.file.record_save().await;
                }
                self.record(false);
                Ok(())
            }
        }
    }

    async fn open(&mut self, doc: &str, notebook: &Path, opened: OpenedDocument) -> io::Result<()> {
        if self.documents.contains_key(doc) {
            return self.event(doc, EditorEvent::Open(opened)).await;
        }
        if self.documents.len() >= MOST_DOCUMENTS {
            let text = format!("{MOST_DOCUMENTS} notebooks are open, which is the most");
            return self.problem(Some(doc), None, &text).await;
        }
        // Without a project no other command of `nb` reads a record, and none is to be made here.
        let named = match notebook.is_absolute() {
            true => Some(notebook.to_owned()),
            false => notebook_of_server(notebook, &ProcessVariables),
        };
        let Some(notebook) = named.filter(|it| Project::find(it).is_some()) else {
            let text = format!("{} is in no project of nb", notebook.display());
            return self.problem(Some(doc), None, &text).await;
        };
        let mut file = match OpenFile::open(&notebook, opened, self.can_change).await {
            Ok(file) => file,
            Err(error) => return self.problem(Some(doc), None, &error).await,
        };
        if self.only_texts {
            file.live.take_only_texts();
        }
        // It begins here, before the file is read again: a task begins later.
        let folder = file.real_path().parent().unwrap_or(file.real_path());
        let watch = tokio::spawn(watch(
            FolderWatch::begin(&[folder], PACE),
            file.real_path().file_name().map(OsStr::to_owned),
            doc.to_owned(),
            self.changes.clone(),
        ));
        let activity = self.shows_activity.then(|| {
            let (project, key) = (file.project().clone(), file.key().to_owned());
            let (doc, reports) = (doc.to_owned(), self.reports.clone());
            let mut activity = DocumentActivity::follow(project, key, doc.clone(), reports.clone());
            if self.shows_stale {
                let (lists, received) = mpsc::channel(1);
                let stale = (self.follow_stale)(file.real_path().to_owned(), lists);
                activity.follow_stale(stale, received, doc, reports);
            }
            activity
        });
        let document = OpenDocument {
            file,
            watch,
            again: None,
            save_ends: None,
            writer: None,
            is_slow: false,
            activity,
            running_outputs: None,
        };
        self.documents.insert(doc.to_owned(), document);
        // The file may have changed before the watch began.
        self.read_file(doc).await?;
        self.record(true);
        Ok(())
    }

    async fn event(&mut self, doc: &str, event: EditorEvent) -> io::Result<()> {
        let Some(document) = self.documents.get_mut(doc) else {
            return self
                .problem(Some(doc), None, "no such document is open")
                .await;
        };
        document.is_slow = false;
        let is_answer = matches!(
            event,
            EditorEvent::Applied { .. } | EditorEvent::Refused { .. }
        );
        if let Some(writer) = document.writer.as_mut().filter(|_| is_answer) {
            let wait = longest_wait(&document.file);
            writer.until = writer.until.max(Instant::now() + wait);
        }
        if let (Some(activity), EditorEvent::Text { cell, .. }) = (&mut document.activity, &event)
            && let Some(id) = document.file.live.cell_id(cell)
            // There it may be from another page.
            && !document.file.live.is_room()
        {
            activity.typed(id);
        }
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
            if document.answer_writer() {
                document.file.withdraw().await;
                let live = &mut document.file.live;
                requests.extend(std::iter::from_fn(|| live.poll()));
            }
            for request in &mut requests {
                document.file.date(request);
            }
        }
        for request in &requests {
            let message = request;
            self.send(&DocumentMessage { doc, message }).await?;
        }
        self.tell_activity(doc).await?;
        self.record(false);
        Ok(())
    }

    /// Takes in what others did in a document.
    async fn happened(&mut self, happened: Happened) -> io::Result<()> {
        let doc = happened.doc.clone();
        let Some(document) = self.documents.get_mut(&doc) else {
            return Ok(());
        };
        if let Some(activity) = &mut document.activity {
            activity.happened(happened, &document.file.live);
        }
        self.tell_activity(&doc).await
    }

    /// Tells the editor what others do in a document, where that has changed.
    async fn tell_activity(&mut self, doc: &str) -> io::Result<()> {
        let Some(document) = self.documents.get_mut(doc) else {
            return Ok(());
        };
        let Some(activity) = &mut document.activity else {
            return Ok(());
        };
        let news = activity.news(&document.file.live);
        for message in &news {
            if let ActivityMessage::Activity { running, .. } = message
                && self.shows_output
            {
                let run = running.as_ref().filter(|run| run.cell.is_some());
                document.follow_outputs(doc, run.map(|run| &*run.run), &self.outputs);
            }
        }
        for message in &news {
            self.send(&DocumentMessage { doc, message }).await?;
        }
        Ok(())
    }

    /// Tells the editor what a running cell has output so far.
    async fn output(&mut self, so_far: OutputsSoFar) -> io::Result<()> {
        let Some(document) = self.documents.get(&so_far.doc) else {
            return Ok(());
        };
        let activity = document.activity.as_ref();
        let cell = activity.and_then(|it| it.running_cell(&so_far.run, &document.file.live));
        let Some(cell) = cell else {
            return Ok(());
        };
        let message = &ActivityMessage::Output {
            run: so_far.run,
            cell,
            outputs: so_far.outputs,
            execution_count: so_far.execution_count,
        };
        let doc = &*so_far.doc;
        self.send(&DocumentMessage { doc, message }).await
    }

    /// Begins what a person asks for.
    async fn act(&mut self, doc: String, action: Action) -> io::Result<()> {
        let of = Some(action.name());
        let Some(document) = self.documents.get(&doc) else {
            return self
                .problem(Some(&doc), of, "no such document is open")
                .await;
        };
        let Ok(place) = self.actions.clone().try_reserve_owned() else {
            return self.problem(Some(&doc), of, "too much is under way").await;
        };
        let (file, by) = (document.file.file().clone(), person_at(&self.name));
        tokio::spawn(async move { place.send(act(doc, action, file, by).await) });
        Ok(())
    }

    /// Tells the editor how an action ended, where it has to know that.
    async fn ended(&mut self, ended: Ended) -> io::Result<()> {
        let Ended {
            doc,
            action,
            result,
        } = ended;
        match (&action, &result) {
            (Action::Compare { cell, .. }, Ok(Some(was))) => {
                let (doc, cell) = (&*doc, &**cell);
                self.send(&Answer::Compared { doc, cell, was }).await
            }
            (_, Ok(_)) => Ok(()),
            (_, Err(error)) => self.problem(Some(&doc), Some(action.name()), error).await,
        }
    }

    /// Does what a writer asks for.
    async fn writer(&mut self, message: FromWriter) -> io::Result<()> {
        let is_of = |document: &OpenDocument, number: u64| {
            document
                .writer
                .as_ref()
                .is_some_and(|it| it.number == number)
        };
        match message {
            FromWriter::Proposes(proposed) => self.propose(*proposed).await,
            FromWriter::Wrote { writer } => {
                let mut documents = self.documents.iter_mut();
                let Some((doc, document)) = documents.find(|(_, it)| is_of(it, writer)) else {
                    return Ok(());
                };
                document.writer = None;
                document.file.wrote();
                let doc = doc.clone();
                self.answer(&doc).await
            }
            FromWriter::Gone { writer } => {
                let mut documents = self.documents.iter_mut();
                let Some((doc, document)) = documents.find(|(_, it)| is_of(it, writer)) else {
                    return Ok(());
                };
                document.writer = None;
                document.file.withdraw().await;
                let doc = doc.clone();
                self.answer(&doc).await
            }
        }
    }

    async fn propose(&mut self, proposed: Proposed) -> io::Result<()> {
        let Proposed {
            writer: number,
            proposal,
            after,
            answer,
        } = proposed;
        let mut documents = self.documents.iter_mut();
        let found = documents.find(|(_, it)| it.file.real_path() == proposal.notebook);
        let Some((doc, document)) = found.filter(|(_, it)| self.can_change && !it.is_slow) else {
            let _ = answer.send(ProposalAnswer::Go);
            return Ok(());
        };
        let is_saving = document.file.live.is_saving();
        if !is_saving {
            document.file.withdraw().await;
            if document.file.stamp != proposal.before {
                let _ = answer.send(ProposalAnswer::Changed);
                let doc = doc.clone();
                return self.answer(&doc).await;
            }
            document.file.propose(after, proposal.by);
        }
        document.writer = Some(Writer {
            number,
            state: WriterState::Waits(answer),
            until: Instant::now()
                + match is_saving {
                    true => LONGEST_SAVE,
                    false => longest_wait(&document.file),
                },
        });
        let doc = doc.clone();
        self.answer(&doc).await
    }

    /// Waits until a timer of a document ends.
    async fn due(&self) {
        let times = self.documents.values();
        let next = times
            .filter_map(|it| {
                let writer = it.writer.as_ref().map(|writer| writer.until);
                let marks = it.activity.as_ref().and_then(DocumentActivity::next_end);
                let times = it.again.into_iter().chain(it.save_ends);
                times.chain(writer).chain(marks).min()
            })
            .chain(self.out.next_due())
            .min();
        match next {
            Some(next) => tokio::time::sleep_until(next).await,
            None => std::future::pending().await,
        }
    }

    /// Does what the timers that have ended were for.
    async fn timers(&mut self) -> io::Result<()> {
        self.out.due().await?;
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
            if document.writer.as_ref().is_some_and(|it| it.until <= now) {
                document.give_up_writer();
                concerned.push(doc.clone());
            }
            let marks_end = document.activity.as_ref().and_then(|it| it.next_end());
            if marks_end.is_some_and(|at| at <= now) {
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
        let editor = (&*self.name, self.can_change, self.only_texts);
        self.records.write(editor, files, renews);
    }

    async fn problem(
        &mut self,
        doc: Option<&str>,
        of: Option<&'static str>,
        message: &str,
    ) -> io::Result<()> {
        tracing::debug!(doc, message, "an editor's message is refused");
        self.send(&Answer::Problem { doc, of, message }).await
    }

    async fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.out.send(message).await
    }
}

/// Reports each change of a notebook's file.
async fn watch(
    mut watch: FolderWatch,
    name: Option<OsString>,
    doc: String,
    changes: mpsc::Sender<String>,
) {
    let name = name.map(|name| name.to_string_lossy().into_owned());
    loop {
        watch
            .changed(|changed| changed.is_none() || changed == name.as_deref())
            .await;
        if changes.send(doc.clone()).await.is_err() {
            return;
        }
    }
}
