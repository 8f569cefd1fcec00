//! The hand-off of series to recorders.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::series::{Folder, SeriesStage};
use super::{HandOffScope, StoredOutputs};
use crate::execution::lost;
use crate::project::jobs::{JobFolder, JobFrontEnd, JobState};
use crate::project::questions::Question;
use crate::proxy::storage::FileWork;
use crate::proxy::target::Target;
use crate::route::ClientId;

/// How long a recorder may take until it receives the kernel's messages. A Jupyter server kills processes
/// that have not ended within 2.5 s of its request. A proxy that goes on waits longer, but less than the recorder waits for
/// it.
const RECORDER_TIMEOUT_AT_END: Duration = Duration::from_millis(1500);
const RECORDER_TIMEOUT: Duration = Duration::from_secs(8);

/// How often the recorder's file is read until then.
const POLL: Duration = Duration::from_millis(2);

impl StoredOutputs {
    /// Passes a prompt on to the recorder of a job; returns whether the recorder will answer it.
    pub(in crate::proxy) async fn pass_on(
        &self,
        client: &ClientId,
        folder: JobFolder,
        question: Question,
    ) -> bool {
        let id = folder.id().to_owned();
        let permit = self.work.acquire().await;
        let passed = permit.run(move || {
            let has_recorder = folder.has_recorder();
            has_recorder.then(|| folder.pass_on(&question))
        });
        match passed.await.and_then(Option::transpose) {
            Ok(Some(())) => {
                self.handed_off
                    .borrow_mut()
                    .set_prompted_client(&id, client);
                true
            }
            Ok(None) => {
                self.handed_off.borrow_mut().remove(&id);
                false
            }
            Err(error) => {
                tracing::warn!("a prompt could not be passed on: {error}");
                false
            }
        }
    }

    /// Hands each of the chosen series over to a recorder. Returns the clients whose prompts the recorders
    /// have taken, when nothing more depends on this process.
    pub(in crate::proxy) async fn hand_off(
        &self,
        target: &Target,
        scope: HandOffScope<'_>,
    ) -> Vec<ClientId> {
        let mut prompted = Vec::new();
        let chosen = self.choose(scope);
        for number in chosen {
            let proxy_ends = matches!(scope, HandOffScope::All);
            match self.hand_off_one(target, number, proxy_ends).await {
                Ok(client) => prompted.extend(client),
                Err(error) => {
                    tracing::warn!(
                        "a running cell could not be handed off to a recorder: {error:#}"
                    );
                }
            }
            let mut running = self.running.borrow_mut();
            for series in running.extract_if(.., |series| series.number == number) {
                self.handed_off.borrow_mut().add(series);
            }
        }
        prompted
    }

    /// Marks the series that are handed over; returns their numbers.
    fn choose(&self, scope: HandOffScope<'_>) -> Vec<u64> {
        let mut numbers = Vec::new();
        for series in self.running.borrow_mut().iter_mut() {
            let has_ended = matches!(series.stage, SeriesStage::Unseen);
            let may_be_chosen = has_ended || series.stage.is_running();
            let is_running = series.any_cell_runs();
            let is_chosen = match scope {
                HandOffScope::Sessions(sessions) => {
                    sessions.contains(&series.session) && is_running
                }
                HandOffScope::Unseen => has_ended,
                HandOffScope::Away => has_ended || is_running && series.is_client_away,
                HandOffScope::All => has_ended || is_running,
            };
            if may_be_chosen && is_chosen {
                series.stage = SeriesStage::HandedOff {
                    has_ended,
                    received: HashSet::new(),
                };
                numbers.push(series.number);
            }
        }
        numbers
    }

    async fn hand_off_one(
        &self,
        target: &Target,
        number: u64,
        proxy_ends: bool,
    ) -> anyhow::Result<Option<ClientId>> {
        let timeout = match proxy_ends {
            true => RECORDER_TIMEOUT_AT_END,
            false => RECORDER_TIMEOUT,
        };
        let deadline = Instant::now() + timeout;
        self.with_series(number, |series| series.state = JobState::Running);
        self.write(number, target).await;
        let folder = self.adopt(target, number, proxy_ends).await?;
        lost::resume(&target.project, folder.id()).await?;
        // A recorder for cells that have ended receives no messages.
        let has_ended = self.with_series(number, |series| series.stage.has_ended());
        let is_whole =
            has_ended.unwrap_or(true) || self.wait_for_recorder(number, &folder, deadline).await;
        tracing::info!(
            job = folder.id(),
            "a recorder takes over the cells of {}{}",
            self.front_end,
            if is_whole {
                ""
            } else {
                ", and may have missed something"
            }
        );
        self.with_series(number, |series| series.set_whole(is_whole));
        self.write(number, target).await;
        // The client might have answered until now.
        let question = self
            .with_series(number, |series| series.question.clone())
            .flatten();
        let Some((client, question)) = question else {
            return Ok(None);
        };
        let permit = self.work.acquire().await;
        let passed_on = permit
            .run(move || folder.pass_on(&question))
            .await
            .flatten();
        let passed_on = passed_on
            .inspect_err(|error| tracing::warn!("a prompt could not be passed on: {error}"));
        Ok(passed_on.ok().map(|()| client))
    }

    /// Makes a job of a series.
    async fn adopt(
        &self,
        target: &Target,
        number: u64,
        proxy_ends: bool,
    ) -> anyhow::Result<JobFolder> {
        let permit = self.work.acquire().await;
        let stored = self.with_series(number, |series| series.folder.take());
        let Some(mut stored) = stored.flatten() else {
            anyhow::bail!("it cannot be written down");
        };
        stored.job.front_end = Some(JobFrontEnd {
            name: self.front_end.clone(),
            handed_at: Some(Timestamp::now()),
            whole: false,
            may_return: proxy_ends,
        });
        let project = target.project.clone();
        let adopted = permit.run(move || {
            let adopted = stored.adopt(&project);
            (stored, adopted)
        });
        let (stored, adopted) = adopted.await?;
        let folder = stored.folder.clone();
        self.with_series(number, |series| series.folder = Folder::Made(stored));
        adopted?;
        Ok(folder)
    }

    /// Waits until a recorder receives the kernel's messages; returns whether no message was missed.
    async fn wait_for_recorder(&self, number: u64, folder: &JobFolder, deadline: Instant) -> bool {
        // A separate instance, so that no other file work waits for it.
        let work = FileWork::default();
        let permit = work.acquire().await;
        let mut first = None;
        loop {
            if first.is_none() {
                let folder = folder.clone();
                first = permit.run(move || folder.ready()).await.ok().flatten();
            }
            let is_receiving = first.as_ref().is_some_and(|id| {
                let received = self.with_series(number, |series| series.stage.has_received(id));
                received.unwrap_or(true)
            });
            if is_receiving || Instant::now() > deadline {
                return is_receiving;
            }
            tokio::time::sleep(POLL).await;
        }
    }
}
