//! Handles the input requests of cells whose front end has disconnected.
//!
//! The kernel sends an input request to the client that sent the cell. While that client's proxy runs,
//! it passes the request on; a request from before the proxy ended waits in the job's folder. Any
//! client may answer: ipykernel takes the next answer that arrives on stdin. A request to a proxy that was
//! killed is in the journal. Nobody receives requests
//! that the kernel sends after the proxy has ended, but an answer that an actor gives without being
//! asked reaches the kernel.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::observer::CHECK_INTERVAL;
use super::state::Recorder;
use crate::client::{EOF, ExecutionEvent};
use crate::execution::run::{Prompt, RunObserver as _};
use crate::project::FolderWatch;
use crate::project::jobs::{JobCell, JobPrompt};
use crate::project::questions::{QUESTION, Question};

/// How often to check for a question where the system reports no changes.
const POLL_PAUSE: Duration = Duration::from_millis(50);

/// How long to wait for an answer: a window that was closed must not block the kernel for everybody
/// for ever.
const ANSWERED_WITHIN: Duration = Duration::from_secs(600);

/// A question that waits for its answer.
struct Waiting {
    question: Question,
    until: Instant,
}

/// The question that waits for its answer, if there is one, and the watch for the next one.
pub(super) struct Questions {
    waiting: Option<Waiting>,
    watch: FolderWatch,
}

impl Recorder<'_> {
    /// Starts to watch for questions.
    pub(super) fn questions(&self) -> Questions {
        Questions {
            waiting: None,
            watch: FolderWatch::begin(&[self.folder.path()], POLL_PAUSE),
        }
    }

    /// Waits for the next answer to an input request, and returns it with its parent header. Shows the
    /// requests in the job's record. Cancel safe.
    pub(super) async fn next_answer(&self, questions: &mut Questions) -> (Bytes, String) {
        loop {
            let found = self.folder.question();
            let known = questions.waiting.as_ref().map(|waiting| &waiting.question);
            if found.as_ref() != known {
                if found.is_none() {
                    // The front end has returned and has answered itself.
                    self.answered();
                }
                questions.waiting = found.map(|question| {
                    self.shows(&question);
                    let until = Instant::now() + ANSWERED_WITHIN;
                    Waiting { question, until }
                });
            }
            let reply = self.replies.borrow_mut().pop_front();
            let is_late = |it: &Waiting| it.until <= Instant::now();
            let reply = reply.or_else(|| {
                let late = questions.waiting.as_ref().is_some_and(is_late);
                late.then(|| self.gives_up())
            });
            if let Some(text) = reply {
                self.folder.forget_question();
                let waiting = questions.waiting.take();
                let header =
                    waiting.map_or_else(|| "{}".to_owned(), |it| it.question.header.to_string());
                return (header.into(), text);
            }
            let is_question = |name: Option<&str>| name.is_none_or(|name| name == QUESTION);
            tokio::select! {
                () = self.replied.notified() => {}
                () = questions.watch.changed(is_question) => {}
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
            }
        }
    }

    fn shows(&self, question: &Question) {
        let asks = |cell: &JobCell| cell.msg_id.as_ref() == Some(&question.msg_id);
        let at = self.job.borrow().cells.iter().position(asks);
        if let Some(at) = at {
            self.at.set(at);
        }
        self.on_event(&ExecutionEvent::Prompt(Prompt {
            prompt: question.prompt.prompt.clone(),
            password: question.prompt.password,
            header: question.header.to_string().into(),
        }));
    }

    fn gives_up(&self) -> String {
        let minutes = ANSWERED_WITHIN.as_secs() / 60;
        let note = format!(
            "nobody answered its question within {minutes} minutes: it was told that there is no more input"
        );
        self.answered();
        self.note(note);
        EOF.to_owned()
    }

    /// Takes from the journal what a cell asked its front end before that front end's proxy was killed.
    pub(super) fn take_lost_question(&self) {
        let job = self.job.borrow();
        let Some(generation) = job.generation.filter(|_| job.front_end.is_some()) else {
            return;
        };
        let present = self.project.present(&job.session, generation);
        let Some((msg_id, prompt)) = present
            .running
            .and_then(|running| Some((running.msg_id, running.prompt?)))
        else {
            return;
        };
        let asks = |cell: &&JobCell| cell.msg_id.as_ref() == Some(&msg_id) && cell.status.is_none();
        let Some(cell) = job.cells.iter().find(asks) else {
            return;
        };
        let question = Question {
            prompt: JobPrompt {
                prompt,
                // It is numbered when it is asked.
                number: None,
                // The journal does not say whether the answer is shown.
                password: cell.code.contains("getpass"),
            },
            msg_id,
            header: serde_json::json!({}),
        };
        if self.folder.question().is_none()
            && let Err(error) = self.folder.pass_on(&question)
        {
            tracing::warn!(%error, "a question of the code could not be stored");
        }
    }

    /// Adds a note about later input requests of these cells, if they may send some.
    pub(super) fn note_lost_questions(&self) {
        let (may_return, may_ask_again) = {
            let job = self.job.borrow();
            let may_return = job.front_end.as_ref().is_some_and(|it| it.may_return);
            let mut left = job.cells.iter().filter(|cell| cell.status.is_none());
            (may_return, left.any(|cell| may_ask(&cell.code)))
        };
        if may_return && may_ask_again {
            let text = "what this code asks from now on goes to the window that is closed: a forced reply answers it unseen, an interrupt ends it";
            self.note(text.to_owned());
        }
    }
}

/// Says whether code seems to ask for input.
fn may_ask(code: &str) -> bool {
    let words = [
        "input(",
        "getpass(",
        "breakpoint(",
        "set_trace(",
        "%debug",
        "readline(",
    ];
    words.iter().any(|word| code.contains(word))
}
