//! A watch on `state.json`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::project::FolderWatch;

/// How often the file is checked where no watch is possible.
const POLL: Duration = Duration::from_secs(1);

/// A watch that lasts until it is dropped.
pub(super) struct Watch(AbortHandle);

impl Watch {
    /// Watches the project's folder, because the file in it is replaced rather than written.
    pub(super) fn begin(folder: &Path, changed: &Arc<Notify>) -> Self {
        let mut watch = FolderWatch::begin(&[folder], POLL);
        let changed = Arc::clone(changed);
        let watching = tokio::task::spawn_local(async move {
            loop {
                let is_state = |name: Option<&str>| name.is_none_or(|name| name == "state.json");
                watch.changed(is_state).await;
                changed.notify_one();
            }
        });
        Self(watching.abort_handle())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}
