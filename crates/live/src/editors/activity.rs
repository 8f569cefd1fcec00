//! Follows what happens to an open notebook: the events of its project, and its kernel.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::lifecycle::status::{present, status};
use crate::live::LiveDocument;
use crate::live::activity::{MARKED, Marks, cell_run};
use crate::live::protocol::{ActivityMessage, StaleMark};
use crate::project::event::{Event, EventFollower, EventKind, Position, Present, RunningExecution};
use crate::project::{Project, Session};

/// How long events are gathered before they are reported.
const GATHERED: Duration = Duration::from_millis(20);

/// How many events one report has at most.
const MOST: usize = 1000;

/// Follows which cells of a notebook are out of date, until the receiver is dropped: each list replaces the one before, and
/// names cells by their ids.
pub type FollowStale = fn(PathBuf, mpsc::Sender<Vec<StaleMark>>) -> BoxFuture<'static, ()>;

/// What others do in a document, and what the editor was told of it.
pub(super) struct DocumentActivity {
    followers: JoinSet<()>,
    key: String,
    /// None before the first report.
    kernel: Option<KernelNow>,
    marks: Marks,
    /// When the next mark is old.
    marks_end: Option<Timestamp>,
    /// None as long as nothing is known.
    stale: Option<Vec<StaleMark>>,
    told: Vec<ActivityMessage>,
}

impl DocumentActivity {
    /// Begins to follow what happens to the notebook `key`.
    pub(super) fn follow(
        project: Project,
        key: String,
        doc: String,
        reports: mpsc::Sender<Happened>,
    ) -> Self {
        Self {
            followers: JoinSet::from_iter([follow(project, key.clone(), doc, reports)]),
            key,
            kernel: None,
            marks: Marks::default(),
            marks_end: None,
            stale: None,
            told: Vec::new(),
        }
    }

    /// Also follows which cells are out of date.
    pub(super) fn follow_stale(
        &mut self,
        stale: impl Future<Output = ()> + Send + 'static,
        mut lists: mpsc::Receiver<Vec<StaleMark>>,
        doc: String,
        reports: mpsc::Sender<Happened>,
    ) {
        self.followers.spawn(stale);
        self.followers.spawn(async move {
            while let Some(cells) = lists.recv().await {
                let what = What::Stale(cells);
                let doc = doc.clone();
                if reports.send(Happened { doc, what }).await.is_err() {
                    return;
                }
            }
        });
    }

    /// Takes in what has happened.
    pub(super) fn happened(&mut self, happened: Happened, live: &LiveDocument) {
        match happened.what {
            What::Events(events, kernel) => {
                self.kernel = Some(*kernel);
                for event in &events {
                    self.marks.event(event, &self.key, live);
                }
            }
            What::Stale(cells) => self.stale = Some(cells),
        }
    }

    /// The person has changed a cell in the editor.
    pub(super) fn typed(&mut self, id: &str) {
        self.marks.typed(id);
    }

    /// Returns what the editor was not told yet.
    pub(super) fn news(&mut self, live: &LiveDocument) -> Vec<ActivityMessage> {
        let Some(kernel) = &self.kernel else {
            return Vec::new();
        };
        let now = Timestamp::now();
        let run = |run: &RunningExecution| cell_run(run, &self.key, live);
        let stale = self.stale.as_ref().map(|cells| {
            let known = cells.iter().filter_map(|stale| {
                Some(StaleMark {
                    cell: live.cell_name(&stale.cell)?.to_owned(),
                    why: stale.why.clone(),
                })
            });
            ActivityMessage::Stale {
                cells: known.collect(),
            }
        });
        let mut present = vec![
            ActivityMessage::Activity {
                kernel: kernel.is_up,
                running: kernel.running.as_ref().map(run),
                waiting: kernel.waiting.iter().map(run).collect(),
            },
            ActivityMessage::Marks {
                cells: self.marks.shown(live, now),
            },
        ];
        present.extend(stale);
        self.marks_end = self.marks.next_end(now);
        let is_new = |message: &&ActivityMessage| !self.told.contains(message);
        let news = present.iter().filter(is_new).cloned().collect();
        self.told = present;
        news
    }

    /// Returns the name of the cell that this request runs now.
    pub(super) fn running_cell(&self, run: &str, live: &LiveDocument) -> Option<String> {
        let running = self.kernel.as_ref()?.running.as_ref()?;
        let running = Some(running).filter(|running| running.msg_id == run)?;
        cell_run(running, &self.key, live).cell
    }

    /// Returns when the next mark is old.
    pub(super) fn next_end(&self) -> Option<Instant> {
        let left = self.marks_end?.duration_since(Timestamp::now());
        Some(Instant::now() + Duration::try_from(left).unwrap_or_default())
    }
}

/// What has happened to a notebook since the last report.
#[derive(Debug)]
pub(super) struct Happened {
    pub(super) doc: String,
    what: What,
}

#[derive(Debug)]
enum What {
    /// The events of its kernel and its file, oldest first, and what its kernel does now.
    Events(Vec<Event>, Box<KernelNow>),
    /// The cells that are out of date now.
    Stale(Vec<StaleMark>),
}

/// What a kernel does.
#[derive(Debug, Default)]
struct KernelNow {
    /// Whether a front end can connect to it.
    is_up: bool,
    /// The cell that it runs.
    running: Option<RunningExecution>,
    /// The cells that wait for it, the next one first.
    waiting: Vec<RunningExecution>,
}

/// Reports what happens to a notebook, from ten minutes ago on, until the receiver is dropped.
async fn follow(project: Project, key: String, doc: String, reports: mpsc::Sender<Happened>) {
    let mut followed = Followed {
        owner: key.clone(),
        is_up: false,
        project,
        key,
    };
    let (from, mut events) = followed.recent();
    let mut follower = followed.project.follow_events(from);
    let mut asks = true;
    loop {
        let kernel = followed.kernel(asks).await;
        let happened = Happened {
            doc: doc.clone(),
            what: What::Events(events, Box::new(kernel)),
        };
        if reports.send(happened).await.is_err() {
            return;
        }
        events = followed.next(&mut follower).await;
        asks = events.iter().any(|event| is_of_kernel(&event.kind));
    }
}

/// A notebook whose events are followed.
struct Followed {
    project: Project,
    key: String,
    /// The key of the session whose kernel it uses.
    owner: String,
    is_up: bool,
}

impl Followed {
    /// Returns the events of the time in which cells stay marked, and the position after them.
    fn recent(&self) -> (Position, Vec<Event>) {
        let events = self.project.events(&self.key);
        let from = events.end();
        let begin = Timestamp::now() - MARKED;
        let recent = events.take_while(|event| event.at > begin).take(MOST);
        let mut recent: Vec<_> = recent.collect();
        recent.reverse();
        (from, recent)
    }

    /// Waits for events of the notebook or of its kernel, and returns them.
    async fn next(&self, follower: &mut EventFollower) -> Vec<Event> {
        loop {
            let first = follower.next().await;
            tokio::time::sleep(GATHERED).await;
            let more = std::iter::from_fn(|| follower.read());
            let events: Vec<_> = std::iter::once(first).chain(more).take(MOST).collect();
            if events.iter().any(|event| self.concerns(event)) {
                return events;
            }
        }
    }

    fn concerns(&self, event: &Event) -> bool {
        [&self.owner, &self.key].contains(&&event.session)
            || event.notebook() == self.key
            // The notebook may use another kernel by now.
            || is_of_kernel(&event.kind)
    }

    /// Returns what the notebook's kernel does. `asks` says whether the kernel itself is asked: the journal tells of
    /// all that begins and ends, but not of what a killed process has left open.
    async fn kernel(&mut self, asks: bool) -> KernelNow {
        let state = self.project.state().unwrap_or_default();
        let Some(session) = state.session(&self.key) else {
            return KernelNow::default();
        };
        self.owner = state.owner_key(&self.key);
        let present = match asks {
            true => self.ask(session).await,
            false => present(&self.project, &self.owner, session.generation),
        };
        if !self.is_up {
            return KernelNow::default();
        }
        let waiting = present.queued.into_iter().chain(present.waiting);
        KernelNow {
            is_up: true,
            running: present.running.filter(|run| run.store_history),
            waiting: waiting.collect(),
        }
    }

    async fn ask(&mut self, session: Session) -> Present {
        let generation = session.generation;
        let Ok(status) = status(&self.project, &self.owner, session).await else {
            return Present::default();
        };
        self.is_up = status.liveness.is_up();
        let queued = self.project.present(&self.owner, generation).queued;
        Present {
            running: status.running.filter(|_| status.busy == Some(true)),
            queued,
            waiting: status.waiting,
            last: None,
        }
    }
}

/// Says whether an event is about a kernel, and not about a cell.
fn is_of_kernel(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Opened
            | EventKind::Restarted
            | EventKind::Stopped
            | EventKind::Died { .. }
            | EventKind::Moved { .. }
    )
}
