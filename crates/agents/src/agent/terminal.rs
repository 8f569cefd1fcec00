//! Terminals: the commands that an agent runs through its client.
//!
//! A terminal ends with the turn at the latest, with all processes that its command has started. Its output is
//! bounded: the beginning is dropped. An agent can have [`TERMINALS_MAX`] terminals at once.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::sync::watch;

use super::protocol::{NewTerminal, TerminalExit};
use crate::kernel::process::command_tree::{TreeCommand, TreeReport};
use crate::kernel::process::detach;

/// How many terminals an agent may have at once.
const TERMINALS_MAX: usize = 32;

/// How much output is kept where the agent names no limit, and the most that it may name, in bytes.
const OUTPUT: usize = 1 << 20;
const MOST_OUTPUT: usize = 8 << 20;

/// How long a command may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(20);

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
    pub(super) async fn start(&self, new: &NewTerminal, folder: PathBuf) -> Result<String, String> {
        self.check_room()?;
        let started = Terminal::start(new, folder).await;
        // Other terminals may have been opened while the command was being started.
        self.check_room()?;
        let terminal = started.map_err(|error| format!("cannot start {}: {error}", new.command))?;
        self.count.set(self.count.get() + 1);
        let id = format!("terminal-{}", self.count.get());
        self.running
            .borrow_mut()
            .insert(id.clone(), Rc::new(terminal));
        Ok(id)
    }

    fn check_room(&self) -> Result<(), String> {
        match self.running.borrow().len() < TERMINALS_MAX {
            true => Ok(()),
            false => Err(format!(
                "{TERMINALS_MAX} terminals are open: release some of them first"
            )),
        }
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
    async fn start(new: &NewTerminal, folder: PathBuf) -> io::Result<Self> {
        // Some agents send a whole command line.
        let is_line = new.args.is_empty() && new.command.contains(char::is_whitespace);
        let (program, args) = match is_line {
            true => ("/bin/sh", vec!["-c".to_owned(), new.command.clone()]),
            false => (&*new.command, new.args.clone()),
        };
        let command = TreeCommand {
            program: program.to_owned(),
            args,
            env: new.env.clone(),
            folder,
        };
        let (supervisor, socket) = detach::command_supervisor()?;
        let mut supervisor = Command::from(supervisor);
        supervisor.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut helper = supervisor.spawn()?;
        // Its end of the socket: otherwise the end of the supervisor would not be noticed.
        drop(supervisor);
        socket.set_nonblocking(true)?;
        let (reports, mut commands) = UnixStream::from_std(socket)?.into_split();
        let (stdout, stderr) = (helper.stdout.take(), helper.stderr.take());
        let helper = helper.wait();
        let mut line = serde_json::to_vec(&command)?;
        line.push(b'\n');
        commands.write_all(&line).await?;
        let mut reports = BufReader::new(reports);
        let started = async {
            helper.await?;
            next_report(&mut reports).await
        };
        let started = tokio::time::timeout(START_TIMEOUT, started).await;
        match started.map_err(|_| io::ErrorKind::TimedOut)?? {
            TreeReport::Started => {}
            TreeReport::Failed(reason) => return Err(io::Error::other(reason)),
            TreeReport::Ended { .. } => return Err(io::ErrorKind::InvalidData.into()),
        }
        let limit = new.limit.and_then(|limit| usize::try_from(limit).ok());
        let output = Arc::new(Mutex::new(Output {
            bytes: VecDeque::new(),
            printed: 0,
            limit: limit.unwrap_or(OUTPUT).min(MOST_OUTPUT),
            is_cut: false,
        }));
        let readers = [
            tokio::spawn(copy(stdout, output.clone())),
            tokio::spawn(copy(stderr, output.clone())),
        ];
        let (exit_sender, exit) = watch::channel(None);
        let (kill, mut killed) = watch::channel(false);
        tokio::spawn(async move {
            // The socket stays open after the end of the command: what it has left in the background goes on until the
            // terminal is killed or dropped, which is an error here.
            let killed = async move {
                drop(killed.wait_for(|killed| *killed).await);
                drop(commands);
                std::future::pending::<()>().await;
            };
            let exit = async move {
                let exit = match next_report(&mut reports).await {
                    Ok(TreeReport::Ended { code, signal }) => exit_of(code, signal),
                    _ => TerminalExit::default(),
                };
                for reader in readers {
                    let _ = tokio::time::timeout(CLOSES_WITHIN, reader).await;
                }
                exit_sender.send_replace(Some(exit));
                // Its end.
                let _ = next_report(&mut reports).await;
            };
            tokio::select! {
                () = killed => {}
                () = exit => {}
            }
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

async fn next_report(reports: &mut (impl AsyncBufRead + Unpin)) -> io::Result<TreeReport> {
    let mut line = String::new();
    reports.read_line(&mut line).await?;
    Ok(serde_json::from_str(&line)?)
}

fn exit_of(code: Option<i32>, signal: Option<i32>) -> TerminalExit {
    TerminalExit {
        code: code.and_then(|code| u32::try_from(code).ok()),
        signal: signal.map(|signal| {
            let name = rustix::process::Signal::from_named_raw(signal);
            name.map_or(signal.to_string(), |it| {
                // It is written as a string: "Signal::KILL".
                format!("{it:?}")
                    .trim_matches('"')
                    .replace("Signal::", "SIG")
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

    fn ended(printed: &[u8], limit: usize, exit: TerminalExit) -> Terminal {
        let output = Output {
            bytes: printed.iter().copied().collect(),
            printed: printed.len() as u64,
            limit,
            is_cut: false,
        };
        Terminal {
            title: "a command".to_owned(),
            output: Arc::new(Mutex::new(output)),
            shown: Cell::new(0),
            exit: watch::channel(Some(exit)).1,
            kill: watch::channel(false).0,
        }
    }

    #[tokio::test]
    async fn output_is_bounded_at_its_beginning_and_no_character_is_halved() {
        let terminal = ended(b"", 5, exit_of(Some(3), None));
        copy(Some("ääää".as_bytes()), terminal.output.clone()).await;
        let (text, is_cut, exit) = terminal.output();
        assert_eq!((&*text, is_cut), ("ää", true));
        assert_eq!(exit.unwrap().code, Some(3));
        assert!(terminal.shown().ends_with("[exit code 3]"));
    }

    #[tokio::test]
    async fn an_agent_has_a_number_of_terminals() {
        let terminals = Terminals::default();
        for number in 0..TERMINALS_MAX {
            let terminal = Rc::new(ended(b"", OUTPUT, TerminalExit::default()));
            let mut running = terminals.running.borrow_mut();
            running.insert(number.to_string(), terminal);
        }
        let new = NewTerminal::default();
        let more = terminals.start(&new, std::env::temp_dir()).await;
        assert!(more.unwrap_err().contains("release"));
        assert_eq!(exit_of(None, Some(9)).signal.as_deref(), Some("SIGKILL"));
    }
}
