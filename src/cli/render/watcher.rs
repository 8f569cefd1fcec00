//! Shows a job on the command line while it runs.

use std::cell::{Cell, OnceCell};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use crate::api::job::{JobEvent, JobObserver, PromptAnswer, describe, describe_wait};
use crate::api::outputs::OutputText;
use crate::cli::render::progress::Progress;
use crate::cli::render::{print, replay};
use crate::cli::terminal::{CtrlC, Lines};
use crate::execution::replay::Replay;
use crate::notebook::Document;
use crate::project::jobs::{Job, JobPrompt, JobState};

/// When outputs are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Printed {
    /// Once, with the answer.
    AtTheEnd,
    /// As they come.
    AsTheyCome,
    /// As they come, with everything else that happens, in JSON.
    Events,
}

/// The reader of what the command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// A program, which gets nothing beside the answer.
    Program,
    /// An agent, which gets lines on stderr.
    Agent,
    /// A person, who sees a progress line at the bottom of the terminal.
    Person,
}

/// How long a job is followed before its id is printed for a person: most jobs end sooner.
const ANNOUNCE_AFTER: Duration = Duration::from_millis(700);

/// The same for an agent, which reads every line, and finds its job without its id.
const ANNOUNCE_AFTER_FOR_AGENT: Duration = Duration::from_secs(5);

/// Shows a job while it runs, interrupts it on Ctrl-C, and asks its questions at the terminal.
pub(crate) struct Watcher {
    printed: Cell<Printed>,
    progress: Progress,
    /// Listens for Ctrl-C once a job is followed; until then Ctrl-C ends the program.
    ctrl_c: OnceCell<CtrlC>,
    /// The terminal's input, if questions can be asked.
    lines: Option<Lines>,
    prints_replay: bool,
    /// How long a job is followed before it is announced.
    announce_after: Duration,
    /// Whether the job, and the cell that it waits for, still have to be printed on stderr.
    announces_job: Cell<bool>,
    announces_wait: Cell<bool>,
}

impl Watcher {
    /// Begins to watch; `can_ask` says whether a person can answer questions.
    pub(crate) fn new(printed: Printed, reader: Reader, can_ask: bool) -> Self {
        let progress = Progress::new(reader == Reader::Person);
        // The progress line says the same.
        let announces = reader != Reader::Program && !progress.is_seen();
        Self {
            printed: Cell::new(printed),
            progress,
            ctrl_c: OnceCell::new(),
            lines: (can_ask && reader != Reader::Program).then(Lines::new),
            prints_replay: reader != Reader::Program || printed == Printed::Events,
            announce_after: match reader {
                Reader::Agent => ANNOUNCE_AFTER_FOR_AGENT,
                Reader::Program | Reader::Person => ANNOUNCE_AFTER,
            },
            announces_job: Cell::new(announces),
            announces_wait: Cell::new(announces),
        }
    }

    /// Does not print which job is followed: that was printed before.
    pub(crate) fn announces_no_job(&self) {
        self.announces_job.set(false);
    }

    /// Removes the progress line.
    pub(crate) fn end(&self) {
        self.progress.clear();
    }
}

impl JobObserver for Watcher {
    fn on_replay(&self, replay: &Replay, document: &Document, notebook: &Path) {
        if self.prints_replay {
            let lines = replay::lines(replay, document, notebook);
            lines.iter().for_each(|line| print::note(line));
        }
    }

    fn on_event(&self, event: &JobEvent<'_>) {
        match (self.printed.get(), event) {
            (Printed::Events, event) => {
                let _ = print::json(event);
            }
            (Printed::AsTheyCome, JobEvent::Output(event)) => {
                if let Some(output) = event.output() {
                    let _ = self.progress.above(|| print::streamed(output));
                }
            }
            _ => {}
        }
    }

    fn on_record(&self, job: &Job, last_line: &str) {
        self.progress.show(job, last_line);
        let age = Timestamp::now().duration_since(job.asked_at);
        let is_long = job.state != JobState::Done && age.unsigned_abs() > self.announce_after;
        if is_long && self.announces_job.replace(false) {
            print::note(&format!("job {} · {}", job.id, describe(job)));
        }
        if self.announces_wait.get()
            && let Some(behind) = describe_wait(job)
        {
            self.announces_wait.set(false);
            print::note(&format!("waiting behind {behind}"));
        }
    }

    fn can_answer(&self, _: &JobPrompt) -> bool {
        self.lines.is_some()
    }

    fn shows_outputs(&self) -> bool {
        true
    }

    async fn answer(&self, prompt: &JobPrompt, so_far: &[OutputText]) -> PromptAnswer {
        self.progress.clear();
        // A question may make no sense without the output before it.
        so_far.iter().for_each(|text| drop(print::both(text)));
        self.printed.set(Printed::AsTheyCome);
        let line = match &self.lines {
            Some(lines) => lines.ask(&prompt.prompt, prompt.password).await,
            None => None,
        };
        line.map_or(PromptAnswer::EndOfInput, PromptAnswer::Text)
    }

    fn on_answered(&self) {
        if let Some(lines) = &self.lines {
            lines.discard();
            print::note("(answered elsewhere)");
        }
    }

    async fn interrupted(&self) {
        if self.ctrl_c.get().is_none() {
            match CtrlC::listen() {
                Ok(ctrl_c) => drop(self.ctrl_c.set(ctrl_c)),
                Err(error) => print::note(&format!("nb: cannot handle Ctrl-C: {error}")),
            }
        }
        match self.ctrl_c.get() {
            Some(ctrl_c) => ctrl_c.pressed().await,
            None => std::future::pending().await,
        }
    }
}
