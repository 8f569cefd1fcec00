//! Series that recorders have taken over, while this process still passes on the kernel's prompts.

use super::series::Series;
use crate::project::jobs::JobFolder;
use crate::route::ClientId;

/// The jobs of all series that were handed over while this process goes on.
#[derive(Default)]
pub(super) struct HandedOff(Vec<HandedOffSeries>);

struct HandedOffSeries {
    msg_ids: Vec<String>,
    folder: JobFolder,
    /// The client whose open prompt the recorder answers.
    prompted_client: Option<ClientId>,
}

impl HandedOff {
    /// Adds a series that a recorder has taken over.
    pub(super) fn add(&mut self, series: Series) {
        let prompted_client = series.question.as_ref().map(|(client, _)| client.clone());
        let msg_ids = series.msg_ids();
        // Nothing is added to the folder any more, so its locks are released here.
        if let Some(stored) = series.folder.into_stored() {
            self.0.push(HandedOffSeries {
                msg_ids,
                folder: stored.folder,
                prompted_client,
            });
        }
    }

    /// Returns the job of a request.
    pub(super) fn job_of(&self, msg_id: &str) -> Option<JobFolder> {
        let is_of = |it: &&HandedOffSeries| it.msg_ids.iter().any(|id| id == msg_id);
        self.0.iter().find(is_of).map(|it| it.folder.clone())
    }

    /// Records that a job's recorder answers a client's prompt.
    pub(super) fn set_prompted_client(&mut self, job: &str, client: &ClientId) {
        let series = self.0.iter_mut().find(|it| it.folder.id() == job);
        if let Some(series) = series {
            series.prompted_client = Some(client.clone());
        }
    }

    /// Removes a job that has no recorder any more.
    pub(super) fn remove(&mut self, job: &str) {
        self.0.retain(|it| it.folder.id() != job);
    }

    /// Records that a client has answered; returns the jobs to which the prompt belonged.
    pub(super) fn end_prompt(&mut self, client: &ClientId) -> Vec<JobFolder> {
        let folder_of_prompt = |it: &mut HandedOffSeries| {
            let prompted = it.prompted_client.take_if(|it| it == client);
            prompted.map(|_| it.folder.clone())
        };
        self.0.iter_mut().filter_map(folder_of_prompt).collect()
    }
}
