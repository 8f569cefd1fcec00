//! Pages of a Jupyter server without nb's extension: whether one is still open, while cells run.

use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};

use super::Shell;
use super::editors::{end, start_live};
use crate::activity::jupyter_server::{PAGE_CONNECTED, PAGES_GONE, is_launched_by_server};
use crate::kernel::variables::ProcessVariables;

/// How long cells run before the server is asked: shorter ones end before a person closes the page.
const SHORT_CELL: Duration = Duration::from_secs(1);

/// The pause between two checks whether outputs are stored.
const PAUSE: Duration = Duration::from_secs(1);

impl Shell {
    /// Watches the pages of the server that launched this proxy for as long as outputs of its cells are stored, unless an
    /// editor does so itself.
    pub(super) fn watch_pages(&self) {
        if self.any_editor.get() || self.watches_pages.replace(true) {
            return;
        }
        self.spawn(async |shell| {
            tokio::time::sleep(SHORT_CELL).await;
            if let Err(error) = shell.follow_pages().await {
                tracing::debug!("pages are not watched: {error:#}");
            }
            shell.watches_pages.set(false);
        });
    }

    async fn follow_pages(self: &Rc<Self>) -> anyhow::Result<()> {
        let file = self.launch.connection_file.file_stem().unwrap_or_default();
        let Some(kernel) = file.to_str().and_then(|name| name.strip_prefix("kernel-")) else {
            return Ok(());
        };
        let Some(attachment) = self.attachment().filter(|it| it.outputs.has_any()) else {
            return Ok(());
        };
        let by_server = tokio::task::spawn_blocking(|| is_launched_by_server(&ProcessVariables));
        if !by_server.await? {
            return Ok(());
        }
        let (child, input, output) = start_live(&["--pages", kernel]).await?;
        let mut lines = BufReader::new(output).lines();
        let mut check = tokio::time::interval(PAUSE);
        while attachment.outputs.has_any() && !self.any_editor.get() {
            let line = tokio::select! {
                line = lines.next_line() => line?,
                _ = check.tick() => continue,
            };
            match line.as_deref() {
                Some(PAGE_CONNECTED) => attachment.outputs.set_pages(true),
                Some(PAGES_GONE) => self.last_page_is_gone(&attachment).await,
                Some(_) => {}
                // The server does not say it.
                None => break,
            }
        }
        if !self.any_editor.get() {
            attachment.outputs.set_pages(false);
        }
        drop(input);
        end(child).await;
        Ok(())
    }
}
