//! Editors of the front end that speak the live protocol on a comm: each gets an `nb live` of its own.

use std::process::Stdio;
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

use super::Shell;
use crate::kernel::programs::nb_beside;
use crate::proxy::attachment::Attachment;
use crate::proxy::stored_outputs::HandOffScope;
use crate::route::EditorMessage;

/// How many editors are served at the same time. The comm of another one is closed.
const MOST_EDITORS: usize = 64;

/// How many messages of an editor may wait for its `nb live`. With more the comm is closed; the editor opens another one.
const MOST_WAITING: usize = 10_000;

/// How long no editor may be there before nobody looks at the cells: a page that reconnects opens another comm.
const RETURN_TIME: Duration = Duration::from_secs(2);

/// How long an `nb live` may take to end once its editor is gone.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The messages of an editor on their way to its `nb live`.
pub(super) type EditorQueue = mpsc::Sender<Value>;

impl Shell {
    /// Takes a message of an editor.
    pub(super) fn editor_message(&self, comm: String, message: EditorMessage) {
        let queue = self.editors.borrow().get(&comm).cloned();
        match (message, queue) {
            (EditorMessage::Opened, None) => self.open_editor(comm),
            // Another window has opened the same comm, which its messages name, too.
            (EditorMessage::Opened, Some(_)) => {}
            (EditorMessage::Data(data), Some(queue)) => {
                if queue.try_send(data).is_err() {
                    self.forget_editor(&comm);
                    self.close_editor(&comm, "nb live does not read");
                }
            }
            // It was opened at a proxy before this one, or its `nb live` has ended.
            (EditorMessage::Data(_), None) => self.close_editor(&comm, "the comm is not open"),
            (EditorMessage::Closed, Some(_)) => self.forget_editor(&comm),
            (EditorMessage::Closed, None) => {}
        }
    }

    /// An `nb live` has answered an editor. From now on it is known when the editor is gone, though the Jupyter server goes on
    /// reading outputs, for nobody: those of ended cells are kept until then.
    fn editor_answered(&self) {
        if !self.any_editor.replace(true)
            && let Some(attachment) = self.attachment()
        {
            attachment.outputs.set_pages(true);
        }
    }

    /// Forgets an editor. Once the last one is gone, and does not come back, its cells are handed to a recorder.
    fn forget_editor(&self, comm: &str) {
        self.editors.borrow_mut().remove(comm);
        if !self.editors.borrow().is_empty() || !self.any_editor.get() {
            return;
        }
        self.spawn(async |shell| {
            tokio::time::sleep(RETURN_TIME).await;
            let Some(attachment) = shell.attachment() else {
                return;
            };
            if !shell.editors.borrow().is_empty() || !shell.any_editor.replace(false) {
                return;
            }
            shell.last_page_is_gone(&attachment).await;
        });
    }

    /// Hands the cells of this front end to a recorder: no page shows them, though the Jupyter server keeps its connections.
    pub(super) async fn last_page_is_gone(&self, attachment: &Attachment) {
        tracing::info!("the last page was closed");
        attachment.outputs.set_pages(false);
        attachment.outputs.set_all_away();
        let scope = HandOffScope::Away;
        let prompted = attachment
            .outputs
            .hand_off(&attachment.target(), scope)
            .await;
        self.hand_over_prompts(&prompted);
    }

    fn open_editor(&self, comm: String) {
        if self.editors.borrow().len() >= MOST_EDITORS {
            return self.close_editor(&comm, "too many editors are open");
        }
        let (queue, messages) = mpsc::channel(MOST_WAITING);
        // Only the map holds it: its end is the end of the editor's input.
        let own = queue.downgrade();
        self.editors.borrow_mut().insert(comm.clone(), queue);
        self.spawn(async move |shell| {
            let served = shell.serve_editor(&comm, messages).await;
            let why = match served {
                Ok(()) => "nb live has ended".to_owned(),
                Err(error) => format!("{error:#}"),
            };
            // The entry is another one's if the comm was closed and opened again.
            let own = own.upgrade();
            let is_own = |it: &EditorQueue| own.as_ref().is_some_and(|own| it.same_channel(own));
            let is_open = shell.editors.borrow().get(&comm).is_some_and(is_own);
            if is_open {
                shell.forget_editor(&comm);
                tracing::info!("an editor is not served any more: {why}");
                shell.close_editor(&comm, &why);
            }
        });
    }

    fn close_editor(&self, comm: &str, why: &str) {
        self.route(|bridge, now| bridge.editor_closed(now, comm, why));
    }

    /// Passes messages between an editor and an `nb live`, until the editor closes its comm or the process ends.
    async fn serve_editor(
        self: &Rc<Self>,
        comm: &str,
        messages: mpsc::Receiver<Value>,
    ) -> anyhow::Result<()> {
        let (child, input, output) = start_live(&["--stdio"]).await?;
        let result = tokio::select! {
            result = write_lines(input, messages) => result,
            result = self.publish_lines(comm, output) => result,
        };
        end(child).await;
        result
    }

    async fn publish_lines(&self, comm: &str, output: ChildStdout) -> anyhow::Result<()> {
        let mut lines = BufReader::new(output).lines();
        while let Some(line) = lines.next_line().await? {
            let data: Value = serde_json::from_str(&line)?;
            self.editor_answered();
            self.route(|bridge, now| bridge.editor_message(now, comm, &data));
        }
        Ok(())
    }
}

/// Starts an `nb live`.
pub(super) async fn start_live(
    arguments: &[&str],
) -> anyhow::Result<(Child, ChildStdin, ChildStdout)> {
    let nb = tokio::task::spawn_blocking(nb_beside).await??;
    let mut child = Command::new(nb)
        .arg("live")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // Front ends interrupt a kernel by a signal to its group.
        .process_group(0)
        .spawn()?;
    match (child.stdin.take(), child.stdout.take()) {
        (Some(input), Some(output)) => Ok((child, input, output)),
        _ => anyhow::bail!("nb live has no pipes"),
    }
}

async fn write_lines(
    mut input: ChildStdin,
    mut messages: mpsc::Receiver<Value>,
) -> anyhow::Result<()> {
    while let Some(message) = messages.recv().await {
        let mut line = serde_json::to_vec(&message)?;
        line.push(b'\n');
        input.write_all(&line).await?;
    }
    Ok(())
}

/// Waits for the end of a process whose pipes are closed.
pub(super) async fn end(mut child: Child) {
    if tokio::time::timeout(END_TIMEOUT, child.wait())
        .await
        .is_err()
    {
        let _ = child.kill().await;
    }
}
