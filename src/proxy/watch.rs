//! A watch on `state.json`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use notify::{RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// How often to read it where no watch is possible.
const POLL: Duration = Duration::from_secs(1);

/// A watch that lasts until it is dropped.
pub(super) struct Watch {
    _watcher: Option<notify::RecommendedWatcher>,
    poll: Option<AbortHandle>,
}

impl Watch {
    /// Watches the project's folder: the file in it is replaced, not written.
    pub(super) fn begin(folder: &Path, look: &Arc<Notify>) -> Self {
        let told = Arc::clone(look);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let concerns = |event: notify::Event| {
                !event.kind.is_access()
                    && event.paths.iter().any(|path| path.ends_with("state.json"))
            };
            if event.map_or(true, concerns) {
                told.notify_one();
            }
        });
        let watched = watcher.and_then(|mut watcher| {
            watcher.watch(folder, RecursiveMode::NonRecursive)?;
            Ok(watcher)
        });
        match watched {
            Ok(watcher) => Self {
                _watcher: Some(watcher),
                poll: None,
            },
            Err(error) => {
                tracing::warn!(
                    "cannot watch {}: {error}; looking every second",
                    folder.display()
                );
                let look = Arc::clone(look);
                let poll = tokio::task::spawn_local(async move {
                    loop {
                        tokio::time::sleep(POLL).await;
                        look.notify_one();
                    }
                });
                Self {
                    _watcher: None,
                    poll: Some(poll.abort_handle()),
                }
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(poll) = &self.poll {
            poll.abort();
        }
    }
}
