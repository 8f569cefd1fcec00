//! Terminals: the commands that an agent runs through its client.
//!
//! A terminal ends with the turn at the latest, with everything in its process group. Its output is bounded:
//! the beginning is dropped. An agent can have [`MOST`] terminals at once.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::process::Stdio;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use super::protocol::{NewTerminal, TerminalExit};

/// How many terminals an agent may have at once.
const MOST: usize = 32;

/// How much output is kept where the agent names no limit, and the most that it may name, in bytes.
const OUTPUT: usize = 1 << 20;
const MOST_OUTPUT: usize = 8 << 20;

/// How long the output of a command that has ended may stay open.
const CLOSES_WITHIN: Duration = Duration::from_millis(500);

/// The terminals of one agent.
#[derive(Debug, Default)]
pub(super) struct Terminals {
    running: RefCell<HashMap<String, Rc<Terminal>>>,
    count: Cell<u64>,
}

/// A command that runs or has run.
#[derive(Debug)]
pub(super) struct Terminal {
    /// The command, for the person.
    pub(super) title: String,
    output: Arc<Mutex<Output>>,
    /// How many bytes had been printed when the person was shown the output last.
    shown: Cell<u64>,
    exit: watch::Receiver<Option<TerminalExit>>,
    /// Is dropped with the terminal, which kills the command too.
    kill: watch::Sender<bool>,
}

/// The end of a command's output.
#[derive(Debug)]
struct Output {
    bytes: VecDeque<u8>,
    /// How many bytes were printed in all.
    printed: u64,
    limit: usize,
    is_cut: bool,
}

impl Terminals {
    /// Starts a command in a folder and returns the terminal's id.
    ///
    /// # Errors
    /// There are too many terminals, or the command cannot be started.
    pub(super) fn start(&self, new: &NewTerminal, folder: PathBuf) -> Result<String, String> {
        if self.running.borrow().len() >= MOST {
            return Err(format!(
                "{MOST} terminals are open: release some of them first"
            ));
        }
        let started = Terminal::start(new, folder);
        let terminal = started.map_err(|error| format!("cannot start {}: {error}", new.command))?;
        self.count.set(self.count.get() + 1);
        let id = format!("terminal-{}", self.count.get());
        self.running
            .borrow_mut()
            .insert(id.clone(), Rc::new(terminal));
        Ok(id)
    }

    /// Returns a terminal.
    ///
    /// # Errors
    /// There is none with this id, or no longer.
    pub(super) fn get(&self, id: &str) -> Result<Rc<Terminal>, String> {
        let found = self.running.borrow().get(id).cloned();
        found.ok_or_else(|| format!("there is no terminal {id:?}"))
    }

    /// Returns whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.running.borrow().is_empty()
    }

    /// Returns what the terminals show that have printed something since the last call.
    pub(super) fn take_changed(&self) -> Vec<(String, String)> {
        let running = self.running.borrow();
        let changed = running.iter().filter(|(_, terminal)| {
            let printed = terminal.printed();
            terminal.shown.replace(printed) != printed
        });
        changed
            .map(|(id, terminal)| (id.clone(), terminal.shown()))
            .collect()
    }

    /// Ends a terminal and forgets it.
    pub(super) fn release(&self, id: &str) {
        if let Some(terminal) = self.running.borrow_mut().remove(id) {
            terminal.kill();
        }
    }

    /// Ends all commands.
    pub(super) fn kill_all(&self) {
        let running = self.running.borrow();
        running.values().for_each(|terminal| terminal.kill());
    }

    /// Ends all terminals and forgets them. Returns what they have shown.
    pub(super) fn release_all(&self) -> Vec<(String, String)> {
        let all = self.running.borrow_mut().drain().collect::<Vec<_>>();
        let shown = all.iter().map(|(id, terminal)| {
            let text = terminal.shown();
            terminal.kill();
            (id.clone(), text)
        });
        shown.collect()
    }
}

impl Terminal {
    fn start(new: &NewTerminal, folder: PathBuf) -> std::io::Result<Self> {
        // Some agents send a whole command line.
        let is_line = new.args.is_empty() && new.command.contains(char::is_whitespace);
        let (program, args) = match is_line {
            true => ("/bin/sh", vec!["-c".to_owned(), new.command.clone()]),
            false => (&*new.command, new.args.clone()),
        };
        let mut child = Command::new(program)
            .args(&args)
            .envs(new.env.iter().map(|(name, value)| (name, value)))
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let limit = new.limit.and_then(|limit| usize::try_from(limit).ok());
        let output = Arc::new(Mutex::new(Output {
            bytes: VecDeque::new(),
            printed: 0,
            limit: limit.unwrap_or(OUTPUT).min(MOST_OUTPUT),
            is_cut: false,
        }));
        let readers = [
            tokio::spawn(copy(child.stdout.take(), output.clone())),
            tokio::spawn(copy(child.stderr.take(), output.clone())),
        ];
        let (exit_sender, exit) = watch::channel(None);
        let (kill, killed) = watch::channel(false);
        tokio::spawn(async move {
            let exit = supervise(child, killed).await;
            for reader in readers {
                let _ = tokio::time::timeout(CLOSES_WITHIN, reader).await;
            }
            exit_sender.send_replace(Some(exit));
        });
        let command_line = std::iter::once(&new.command).chain(&new.args);
        let command_line: Vec<_> = command_line.map(String::as_str).collect();
        Ok(Self {
            title: command_line.join(" "),
            output,
            shown: Cell::new(0),
            exit,
            kill,
        })
    }

    /// Returns the output so far, whether its beginning is missing, and the exit if the command has ended.
    pub(super) fn output(&self) -> (String, bool, Option<TerminalExit>) {
        let exit = self.exit.borrow().clone();
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = output.bytes.iter().copied().collect();
        // A cut may have left the rest of a character at the beginning.
        let is_continuation = |byte: &&u8| output.is_cut && **byte & 0xC0 == 0x80;
        let skipped = bytes.iter().take(3).take_while(is_continuation).count();
        let text = String::from_utf8_lossy(&bytes[skipped..]).into_owned();
        (text, output.is_cut, exit)
    }

    fn printed(&self) -> u64 {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        output.printed
    }

    /// Returns the command and its output, for the person.
    pub(super) fn shown(&self) -> String {
        let (output, is_cut, exit) = self.output();
        let mut text = format!("$ {}\n", self.title);
        if is_cut {
            text.push_str("…\n");
        }
        text.push_str(&output);
        match exit {
            Some(TerminalExit { code: Some(0), .. }) | None => {}
            Some(TerminalExit { code, signal }) => {
                if !text.ends_with('\n') {
                    text.push('\n');
                }
                text.push_str(&match (code, signal) {
                    (Some(code), _) => format!("[exit code {code}]"),
                    (None, Some(signal)) => format!("[signal {signal}]"),
                    (None, None) => "[ended]".to_owned(),
                });
            }
        }
        text
    }

    /// Waits for the end of the command.
    pub(super) async fn exit(&self) -> TerminalExit {
        let mut exit = self.exit.clone();
        match exit.wait_for(Option::is_some).await {
            Ok(exit) => exit.clone().unwrap_or_default(),
            Err(_) => TerminalExit::default(),
        }
    }

    /// Kills the command.
    pub(super) fn kill(&self) {
        self.kill.send_replace(true);
    }
}

/// Waits for a command's end; kills its group if that is asked for.
async fn supervise(mut child: Child, mut killed: watch::Receiver<bool>) -> TerminalExit {
    use std::os::unix::process::ExitStatusExt;
    let group = child.id().and_then(|id| Pid::from_raw(id as i32));
    // An error is a terminal that was dropped.
    let killed = async move { drop(killed.wait_for(|killed| *killed).await) };
    let status = tokio::select! {
        status = child.wait() => Some(status),
        () = killed => None,
    };
    let status = match status {
        Some(status) => status,
        None => {
            if let Some(group) = group {
                let _ = kill_process_group(group, Signal::KILL);
            }
            child.wait().await
        }
    };
    let Ok(status) = status else {
        return TerminalExit::default();
    };
    TerminalExit {
        code: status.code().and_then(|code| u32::try_from(code).ok()),
        signal: status.signal().map(|signal| {
            let name = rustix::process::Signal::from_named_raw(signal);
            name.map_or(signal.to_string(), |it| {
                format!("{it:?}").replace("Signal::", "SIG")
            })
        }),
    }
}

async fn copy(from: Option<impl AsyncRead + Unpin>, output: Arc<Mutex<Output>>) {
    let Some(mut from) = from else {
        return;
    };
    let mut bytes = vec![0; 16 << 10];
    while let Ok(count) = from.read(&mut bytes).await {
        if count == 0 {
            return;
        }
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        output.bytes.extend(&bytes[..count]);
        output.printed += count as u64;
        let excess = output.bytes.len().saturating_sub(output.limit);
        if excess > 0 {
            output.bytes.drain(..excess);
            output.is_cut = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(command: &str, limit: Option<u64>) -> NewTerminal {
        NewTerminal {
            command: command.to_owned(),
            limit,
            ..NewTerminal::default()
        }
    }

    fn started(terminals: &Terminals, new: &NewTerminal) -> Rc<Terminal> {
        let id = terminals.start(new, std::env::temp_dir()).unwrap();
        terminals.get(&id).unwrap()
    }

    #[tokio::test]
    async fn output_is_bounded_at_its_beginning_and_no_character_is_halved() {
        let terminals = Terminals::default();
        let new = line("printf '%s' ääää; exit 3", Some(5));
        let terminal = started(&terminals, &new);
        let exit = terminal.exit().await;
        assert_eq!(exit.code, Some(3));
        let (text, is_cut, _) = terminal.output();
        assert_eq!((&*text, is_cut), ("ää", true));
        assert!(terminal.shown().ends_with("[exit code 3]"));
    }

    #[tokio::test]
    async fn a_command_and_its_children_end_with_the_terminal() {
        let terminals = Terminals::default();
        let terminal = started(&terminals, &line("sleep 1000 & sleep 1000; true", None));
        terminals.release_all();
        let exit = terminal.exit().await;
        assert_eq!((exit.code, exit.signal.is_some()), (None, true));
        assert!(terminals.get("terminal-1").is_err());
    }

    #[tokio::test]
    async fn what_is_no_command_is_an_error() {
        let terminals = Terminals::default();
        for command in ["/does/not/exist", "", "\0"] {
            let started = terminals.start(&line(command, None), std::env::temp_dir());
            assert!(started.is_err(), "{command:?}");
        }
        let running: Vec<_> = (0..MOST)
            .map(|_| started(&terminals, &line("sleep 1000", None)))
            .collect();
        let more = terminals.start(&line("sleep 1000", None), std::env::temp_dir());
        assert!(more.unwrap_err().contains("release"));
        terminals.release_all();
        for terminal in running {
            terminal.exit().await;
        }
    }
}
