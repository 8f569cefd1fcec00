//! Records the outputs that a kernel sends for cells that have ended: threads and asyncio tasks go on
//! printing.
//!
//! One process listens on each kernel: the first recorder that finds no other. It goes on after its own
//! job, until the kernel ends or no job has run on it for [`UNUSED`]. The outputs are recorded when their
//! job is over: until then another recorder writes the job's folder.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior};

use super::gaps::{Gaps, WriteFacts};
use super::held::{self, check_pause};
use super::late_listener::LateListener;
use super::outputs::JobOutputs;
use super::state::Recorder;
use crate::activity::participants::joined_to;
use crate::client::IopubMessage;
use crate::execution::into_notebook::Hold;
use crate::project::Project;
use crate::project::jobs::{JobFolder, JobState};
use crate::wire::{FACTS, Verified};

/// After this time without a job and without a late output the process ends.
const UNUSED: Duration = Duration::from_secs(600);

/// How often to check for that.
const USE_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// After so long without a late output the next one is written soon.
const QUIET: Duration = Duration::from_secs(10);

/// The most bytes of outputs that wait for the end of their jobs, or for their writing; what is above is dropped,
/// and an output says so.
const MOST_WAITING: usize = 16 << 20;

/// The pause between two writes if many bytes wait.
const SHORT_GAP: Duration = Duration::from_secs(1);

/// The most bytes of late outputs that are recorded of one cell: a thread may print for ever.
const MOST_RECORDED: usize = 64 << 20;

/// How long to wait for jobs that are not over, when the kernel has ended.
const JOBS_END: Duration = Duration::from_secs(10);

/// How often to check whether they are over.
const POLL_PAUSE: Duration = Duration::from_millis(100);

/// Listens on a kernel for the outputs of cells that have ended.
pub(super) struct LateOutputs {
    project: Project,
    listener: LateListener,
    requests: EndedRequests,
    waiting: Waiting,
    /// The cells that had late outputs, by their requests.
    known: HashMap<String, JobCellAt>,
    /// The outputs of the job that was written last.
    latest: Option<(String, JobOutputs)>,
    gaps: Gaps,
    /// The requests that no job named at the last check.
    unknown: HashSet<String>,
    /// When the present series of late outputs began.
    series_began: Instant,
    /// When the last late output came, or this process began to listen.
    last_output: Instant,
    /// When outputs were last written.
    written_at: Instant,
    /// Whether outputs may be held back.
    is_holding: bool,
}

/// A cell of a job.
struct JobCellAt {
    folder: JobFolder,
    /// The index of the cell.
    at: usize,
    /// How many bytes of late outputs were recorded.
    recorded: usize,
}

impl LateOutputs {
    /// Prepares the recording of late messages.
    pub(super) fn new(project: &Project, listener: LateListener) -> Self {
        let now = Instant::now();
        Self {
            project: project.clone(),
            listener,
            requests: EndedRequests::default(),
            waiting: Waiting::default(),
            known: HashMap::new(),
            latest: None,
            gaps: Gaps::new(0),
            unknown: HashSet::new(),
            series_began: now,
            last_output: now,
            written_at: now,
            is_holding: false,
        }
    }

    /// Records late outputs until the kernel ends or is unused. `is_job_over` says whether the own job is over:
    /// after that, SIGTERM ends this process.
    pub(super) async fn record(mut self, is_job_over: &Cell<bool>) {
        let Ok(mut terminate) = signal(SignalKind::terminate()) else {
            return;
        };
        let mut due: Option<Instant> = None;
        let mut use_checks = tokio::time::interval(USE_CHECK_INTERVAL);
        let mut held_checks = tokio::time::interval(check_pause(Hold::Room));
        held_checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let has_kernel_ended = loop {
            let next_write = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = terminate.recv() => if is_job_over.get() {
                    break false;
                },
                () = next_write => {
                    let all = self.write().await;
                    due = (!all).then(|| Instant::now() + self.gaps.next());
                }
                received = self.listener.next_message() => match received {
                    Ok(message) => if self.take(&message) {
                        let soon = due.unwrap_or_else(|| Instant::now() + self.gaps.next());
                        let has_many = self.waiting.bytes > MOST_WAITING / 4;
                        let at = self.written_at + SHORT_GAP;
                        due = Some(if has_many { soon.min(at) } else { soon });
                    },
                    Err(_) => break true,
                },
                _ = held_checks.tick(), if self.is_holding => {
                    self.is_holding = held::write_free(&self.project).await;
                }
                _ = use_checks.tick() => if !self.is_used() {
                    break false;
                },
            }
        };
        self.listener.release(has_kernel_ended);
        let end = Instant::now() + JOBS_END;
        while !self.write().await && Instant::now() < end {
            tokio::time::sleep(POLL_PAUSE).await;
        }
    }

    /// Returns whether a job of the kernel runs, or was over or had a late output not long ago.
    fn is_used(&self) -> bool {
        if self.last_output.elapsed() < UNUSED {
            return true;
        }
        let key = self.project.current_key(&self.listener.key);
        let is_own = |folder: &JobFolder| folder.read().is_ok_and(|job| job.session == key);
        let mut open = self.project.open_jobs().into_iter();
        if open.any(|folder| folder.has_recorder() && is_own(&folder)) {
            return true;
        }
        let now = Timestamp::now();
        let is_recent = |at: Timestamp| now.duration_since(at).unsigned_abs() < UNUSED;
        let jobs = self.project.jobs_lately().into_iter();
        jobs.filter_map(|folder| folder.read().ok())
            .any(|job| job.session == key && job.ended_at.is_some_and(is_recent))
    }

    /// Takes a message of iopub; returns whether it is a late output.
    fn take(&mut self, message: &Verified) -> bool {
        let (Ok(header), Ok(parent)) = (message.header(), message.parent()) else {
            return false;
        };
        if parent.msg_type != "execute_request" {
            return false;
        }
        let state = message.execution_state();
        if !self
            .requests
            .take(&header.msg_type, &parent.msg_id, state.as_deref())
        {
            return false;
        }
        let now = Instant::now();
        if now - self.last_output > QUIET {
            self.series_began = now;
            self.gaps = Gaps::new(0);
        }
        self.last_output = now;
        let message = IopubMessage {
            id: Some(header.msg_id.clone().into_owned()),
            msg_type: header.msg_type.clone().into_owned(),
            content: message.content().clone(),
            buffers: message.buffers().to_vec(),
        };
        self.waiting.add(&parent.msg_id, message);
        true
    }

    /// Writes the outputs of jobs that are over; returns whether none waits any more.
    async fn write(&mut self) -> bool {
        let mut by_job: BTreeMap<PathBuf, (JobFolder, Vec<String>)> = BTreeMap::new();
        let mut is_all = true;
        let ids: Vec<String> = self.waiting.requests.keys().cloned().collect();
        for id in ids {
            let Some(folder) = self.cell_of(&id).map(|cell| cell.folder.clone()) else {
                // A front end's cell, whose outputs the front end shows; or its job does not name the request yet.
                if self.unknown.remove(&id) {
                    self.drop_request(&id);
                } else {
                    self.unknown.insert(id);
                    is_all = false;
                }
                continue;
            };
            let path = folder.path().to_owned();
            by_job
                .entry(path)
                .or_insert((folder, Vec::new()))
                .1
                .push(id);
        }
        let begun = Instant::now();
        let mut has_written = false;
        for (folder, ids) in by_job.into_values() {
            match self.write_job(&folder, &ids).await {
                Ok(true) => has_written = true,
                Ok(false) => is_all = false,
                Err(error) => {
                    tracing::warn!(%error, job = folder.id(), "late outputs cannot be recorded");
                    ids.iter().for_each(|id| self.drop_request(id));
                }
            }
        }
        if has_written {
            let key = self.project.current_key(&self.listener.key);
            let wrote = WriteFacts {
                took: begun.elapsed(),
                is_watched: !joined_to(&self.project, &key).is_empty(),
                ..WriteFacts::default()
            };
            self.gaps.wrote(wrote, self.series_began.elapsed());
        }
        self.written_at = Instant::now();
        is_all
    }

    /// Writes the late outputs of requests of a job; returns false if the job is not over.
    async fn write_job(&mut self, folder: &JobFolder, ids: &[String]) -> io::Result<bool> {
        let Some(_lock) = folder.try_lock()? else {
            return Ok(false);
        };
        let job = folder.read().map_err(io::Error::other)?;
        if job.state != JobState::Done {
            return Ok(false);
        }
        let latest = self.latest.take().filter(|(id, _)| id == folder.id());
        // Between idle and the reply the job's own recorder takes outputs, too.
        let (outputs, recorded) = match latest {
            Some((_, outputs)) => (outputs, HashSet::new()),
            None => JobOutputs::read(&job, folder)?,
        };
        let recorder = Recorder::new(&self.project, folder, job)?;
        recorder.outputs.replace(outputs);
        let mut full = Vec::new();
        for id in ids {
            let mut messages = self.waiting.take(id);
            messages.retain(|message| message.id.as_ref().is_none_or(|id| !recorded.contains(id)));
            let Some(cell) = self.known.get_mut(id) else {
                continue;
            };
            for message in &messages {
                recorder.record_message(cell.at, message);
            }
            cell.recorded += messages.iter().map(size).sum::<usize>();
            if cell.recorded > MOST_RECORDED {
                let text =
                    "[nb] more than 64 MiB came after the cell's end: the rest is not recorded\n";
                recorder.record_message(cell.at, &IopubMessage::on_stderr(text));
                full.push(id);
            }
        }
        self.is_holding |= recorder.write_late().await;
        let outputs = recorder.outputs.into_inner();
        full.into_iter().for_each(|id| self.drop_request(id));
        self.latest = Some((folder.id().to_owned(), outputs));
        Ok(true)
    }

    /// Returns the cell of a job that a request ran; `None` if no job sent it.
    fn cell_of(&mut self, msg_id: &str) -> Option<&JobCellAt> {
        if !self.known.contains_key(msg_id) {
            let found = self.project.jobs_lately().into_iter().find_map(|folder| {
                let job = folder.read().ok()?;
                let mut cells = job.cells.iter();
                let at = cells.position(|cell| cell.msg_id.as_deref() == Some(msg_id))?;
                Some(JobCellAt {
                    folder,
                    at,
                    recorded: 0,
                })
            })?;
            if self.known.len() >= EndedRequests::KNOWN_MAX {
                self.known.clear();
            }
            self.known.insert(msg_id.to_owned(), found);
        }
        self.known.get(msg_id)
    }

    /// Drops the outputs of a request, and those that come later.
    fn drop_request(&mut self, msg_id: &str) {
        self.waiting.take(msg_id);
        self.requests.forget(msg_id);
        self.known.remove(msg_id);
    }
}

/// The execute requests whose ends were seen, the latest ones.
#[derive(Debug, Default)]
struct EndedRequests {
    ended: HashSet<String>,
    /// The same, in the order of their ends.
    order: VecDeque<String>,
}

impl EndedRequests {
    /// How many are known.
    const KNOWN_MAX: usize = 4096;

    /// Takes the type of a message about a request, and the execution state if it is a status; returns whether it is an
    /// output after the request's end.
    fn take(&mut self, msg_type: &str, msg_id: &str, state: Option<&str>) -> bool {
        match (msg_type, state) {
            ("status", Some("idle")) => {
                if self.ended.insert(msg_id.to_owned()) {
                    self.order.push_back(msg_id.to_owned());
                }
                if self.order.len() > Self::KNOWN_MAX
                    && let Some(oldest) = self.order.pop_front()
                {
                    self.ended.remove(&oldest);
                }
            }
            ("status" | "execute_input" | FACTS, _) => {}
            _ => return self.ended.contains(msg_id),
        }
        false
    }

    /// Removes a request whose outputs are not wanted.
    fn forget(&mut self, msg_id: &str) {
        self.ended.remove(msg_id);
        self.order.retain(|other| other != msg_id);
    }
}

/// The late outputs that are not recorded yet, by their requests.
#[derive(Debug, Default)]
struct Waiting {
    requests: BTreeMap<String, WaitingOutputs>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct WaitingOutputs {
    messages: Vec<IopubMessage>,
    dropped: u64,
}

impl Waiting {
    fn add(&mut self, msg_id: &str, message: IopubMessage) {
        let waiting = self.requests.entry(msg_id.to_owned()).or_default();
        let bytes = size(&message);
        if self.bytes + bytes > MOST_WAITING {
            waiting.dropped += 1;
            return;
        }
        self.bytes += bytes;
        waiting.messages.push(message);
    }

    /// Removes and returns the outputs of a request; if some were dropped, the last output says so.
    fn take(&mut self, msg_id: &str) -> Vec<IopubMessage> {
        let Some(WaitingOutputs {
            mut messages,
            dropped,
        }) = self.requests.remove(msg_id)
        else {
            return Vec::new();
        };
        self.bytes -= messages.iter().map(size).sum::<usize>();
        if dropped > 0 {
            let text = format!(
                "[nb] {dropped} messages that came after the cell's end are missing here: too many came at once\n"
            );
            messages.push(IopubMessage::on_stderr(&text));
        }
        messages
    }
}

fn size(message: &IopubMessage) -> usize {
    // A message also takes space of its own.
    const OWN: usize = 256;
    let buffers = message.buffers.iter().map(|it| it.len());
    OWN + message.content.len() + buffers.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_output_after_the_end_of_its_request_is_late() {
        let mut requests = EndedRequests::default();
        // It began before this process listened: its outputs are not known to be late.
        assert!(!requests.take("stream", "a", None));
        assert!(!requests.take("status", "b", Some("busy")));
        assert!(!requests.take("execute_input", "b", None));
        assert!(!requests.take("stream", "b", None));
        assert!(!requests.take("status", "b", Some("idle")));
        assert!(requests.take("stream", "b", None));
        assert!(!requests.take("stream", "a", None));
        requests.forget("b");
        assert!(!requests.take("stream", "b", None));
        for n in 0..=EndedRequests::KNOWN_MAX {
            requests.take("status", &n.to_string(), Some("idle"));
        }
        assert_eq!(requests.ended.len(), EndedRequests::KNOWN_MAX);
        assert!(!requests.take("stream", "0", None));
        assert!(requests.take("stream", "1", None));
    }

    #[test]
    fn what_waits_for_the_end_of_its_job_is_bounded() {
        let message = |bytes| IopubMessage {
            id: None,
            msg_type: "stream".to_owned(),
            content: vec![b'x'; bytes].into(),
            buffers: Vec::new(),
        };
        let mut waiting = Waiting::default();
        waiting.add("a", message(MOST_WAITING - 1000));
        waiting.add("b", message(1000));
        waiting.add("b", message(10));
        let kept = waiting.take("b");
        assert_eq!(kept.len(), 2);
        let note = String::from_utf8_lossy(&kept[1].content);
        assert!(note.contains("[nb] 1 messages"), "{note}");
        assert_eq!(waiting.take("a").len(), 1);
        assert_eq!(waiting.bytes, 0);
        assert!(waiting.take("a").is_empty());
    }
}
