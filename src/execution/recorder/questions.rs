//! What cells ask whose front end has gone.
//!
//! The kernel asks whoever sent the cell: while that one's proxy lives, it passes the question on; one
//! that was asked before the proxy ended waits in the job's folder. The answer may come from anybody:
//! ipykernel takes the next one that arrives on stdin. What is asked after the proxy has ended nobody
//! hears; an answer that somebody gives unasked reaches the kernel all the same.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::Recorder;
use crate::client::{EOF, Event};
use crate::execution::run::{Audience as _, Prompt};
use crate::project::jobs::JobCell;
use crate::project::questions::Question;

/// How often is looked for a question.
const LOOK: Duration = Duration::from_millis(50);

/// How long an answer is waited for: a window that was closed must not keep the kernel from everybody
/// for ever.
const ANSWERED_WITHIN: Duration = Duration::from_secs(600);

/// A question that waits.
struct Waiting {
    question: Question,
    until: Instant,
}

/// The question that waits, if one does.
#[derive(Default)]
pub(super) struct Questions(Option<Waiting>);

impl Recorder<'_> {
    /// Waits for the next answer to what the cells ask, and returns it with its parent. Shows meanwhile
    /// what they ask. May be dropped halfway.
    pub(super) async fn next_answer(&self, questions: &mut Questions) -> (Bytes, String) {
        loop {
            let found = self.folder.question();
            let known = questions.0.as_ref().map(|waiting| &waiting.question);
            if found.as_ref() != known {
                if found.is_none() {
                    // The front end is back, and has answered itself.
                    self.answered();
                }
                questions.0 = found.map(|question| {
                    self.shows(&question);
                    let until = Instant::now() + ANSWERED_WITHIN;
                    Waiting { question, until }
                });
            }
            let reply = self.asked.replies.borrow_mut().pop_front();
            let is_late = |it: &Waiting| it.until <= Instant::now();
            let reply = reply.or_else(|| {
                let late = questions.0.as_ref().is_some_and(is_late);
                late.then(|| self.gives_up())
            });
            if let Some(text) = reply {
                self.folder.forget_question();
                let waiting = questions.0.take();
                let header =
                    waiting.map_or_else(|| "{}".to_owned(), |it| it.question.header.to_string());
                return (header.into(), text);
            }
            tokio::select! {
                () = self.asked.replied.notified() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    fn shows(&self, question: &Question) {
        let asks = |cell: &JobCell| cell.msg_id.as_ref() == Some(&question.msg_id);
        let at = self.job.borrow().cells.iter().position(asks);
        if let Some(at) = at {
            self.at.set(at);
        }
        self.sees(&Event::Prompt(Prompt {
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
        self.job(|job| job.notes.push(note));
        EOF.to_owned()
    }

    /// Says what becomes of what these cells ask from now on, where they may ask something.
    pub(super) fn tell_unheard_questions(&self) {
        let (leaves, asks) = {
            let job = self.job.borrow();
            let leaves = job.front_end.as_ref().is_some_and(|it| it.may_return);
            let mut left = job.cells.iter().filter(|cell| cell.status.is_none());
            (leaves, left.any(|cell| may_ask(&cell.code)))
        };
        if leaves && asks {
            self.job(|job| {
                let id = &job.id;
                let note = format!(
                    "what this code asks from now on goes to the window that is closed: nb reply {id} TEXT --force answers it unseen, nb interrupt {id} ends it"
                );
                job.notes.push(note);
            });
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
