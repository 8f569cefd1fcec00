//! A page as an editor: each one gets an `nb live` of its own, which knows what is typed there and merges it with what others
//! write. Its lines go over the page's websocket.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::feed::live;
use super::server::WebServer;
use crate::kernel::programs::nb_beside;

/// How many lines may wait for the page, and for `nb live`. With more the editor ends; the page begins another one.
const WAITING_MAX: usize = 1024;

/// How long `nb live` may take to end once the page is gone.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// An `nb live`, which ends with this.
pub(super) struct PageEditor {
    input: mpsc::Sender<Vec<u8>>,
    /// Its lines, as messages to the page.
    output: mpsc::Receiver<Utf8Bytes>,
}

impl PageEditor {
    /// Starts an `nb live` for a page whose person acts under this name.
    ///
    /// # Errors
    /// It cannot be started.
    async fn start(name: &str) -> io::Result<Self> {
        let nb = tokio::task::spawn_blocking(nb_beside).await?;
        let mut child = Command::new(nb.map_err(io::Error::other)?)
            .args(["live", "--stdio"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // It ends by itself when this process does.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let (input, lines) = mpsc::channel(WAITING_MAX);
        let (to_page, output) = mpsc::channel(WAITING_MAX);
        tokio::spawn(async move {
            tokio::select! {
                _ = write_lines(stdin, lines) => {}
                () = read_lines(BufReader::new(stdout), to_page) => {}
            }
            // It removes its record of what is unsaved.
            let _ = timeout(END_TIMEOUT, child.wait()).await;
        });
        // The name of the person at an editor is made of the editor's.
        let editor = name.strip_prefix("human (");
        let editor = editor.and_then(|it| it.strip_suffix(')')).unwrap_or(name);
        let first =
            json!({"type": "initialize", "editor": editor, "can": ["change", "only_texts"]});
        let mut editor = Self { input, output };
        editor.send(&first)?;
        Ok(editor)
    }

    fn send(&mut self, line: &Value) -> io::Result<()> {
        let mut line = serde_json::to_vec(line)?;
        line.push(b'\n');
        let sent = self.input.try_send(line);
        sent.map_err(|_| io::Error::other("nb live does not read"))
    }
}

/// Returns the next message of the editor to its page, `None` if it has ended; never if there is none.
pub(super) async fn next_line(editor: &mut Option<PageEditor>) -> Option<Utf8Bytes> {
    match editor {
        Some(editor) => editor.output.recv().await,
        None => std::future::pending().await,
    }
}

/// Takes a message of a page to its editor, which the first one starts. An editor that fails is dropped: returns false.
pub(super) async fn take(editor: &mut Option<PageEditor>, text: &str, server: &WebServer) -> bool {
    let Ok(mut message) = serde_json::from_str::<Map<String, Value>>(text) else {
        return true;
    };
    // What it can do is known here.
    if message.get("type").and_then(Value::as_str) == Some("initialize") {
        return true;
    }
    let taken = async {
        if let Some(id) = message.get("notebook") {
            let path = server.notebook(id.as_str().unwrap_or_default());
            let path = path.map_err(|problem| io::Error::other(problem.message))?;
            message.insert("notebook".to_owned(), json!(path));
        }
        if editor.is_none() {
            *editor = Some(PageEditor::start(server.name()).await?);
        }
        let line = Value::Object(message);
        editor.as_mut().map_or(Ok(()), |editor| editor.send(&line))
    };
    if let Err(error) = taken.await {
        tracing::warn!(%error, "what is typed on a page is not known before it is saved");
        *editor = None;
        return false;
    }
    true
}

async fn write_lines(mut stdin: ChildStdin, mut lines: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    while let Some(line) = lines.recv().await {
        stdin.write_all(&line).await?;
    }
    Ok(())
}

async fn read_lines(output: impl AsyncBufRead + Unpin, to_page: mpsc::Sender<Utf8Bytes>) {
    let mut lines = output.lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(message) = serde_json::from_str::<Box<RawValue>>(&line) else {
            return;
        };
        if to_page.try_send(live(message)).is_err() {
            return;
        }
    }
}
