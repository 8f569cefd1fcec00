//! What the kernel says of a job's cells, and what others ask of the job.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;

use super::{Never, Recorder};
use crate::client::Told;
use crate::notebook::{Document, Fold};
use crate::ops::company::whose;
use crate::ops::executions::reply;
use crate::ops::executions::run::{Audience, Event, Prompt};
use crate::project::jobs::{Ask, JobPrompt, JobState};
use crate::project::past;

/// How often it is looked whether somebody asked something.
const LOOK: Duration = Duration::from_millis(50);

/// What others ask of the job.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) interrupts: Notify,
    pub(super) interrupted: Cell<bool>,
    pub(super) replies: RefCell<VecDeque<String>>,
    pub(super) replied: Notify,
}

impl Recorder<'_> {
    /// Hears what others ask of the job.
    pub(super) async fn listen(&self) -> Never {
        loop {
            for (file, ask) in self.folder.asks() {
                match ask {
                    Ask::Interrupt { .. } => {
                        self.answered();
                        self.asked.interrupted.set(true);
                        self.asked.interrupts.notify_one();
                    }
                    Ask::Write => {
                        self.write_all().await;
                    }
                    Ask::Reply { text } => self.replied(text),
                    Ask::Secret { socket } => match reply::fetch(&socket).await {
                        Ok(text) => self.replied(text),
                        Err(error) => tracing::warn!(%error, "a password could not be fetched"),
                    },
                }
                self.folder.forget(&file);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn replied(&self, text: String) {
        self.answered();
        self.asked.replies.borrow_mut().push_back(text);
        self.asked.replied.notify_one();
    }

    /// Takes a question for answered, if there is one.
    pub(super) fn answered(&self) {
        if self.job.borrow().prompt.is_some() {
            self.job(|job| {
                job.state = JobState::Running;
                job.prompt = None;
            });
        }
    }
}

impl Recorder<'_> {
    /// Learns of an output widget that an earlier job made, before it takes what this one says.
    fn recall_widget(&self, msg_type: &str, content: &[u8]) {
        if msg_type != "comm_msg" {
            return;
        }
        let lacking = self.widgets.borrow().lacks(content);
        if let Some(id) = lacking {
            let text = std::fs::read(&self.job.borrow().path).ok();
            let document = text.and_then(|text| Document::parse(text).ok());
            self.widgets.borrow_mut().recall(&id, document.as_ref());
        }
    }
}

impl Audience for Recorder<'_> {
    fn sent(&self, msg_id: &str) {
        // Written down when the kernel begins with it, which is at once.
        if let Some(cell) = self.job.borrow_mut().cells.get_mut(self.at.get()) {
            cell.msg_id = Some(msg_id.to_owned());
        }
    }

    fn sees(&self, event: &Event) {
        let at = self.at.get();
        let now = Timestamp::now();
        let mut all = self.outputs.borrow_mut();
        let Some(recorded) = all.get_mut(at) else {
            return;
        };
        match event {
            Event::Begun => {
                self.widgets.borrow_mut().begin();
                recorded.busy = Some(now);
                // At once: whoever goes on for a recorder that was killed needs the request's id.
                self.job(|job| {
                    // A question comes on a socket of its own, and may be here before.
                    if job.prompt.is_none() {
                        job.state = JobState::Running;
                    }
                    job.behind = None;
                    job.behind_since = None;
                    job.cells[at].begun_at = Some(now);
                });
            }
            Event::Counted(count) => {
                recorded.input = Some(now);
                self.job_soon(|job| {
                    job.cells[at].input_at = Some(now);
                    job.cells[at].execution_count = Some(*count);
                });
            }
            Event::Prompt(prompt) => self.job(|job| {
                job.state = JobState::WaitingInput;
                job.prompt = Some(JobPrompt {
                    prompt: prompt.prompt.clone(),
                    password: prompt.password,
                });
            }),
            Event::Told(Told {
                msg_type,
                content,
                buffers,
            }) => {
                self.recall_widget(msg_type, content);
                let is_widgets = self.widgets.borrow_mut().take(msg_type, content, buffers);
                recorded.raised |= msg_type == "error";
                let fold = if is_widgets {
                    Fold::Changed
                } else {
                    recorded.folded.take(msg_type, content)
                };
                if fold == Fold::Nothing {
                    return;
                }
                if let Err(error) = self.events.borrow_mut().append(at, msg_type, content) {
                    let note = format!("not all that the kernel said is in the job: {error}");
                    self.job(|job| {
                        if !job.notes.contains(&note) {
                            job.notes.push(note);
                        }
                    });
                }
                let mut unwritten = self.unwritten.borrow_mut();
                unwritten.insert(at);
                if let Fold::Displayed { display_id, shown } = fold {
                    let mut is_own = all.get(at).is_some_and(|it| it.folded.shows(&display_id));
                    for (other, recorded) in all.iter_mut().enumerate() {
                        if other != at && recorded.folded.update(&display_id, &shown) {
                            is_own = true;
                            unwritten.insert(other);
                        }
                    }
                    self.takes_shown(&display_id, &shown, is_own);
                }
                self.changed.notify_one();
            }
        }
    }

    async fn answers(&self, _prompt: Prompt) -> Option<String> {
        loop {
            let reply = self.asked.replies.borrow_mut().pop_front();
            if reply.is_some() {
                return reply;
            }
            self.asked.replied.notified().await;
        }
    }

    fn waits(&self, behind: Option<&past::Cell>) {
        self.job(|job| {
            job.behind = Some(behind.map_or_else(|| "another client".to_owned(), whose));
            job.behind_since = behind.map(|cell| cell.since);
        });
    }

    async fn interrupts(&self) {
        let limit = {
            let (job, outputs) = (self.job.borrow(), self.outputs.borrow());
            let begun = outputs
                .get(self.at.get())
                .and_then(|recorded| recorded.busy);
            let limit = job.max_time.filter(|_| !self.asked.interrupted.get());
            limit.zip(begun).map(|(limit, begun)| {
                let ran = Timestamp::now().duration_since(begun).as_secs_f64();
                Duration::try_from_secs_f64((limit - ran).max(0.0)).unwrap_or(Duration::MAX)
            })
        };
        let too_long = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.asked.interrupts.notified() => {}
            () = too_long => {
                self.asked.interrupted.set(true);
                let seconds = self.job.borrow().max_time.unwrap_or_default();
                let note = format!("it ran longer than {seconds} s, and was interrupted");
                self.job(|job| job.notes.push(note));
            }
        }
    }
}
