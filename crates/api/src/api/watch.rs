//! `watch`: follows a notebook and its kernel, and says what became out of date.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Serialize;

use super::caller::{Caller, blocking};
use super::events::{EventFollower, EventsRequest, events};
use super::exec::{ExecAnswer, ExecRequest};
use super::job::{FollowOptions, JobVerdict, OutputsAs, RunAnswer};
use super::problem::Problem;
use super::selection::CellsToRun;
use super::stale::{CellNames, FIRST_LINE, StaleCell, analysis};
use crate::editing::notebook_file::NotebookFile;
use crate::editing::running::running;
use crate::editing::unsaved;
use crate::editing::view;
use crate::execution::exec::has_tag;
use crate::graph::{Cancel, PlanRequest};
use crate::notebook::{CellSelector, Document, first_line};
use crate::project::event::CellEnd;
use crate::project::{FolderWatch, Status};
use crate::stale::notebook_graph::NotebookGraph;

/// How long nothing must change before the notebook is analysed.
const DEBOUNCE: Duration = Duration::from_millis(300);

/// How long the analysis waits at most while something changes all the time.
const MOST_DELAY: Duration = Duration::from_secs(3);

/// The pause between two checks of the file where the system reports no changes.
const PACE: Duration = Duration::from_secs(1);

/// The tag of cells that run only when somebody asks for them.
const MANUAL: &str = "manual";

/// Which cells are run when they become out of date.
#[derive(Clone, Debug, Default)]
pub struct WatchRequest {
    /// Whether any are.
    pub runs_stale: bool,
    /// Only cells with one of these tags; an empty list selects all.
    pub only: Vec<String>,
}

/// The cells that are out of date at one moment.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StaleSnapshot {
    /// When they were looked at.
    pub at: Timestamp,
    /// The notebook's key in its project.
    pub notebook: String,
    /// The cells that are out of date.
    pub stale: Vec<WatchedCell>,
    /// The ids of those that are so since the last snapshot, or again.
    pub became_stale: Vec<String>,
    /// The ids of the cells to run now; see [`WatchRequest`].
    pub to_run: Vec<String>,
    /// Why cells that became out of date are not run, if they are not.
    pub waits_for: Option<String>,
}

/// A cell that is out of date.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WatchedCell {
    /// Its place in the notebook, from 0.
    pub index: usize,
    /// Its id.
    pub id: String,
    /// How its source begins.
    pub first_line: String,
    /// Why it is out of date.
    pub stale: StaleCell,
    /// As much of its id as other requests need.
    #[serde(skip)]
    pub short_id: String,
}

/// A watch on a notebook and its kernel.
#[derive(Debug)]
pub struct StaleWatch {
    request: WatchRequest,
    file: NotebookFile,
    changes: FolderWatch,
    events: EventFollower,
    triggers: Arc<Mutex<Triggers>>,
    /// The list that was returned last.
    last: Option<Vec<(String, String)>>,
}

impl StaleWatch {
    /// Begins to watch a notebook, without an analysis yet.
    ///
    /// # Errors
    /// There is no such notebook.
    pub async fn begin(caller: &Caller, request: WatchRequest) -> Result<Self, Problem> {
        let file = caller.notebook_file().await?;
        let folder = file.real.parent().unwrap_or(&file.real).to_owned();
        let events = events(caller, EventsRequest::default()).await?;
        Ok(Self {
            request,
            changes: FolderWatch::begin(&[&folder], PACE),
            events,
            file,
            triggers: Arc::default(),
            last: None,
        })
    }

    /// Returns the cells that are out of date: at once the first time, and then when the list has changed, when a
    /// change concerns a cell of it anew, or when there is something to run.
    ///
    /// # Errors
    /// The notebook cannot be read at first, or the project's state cannot be read.
    pub async fn next(&mut self, caller: &Caller) -> Result<StaleSnapshot, Problem> {
        loop {
            if self.last.is_some() {
                self.changed().await;
            }
            // A notebook that cannot be read now is being written: its next change is waited for.
            let Some(snapshot) = self.snapshot(caller).await? else {
                continue;
            };
            let list = snapshot.stale.iter();
            let list = list.map(|cell| (cell.id.clone(), cell.stale.text.clone()));
            let list = Some(list.collect::<Vec<_>>());
            let is_new = !snapshot.became_stale.is_empty() || !snapshot.to_run.is_empty();
            if list != self.last || is_new {
                self.last = list;
                return Ok(snapshot);
            }
        }
    }

    /// Returns the request that runs the cells of a snapshot.
    pub fn request(&self, snapshot: &StaleSnapshot, outputs: OutputsAs) -> ExecRequest {
        let ids = snapshot.to_run.iter();
        ExecRequest {
            cells: CellsToRun {
                named: ids.map(|id| CellSelector::Id(id.clone())).collect(),
                stale: true,
                ..CellsToRun::default()
            },
            follow: Some(FollowOptions {
                timeout: Some(0.0),
                outputs,
                ..FollowOptions::default()
            }),
            ..ExecRequest::default()
        }
    }

    /// Records which cells have run: they are not run again until something changes.
    pub fn has_run(&mut self, answer: &ExecAnswer) {
        let ExecAnswer::Job {
            job: RunAnswer::Followed(job),
            ..
        } = answer
        else {
            return;
        };
        // The cells that an edit kept from being run are planned again; those behind one that failed are not.
        let triggers = &mut lock(&self.triggers);
        let is_edited = job.verdict() == JobVerdict::Edited;
        let is_left = |end| is_edited && matches!(end, CellEnd::NotRun | CellEnd::Edited);
        for cell in &job.record.cells {
            match (&cell.cell, cell.status) {
                (Some(_), Some(status)) if is_left(status) => {}
                (Some(id), Some(CellEnd::NotRun)) => triggers.settled(id),
                (Some(id), _) => triggers.ran(id, source_hash(&cell.code)),
                (None, _) => {}
            }
        }
    }

    /// Waits until the file or what the kernel has run has changed, and then until nothing changes for a moment.
    async fn changed(&mut self) {
        let name = self.file.real.file_name();
        let name = name.map(|name| name.to_string_lossy().into_owned());
        let is_notebook =
            |changed: Option<&str>| changed.is_none_or(|it| Some(it) == name.as_deref());
        tokio::select! {
            () = self.changes.changed(is_notebook) => {}
            _ = self.events.next() => {}
        }
        let last = Instant::now() + MOST_DELAY;
        while Instant::now() < last {
            tokio::select! {
                () = self.changes.changed(is_notebook) => {}
                _ = self.events.next() => {}
                () = tokio::time::sleep(DEBOUNCE) => return,
            }
        }
    }

    /// Analyses the notebook. Returns `None` if it cannot be read now, but could before.
    async fn snapshot(&self, caller: &Caller) -> Result<Option<StaleSnapshot>, Problem> {
        let (file, request) = (self.file.clone(), self.request.clone());
        let (triggers, is_first) = (self.triggers.clone(), self.last.is_none());
        blocking(caller, move |caller| {
            let document = match view::open(&file, caller.by()) {
                Ok(view) => view.document,
                Err(_) if !is_first => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            let analysis = Analysis {
                file: &file,
                request: &request,
                cancel: &caller.cancel,
            };
            analysis.snapshot(&document, &mut lock(&triggers)).map(Some)
        })
        .await
    }
}

fn lock(triggers: &Mutex<Triggers>) -> MutexGuard<'_, Triggers> {
    triggers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The analysis of a watched notebook.
struct Analysis<'a> {
    file: &'a NotebookFile,
    request: &'a WatchRequest,
    cancel: &'a Cancel,
}

impl Analysis<'_> {
    fn snapshot(
        &self,
        document: &Document,
        triggers: &mut Triggers,
    ) -> Result<StaleSnapshot, Problem> {
        let graph = NotebookGraph::of(self.file, document, analysis(false), self.cancel)?;
        let names = CellNames::of(document, &graph);
        let cells = graph.cells().filter_map(|(place, cell)| {
            let source = document.cells().get(place)?.source();
            let id = document.cells().get(place)?.id();
            let key = (source_hash(&source), graph.runs_of(id));
            Some((id.to_owned(), key, cell.stale.is_some()))
        });
        let cells: Vec<_> = cells.collect();
        let became_stale = triggers.update(&cells, |changed| graph.graph.downstream(changed));
        let id = |place: usize| document.cells().get(place).map(|cell| cell.id().to_owned());
        let stale = graph.cells().filter_map(|(place, _)| {
            Some(WatchedCell {
                index: place,
                id: id(place)?,
                first_line: first_line(&document.cells().get(place)?.source(), FIRST_LINE),
                stale: names.stale_at(place)?,
                short_id: names.short_id(graph.cell_at(place)?).to_owned(),
            })
        });
        let stale = stale.collect();
        let (to_run, waits_for) = match self.request.runs_stale {
            true => self.to_run(document, &graph, triggers),
            false => (Vec::new(), None),
        };
        Ok(StaleSnapshot {
            at: Timestamp::now(),
            notebook: self.file.key.clone(),
            stale,
            became_stale,
            to_run,
            waits_for,
        })
    }

    /// Returns the cells to run now, and why others are not.
    fn to_run(
        &self,
        document: &Document,
        graph: &NotebookGraph,
        triggers: &Triggers,
    ) -> (Vec<String>, Option<String>) {
        let places = graph.cells().enumerate();
        let open = places.filter_map(|(at, (place, _))| {
            let id = document.cells().get(place)?.id();
            triggers.open.contains(id).then_some(at)
        });
        let open: BTreeSet<usize> = open.collect();
        if open.is_empty() {
            return (Vec::new(), None);
        }
        if !self.has_live_kernel() {
            return (
                Vec::new(),
                Some("the notebook has no running kernel".to_owned()),
            );
        }
        if let Some(runs) = running(self.file) {
            let by = runs.by.unwrap_or_else(|| "another client".to_owned());
            return (Vec::new(), Some(format!("a cell of {by} runs")));
        }
        let typed_in = unsaved::find(self.file).typed_in(self.file, document);
        let left_out = |at: usize| -> Option<String> {
            let cell = document.cells().get(graph.place(at)?)?;
            let id = cell.id();
            if has_tag(cell, &[MANUAL.to_owned()]) {
                return Some(format!("{id} is tagged {MANUAL}"));
            }
            if !self.request.only.is_empty() && !has_tag(cell, &self.request.only) {
                return Some(format!(
                    "{id} has no tag {}",
                    self.request.only.join(" or ")
                ));
            }
            let is_typed_in = typed_in.iter().any(|typed| typed == id);
            is_typed_in.then(|| format!("{id} is being edited"))
        };
        let (cells, why) = runnable(
            open,
            &|cells| self.planned(graph, cells),
            &left_out,
            &|cells| graph.graph.downstream(cells),
        );
        let ids = cells.iter().filter_map(|at| {
            let cell = document.cells().get(graph.place(*at)?)?;
            Some(cell.id().to_owned())
        });
        (ids.collect(), why)
    }

    /// Returns the cells that a run of the stale ones among these would run.
    fn planned(&self, graph: &NotebookGraph, cells: &BTreeSet<usize>) -> BTreeSet<usize> {
        let request = PlanRequest {
            cells: cells.clone(),
            only_stale: true,
            with_upstream: true,
            with_downstream: false,
        };
        // The plan of a cancelled request is not used.
        let plan = graph.graph.plan(&request, self.cancel).unwrap_or_default();
        plan.cells.iter().map(|planned| planned.cell).collect()
    }

    /// Says whether the notebook's kernel lives.
    fn has_live_kernel(&self) -> bool {
        let state = self.file.project.state();
        let session = state.ok().and_then(|state| state.session(&self.file.key));
        session.is_some_and(|session| session.status == Status::Live)
    }
}

/// Returns of these cells the ones whose run needs no cell that is left out, with the cells that they need, and why
/// others are left out.
fn runnable(
    mut cells: BTreeSet<usize>,
    planned: &dyn Fn(&BTreeSet<usize>) -> BTreeSet<usize>,
    left_out: &dyn Fn(usize) -> Option<String>,
    downstream: &dyn Fn(&BTreeSet<usize>) -> BTreeSet<usize>,
) -> (BTreeSet<usize>, Option<String>) {
    let mut first = None;
    loop {
        let plan = planned(&cells);
        let reasons: BTreeMap<usize, String> = plan
            .iter()
            .filter_map(|cell| Some((*cell, left_out(*cell)?)))
            .collect();
        let Some(why) = reasons.values().next().cloned() else {
            return (plan, first);
        };
        first.get_or_insert(why);
        let out = downstream(&reasons.into_keys().collect());
        let before = cells.len();
        cells.retain(|cell| !out.contains(cell));
        // A cell that is needed again and left out is below the others.
        if cells.is_empty() || cells.len() == before {
            return (BTreeSet::new(), first);
        }
    }
}

/// A cell's text, and how often it ran.
type Key = (u64, usize);

fn source_hash(source: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    source.hash(&mut hasher);
    hasher.finish()
}

/// Which cells became out of date by a change, and were not run since. Pure.
#[derive(Debug, Default)]
struct Triggers {
    /// Each cell as it was at the last snapshot; none before the first.
    cells: Option<BTreeMap<String, Key>>,
    /// The cells that were out of date at the last snapshot.
    stale: BTreeSet<String>,
    /// The cells to run.
    open: BTreeSet<String>,
}

impl Triggers {
    /// Compares the cells (id, key, whether it is stale), in the notebook's order, with those of the last call.
    /// Returns the cells that became stale, and the stale cells below a new change.
    fn update(
        &mut self,
        cells: &[(String, Key, bool)],
        downstream: impl Fn(&BTreeSet<usize>) -> BTreeSet<usize>,
    ) -> Vec<String> {
        let now = cells.iter().map(|(id, key, _)| (id.clone(), *key));
        let before = self.cells.replace(now.collect());
        let changed = cells.iter().enumerate().filter(|(_, (id, key, _))| {
            let previous = before.as_ref().map(|before| before.get(id));
            previous.is_some_and(|previous| previous != Some(key))
        });
        let changed: BTreeSet<usize> = changed.map(|(at, _)| at).collect();
        let affected = downstream(&changed);
        let newly_stale = cells.iter().enumerate().filter(|(at, (id, _, is_stale))| {
            *is_stale && before.is_some() && (affected.contains(at) || !self.stale.contains(id))
        });
        let newly_stale: Vec<_> = newly_stale.map(|(_, (id, ..))| id.clone()).collect();
        let stale = cells.iter().filter(|(.., is_stale)| *is_stale);
        self.stale = stale.map(|(id, ..)| id.clone()).collect();
        self.open.extend(newly_stale.iter().cloned());
        self.open.retain(|id| self.stale.contains(id));
        newly_stale
    }

    /// Records that a cell needs no run until something changes.
    fn settled(&mut self, id: &str) {
        self.open.remove(id);
    }

    /// Records a run by this watch, which does not count as a change.
    fn ran(&mut self, id: &str, source: u64) {
        self.settled(id);
        if let Some((text, runs)) = self
            .cells
            .as_mut()
            .and_then(|previous| previous.get_mut(id))
            && *text == source
        {
            *runs += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each cell depends on the one above it.
    fn below(cells: &BTreeSet<usize>) -> BTreeSet<usize> {
        match cells.first() {
            Some(first) => (*first..10).collect(),
            None => BTreeSet::new(),
        }
    }

    fn update(triggers: &mut Triggers, cells: &[(u64, usize, bool)]) -> Vec<String> {
        let cells: Vec<_> = ["a", "b", "c"]
            .iter()
            .zip(cells)
            .map(|(id, (text, runs, is_stale))| ((*id).to_owned(), (*text, *runs), *is_stale))
            .collect();
        triggers.update(&cells, below)
    }

    #[test]
    fn what_was_stale_before_the_watch_is_not_run_and_what_failed_not_again() {
        let mut triggers = Triggers::default();
        assert!(update(&mut triggers, &[(1, 1, false), (2, 0, true)]).is_empty());
        assert!(triggers.open.is_empty());
        // An edit of the first cell concerns the second, which was stale already.
        let newly_stale = update(&mut triggers, &[(9, 1, true), (2, 0, true)]);
        assert_eq!(newly_stale, ["a", "b"]);
        triggers.ran("a", 9);
        triggers.ran("b", 2);
        // The second failed.
        assert!(update(&mut triggers, &[(9, 2, false), (2, 1, true)]).is_empty());
        assert!(triggers.open.is_empty());
        // Somebody else runs the first one: the second may work now.
        assert_eq!(update(&mut triggers, &[(9, 3, false), (2, 1, true)]), ["b"]);
        assert_eq!(triggers.open.len(), 1);
        // Somebody runs the second one.
        assert!(update(&mut triggers, &[(9, 3, false), (2, 2, false)]).is_empty());
        assert!(triggers.open.is_empty());
    }

    #[test]
    fn what_needs_a_cell_that_is_left_out_waits() {
        let planned = |cells: &BTreeSet<usize>| -> BTreeSet<usize> {
            match cells.last() {
                Some(last) => (0..=*last)
                    .filter(|at| *at > 0 || cells.contains(at))
                    .collect(),
                None => BTreeSet::new(),
            }
        };
        let run = |cells: &[usize], out: usize| {
            let left_out = |at: usize| (at == out).then(|| format!("{at} is out"));
            let cells = cells.iter().copied().collect();
            runnable(cells, &planned, &left_out, &below)
        };
        let (cells, why) = run(&[1, 2, 3], 9);
        assert_eq!((cells.len(), why), (3, None));
        let (cells, why) = run(&[1, 2, 3], 2);
        assert_eq!(
            (cells, why.unwrap()),
            (BTreeSet::from([1]), "2 is out".to_owned())
        );
        assert!(run(&[3], 2).0.is_empty());
    }
}
