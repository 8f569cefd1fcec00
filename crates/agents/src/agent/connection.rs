//! An agent's process and the lines that it exchanges with this program.
//!
//! | queue | limit | when it is full |
//! |---|---|---|
//! | a line of the agent | [`LONGEST_LINE`] | the connection ends, and the end says why |
//! | lines that nobody has taken | [`INCOMING_QUEUE`] | the agent's pipe fills, and the agent waits |
//! | lines to the agent | [`OUTGOING_QUEUE`] | the connection ends: the agent reads nothing |
//! | the agent's stderr | its last [`STDERR`] bytes | the bytes before them are dropped |

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

use super::program::program_on;
use super::protocol::{self, Call, Incoming};

/// The longest line that an agent may send: it has room for images.
const LONGEST_LINE: usize = 32 << 20;

/// How many messages are read ahead.
const INCOMING_QUEUE: usize = 64;

/// How many messages may wait for an agent that does not read.
const OUTGOING_QUEUE: usize = 256;

/// How much of the agent's stderr is kept, in bytes.
const STDERR: usize = 8 << 10;

/// How long an agent may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The command of an agent.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Launch {
    /// The name of the agent: what people call it, and under which it acts.
    pub name: String,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Its variables, in addition to those of this process.
    #[serde(default)]
    pub env: Vec<(String, String)>,
}

/// A running agent.
#[derive(Debug)]
pub(super) struct Connection {
    child: Child,
    group: Option<Pid>,
    outgoing: mpsc::Sender<String>,
    incoming: mpsc::Receiver<Incoming>,
    other_output: Arc<Mutex<OtherOutput>>,
    next_id: u64,
}

/// What an agent has written beside its messages.
#[derive(Debug, Default)]
struct OtherOutput {
    stderr: VecDeque<u8>,
    /// The beginning of the first line on stdout that was no message.
    other_line: Option<String>,
    other_lines: u64,
    /// Whether a line was too long.
    has_too_long_line: bool,
}

/// How an agent ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentEnd {
    /// How, in words.
    pub how: String,
    /// Its last lines on stderr.
    pub lines: Vec<String>,
}

impl Connection {
    /// Starts an agent.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(super) fn start(launch: &Launch, folder: &Path) -> io::Result<Self> {
        let (program, args) = launch
            .argv
            .split_first()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the command is empty"))?;
        let program = match program.contains('/') {
            true => PathBuf::from(program),
            false => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                let found = program_on(program, &path);
                found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?
            }
        };
        let mut child = Command::new(program)
            .args(args)
            .envs(launch.env.iter().map(|(name, value)| (name, value)))
            .env("NB_AS", &launch.name)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(id as i32));
        let other_output = Arc::<Mutex<OtherOutput>>::default();
        let (outgoing, lines) = mpsc::channel(OUTGOING_QUEUE);
        let (messages, incoming) = mpsc::channel(INCOMING_QUEUE);
        let piped = "all three are piped";
        let stdin = child.stdin.take().expect(piped);
        let stdout = child.stdout.take().expect(piped);
        let stderr = child.stderr.take().expect(piped);
        tokio::spawn(write_stdin(stdin, lines));
        tokio::spawn(read_stdout(stdout, messages, other_output.clone()));
        tokio::spawn(read_stderr(stderr, other_output.clone()));
        Ok(Self {
            child,
            group,
            outgoing,
            incoming,
            other_output,
            next_id: 1,
        })
    }

    /// Sends a request and returns its id; `None` if the agent reads nothing any more.
    pub(super) fn request(&mut self, call: Call<'_>) -> Option<u64> {
        let id = self.next_id;
        self.next_id += 1;
        self.send(protocol::request_line(id, call)).then_some(id)
    }

    /// Sends a line. Returns whether the agent reads.
    pub(super) fn send(&self, line: String) -> bool {
        self.outgoing.try_send(line).is_ok()
    }

    /// Returns the agent's next message; `None` at its end.
    pub(super) async fn next(&mut self) -> Option<Incoming> {
        self.incoming.recv().await
    }

    /// Ends the agent and everything in its process group. Returns how it ended.
    pub(super) async fn end(&mut self) -> AgentEnd {
        // An agent ends by itself when its stdin is closed.
        let (no_lines, _) = mpsc::channel(1);
        self.outgoing = no_lines;
        let status = match tokio::time::timeout(END_TIMEOUT, self.child.wait()).await {
            Ok(Ok(status)) => Some(status),
            _ => None,
        };
        self.signal(Signal::KILL);
        if status.is_none() {
            let _ = tokio::time::timeout(END_TIMEOUT, self.child.wait()).await;
        }
        self.describe_end(status)
    }

    fn describe_end(&self, status: Option<ExitStatus>) -> AgentEnd {
        use std::os::unix::process::ExitStatusExt;
        let other_output = lock(&self.other_output);
        let mut how = match status {
            _ if other_output.has_too_long_line => format!(
                "it sent a message of more than {} MiB, and nb ended it",
                LONGEST_LINE >> 20
            ),
            None => "it closed its output, and nb ended it".to_owned(),
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("it ended with exit code {code}"),
                (None, Some(signal)) => format!("it was ended by signal {signal}"),
                (None, None) => "it ended".to_owned(),
            },
        };
        if let Some(other_line) = &other_output.other_line {
            how.push_str(&format!(
                "; {} on its stdout were no messages, the first: {other_line}",
                match other_output.other_lines {
                    1 => "1 line".to_owned(),
                    count => format!("{count} lines"),
                }
            ));
        }
        AgentEnd {
            how,
            lines: other_output.last_lines(),
        }
    }

    /// Returns what is known of an agent that does not answer.
    pub(super) fn describe_silence(&self) -> AgentEnd {
        let other_output = lock(&self.other_output);
        AgentEnd {
            how: match &other_output.other_line {
                Some(other_line) => format!("its stdout has no messages, but: {other_line}"),
                None => "it says nothing".to_owned(),
            },
            lines: other_output.last_lines(),
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A process that has been waited for may have left children in its group, but its number can by then
        // belong to another one: `end` has seen to these.
        if self.child.id().is_some() {
            self.signal(Signal::KILL);
        }
    }
}

impl OtherOutput {
    /// Returns the last lines of stderr.
    fn last_lines(&self) -> Vec<String> {
        const LINES_MAX: usize = 12;
        let bytes: Vec<u8> = self.stderr.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let first = lines.len().saturating_sub(LINES_MAX);
        lines[first..]
            .iter()
            .map(|line| (*line).to_owned())
            .collect()
    }
}

fn lock(other_output: &Mutex<OtherOutput>) -> MutexGuard<'_, OtherOutput> {
    other_output.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn write_stdin(mut stdin: ChildStdin, mut lines: mpsc::Receiver<String>) {
    while let Some(line) = lines.recv().await {
        if stdin.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read_stdout(
    stdout: ChildStdout,
    messages: mpsc::Sender<Incoming>,
    other_output: Arc<Mutex<OtherOutput>>,
) {
    let mut stdout = BufReader::new(stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        match read_line(&mut stdout, &mut line, LONGEST_LINE).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                lock(&other_output).has_too_long_line = error.kind() == io::ErrorKind::FileTooLarge;
                return;
            }
        }
        let text = String::from_utf8_lossy(&line);
        if text.trim().is_empty() {
            continue;
        }
        let message = protocol::read(&text);
        if matches!(message, Incoming::Garbage) {
            let mut other_output = lock(&other_output);
            other_output.other_lines += 1;
            let beginning = || text.trim().chars().take(120).collect();
            other_output.other_line.get_or_insert_with(beginning);
            continue;
        }
        if messages.send(message).await.is_err() {
            return;
        }
    }
}

/// Reads a line. Returns whether there was one.
///
/// # Errors
/// Of the kind `FileTooLarge` where it is longer than `limit` bytes.
async fn read_line(
    from: &mut (impl AsyncBufReadExt + Unpin),
    line: &mut Vec<u8>,
    limit: usize,
) -> io::Result<bool> {
    loop {
        let bytes = from.fill_buf().await?;
        if bytes.is_empty() {
            return Ok(!line.is_empty());
        }
        let end = memchr::memchr(b'\n', bytes);
        let length = end.map_or(bytes.len(), |end| end + 1);
        line.extend_from_slice(&bytes[..length]);
        from.consume(length);
        if line.len() > limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if end.is_some() {
            return Ok(true);
        }
    }
}

/// Keeps the last bytes of the agent's stderr.
async fn read_stderr(mut stderr: ChildStderr, other_output: Arc<Mutex<OtherOutput>>) {
    let mut bytes = vec![0; 4096];
    while let Ok(count @ 1..) = stderr.read(&mut bytes).await {
        let mut other_output = lock(&other_output);
        other_output.stderr.extend(&bytes[..count]);
        let excess = other_output.stderr.len().saturating_sub(STDERR);
        other_output.stderr.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_without_an_end_is_not_read_for_ever() {
        let mut endless = BufReader::new(tokio::io::repeat(b'x'));
        let mut line = Vec::new();
        let read = read_line(&mut endless, &mut line, 1 << 20).await;
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(line.len() < (1 << 20) + (64 << 10), "{}", line.len());
    }

    #[tokio::test]
    async fn a_last_line_needs_no_end() {
        let mut text = BufReader::new(&b"one\ntwo"[..]);
        let mut lines = Vec::new();
        loop {
            let mut line = Vec::new();
            if !read_line(&mut text, &mut line, 10).await.unwrap() {
                break;
            }
            lines.push(line);
        }
        assert_eq!(lines, [b"one\n".to_vec(), b"two".to_vec()]);
    }
}
