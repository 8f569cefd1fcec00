//! The user at the terminal: Ctrl-C, and answers to questions of running code.

use std::cell::Cell;
use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::mpsc as blocking;

use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcsetattr,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Mutex, mpsc};

use crate::cli::Context;
use crate::cli::render::harmless::{Kind, harmless};
use crate::notebook::visible_output;

impl Context {
    /// Says whether a person at the terminal can answer questions.
    pub(crate) fn can_ask(&self) -> bool {
        self.caller.is_person && io::stdin().is_terminal() && io::stderr().is_terminal()
    }
}

/// A listener for Ctrl-C. Once it exists, Ctrl-C no longer ends the program, unless the runtime cannot wait
/// for signals.
pub(crate) struct CtrlC(Option<Mutex<Signal>>);

impl CtrlC {
    /// Begins to listen. Must be called inside a runtime.
    pub(crate) fn listen() -> io::Result<Self> {
        if !crate::cli::can_wait() {
            return Ok(Self(None));
        }
        Ok(Self(Some(Mutex::new(signal(SignalKind::interrupt())?))))
    }

    /// Waits for the next Ctrl-C; one since the last call counts.
    pub(crate) async fn pressed(&self) {
        let received = match &self.0 {
            Some(signal) => signal.lock().await.recv().await,
            None => None,
        };
        if received.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// Waits until nobody reads stdout any more. A program that writes rarely would not notice it by a failed write.
pub(crate) async fn reader_gone() {
    use rustix::event::{PollFd, PollFlags, poll};
    let (closed_sender, closed) = tokio::sync::oneshot::channel();
    // The thread ends with the program: a file or a terminal is never without a reader.
    std::thread::spawn(move || {
        let stdout = io::stdout();
        let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
        while poll(&mut polled, None) == Err(rustix::io::Errno::INTR) {}
        let _ = closed_sender.send(());
    });
    if closed.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Lines that the user types, one for each question.
///
/// Reading cannot be cancelled, so a thread does it. Nothing is read
/// ahead: later input belongs to the shell.
pub(crate) struct Lines {
    requests: blocking::Sender<()>,
    typed: Mutex<mpsc::UnboundedReceiver<Option<String>>>,
    /// Whether the thread reads for a question that is no longer open.
    reading: Cell<bool>,
}

impl Lines {
    pub(crate) fn new() -> Self {
        let (requests, received) = blocking::channel();
        let (typing, typed) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            while received.recv().is_ok() {
                if typing.send(line()).is_err() {
                    return;
                }
            }
        });
        Self {
            requests,
            typed: Mutex::new(typed),
            reading: Cell::new(false),
        }
    }

    /// Asks a question that is answered with yes or no; returns whether the answer is yes.
    pub(crate) async fn confirm(prompt: &str) -> bool {
        let answer = Self::new().ask(prompt, false).await;
        let answer = answer.unwrap_or_default().trim().to_ascii_lowercase();
        matches!(answer.as_str(), "y" | "yes")
    }

    /// Asks a question and waits for the answer; `None` is the end of the input. May be dropped halfway.
    pub(crate) async fn ask(&self, prompt: &str, is_secret: bool) -> Option<String> {
        let mut stderr = io::stderr();
        let _ = write!(stderr, "{}", harmless(&visible_output(prompt), Kind::Live));
        let _ = stderr.flush();
        let _hidden = is_secret.then(Hidden::new);
        if !self.reading.replace(true) {
            let _ = self.requests.send(());
        }
        let line = self.typed.lock().await.recv().await;
        self.reading.set(false);
        if is_secret {
            let _ = writeln!(stderr);
        }
        line.flatten()
    }

    /// Drops what was typed for a question that is no longer open: it would answer the next one.
    pub(crate) fn discard(&self) {
        let _ = tcflush(io::stdin(), QueueSelector::IFlush);
        let typed = self.typed.try_lock();
        if typed.is_ok_and(|mut typed| typed.try_recv().is_ok()) {
            self.reading.set(false);
        }
    }
}

/// Reads one line from stdin.
fn line() -> Option<String> {
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim_end_matches(['\n', '\r']).to_owned()),
    }
}

/// Turns off the terminal's echo until it is dropped.
struct Hidden(Option<Termios>);

impl Hidden {
    fn new() -> Self {
        let saved = tcgetattr(io::stdin()).ok();
        if let Some(saved) = &saved {
            let mut hidden = saved.clone();
            hidden.local_modes.remove(LocalModes::ECHO);
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &hidden);
        }
        Self(saved)
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        if let Some(saved) = &self.0 {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, saved);
        }
    }
}
