//! Watches on folders, which report at once that another process has changed a file.

use std::path::Path;
use std::time::Duration;

/// A watch on the files of folders, until it is dropped.
///
/// Linux reports each change (inotify). On other systems, and where no inotify watch is left, a change
/// is assumed after each `pace`. Changes by another machine, as in a shared folder, are never
/// reported.
///
/// Removing an inotify watch blocks for 5 to 15 ms, so shorter waits do not use one.
#[derive(Debug)]
pub struct FolderWatch {
    system: Option<system::Watch>,
    pace: Duration,
}

impl FolderWatch {
    /// Starts to watch folders. Must be called within a runtime.
    pub fn begin(folders: &[&Path], pace: Duration) -> Self {
        let system = system::Watch::begin(folders);
        let system = system.inspect_err(|error| tracing::debug!(%error, "no watch on a folder"));
        Self {
            system: system.ok(),
            pace,
        }
    }

    /// Waits until a wanted file has changed; several changes until then count as one. `is_wanted` gets
    /// the name of each changed file, or `None` if it is not known. Cancel safe.
    pub async fn changed(&mut self, mut is_wanted: impl FnMut(Option<&str>) -> bool) {
        if let Some(system) = &mut self.system {
            match system.changed(&mut is_wanted).await {
                Ok(()) => return,
                Err(error) => tracing::warn!(%error, "a watch on a folder has ended"),
            }
            self.system = None;
        }
        loop {
            tokio::time::sleep(self.pace).await;
            if is_wanted(None) {
                return;
            }
        }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::path::Path;

    use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
    use rustix::io::Errno;
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    #[derive(Debug)]
    pub(super) struct Watch(AsyncFd<OwnedFd>);

    impl Watch {
        #[expect(
            deprecated,
            reason = "the successor is unsafe and asks that the descriptor stay open, which an OwnedFd grants"
        )]
        pub(super) fn begin(folders: &[&Path]) -> io::Result<Self> {
            let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            // Some files are replaced, others are appended to.
            let moved = WatchFlags::MOVED_TO | WatchFlags::MOVED_FROM;
            let flags = moved | WatchFlags::MODIFY | WatchFlags::DELETE;
            for folder in folders {
                inotify::add_watch(&watch, *folder, flags)?;
            }
            Ok(Self(AsyncFd::with_interest(watch, Interest::READABLE)?))
        }

        pub(super) async fn changed(
            &mut self,
            is_wanted: &mut impl FnMut(Option<&str>) -> bool,
        ) -> io::Result<()> {
            loop {
                let mut ready = self.0.readable().await?;
                let mut buffer = [MaybeUninit::uninit(); 1024];
                let mut reader = Reader::new(ready.get_inner(), &mut buffer);
                let mut found = false;
                loop {
                    match reader.next() {
                        Ok(event) => {
                            // An event without a name: events were lost, or the folder was removed.
                            let name = event.file_name().map(|name| name.to_string_lossy());
                            found |= is_wanted(name.as_deref());
                        }
                        Err(Errno::WOULDBLOCK) => break,
                        Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                ready.clear_ready();
                if found {
                    return Ok(());
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;
    use std::path::Path;

    #[derive(Debug)]
    pub(super) enum Watch {}

    impl Watch {
        pub(super) fn begin(_: &[&Path]) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(super) async fn changed(
            &mut self,
            _: &mut impl FnMut(Option<&str>) -> bool,
        ) -> io::Result<()> {
            match *self {}
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    const NEVER: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn changes_of_wanted_files_are_reported_together_and_no_others() {
        let temp = tempfile::tempdir().unwrap();
        let other = temp.path().join("other");
        std::fs::create_dir(&other).unwrap();
        let mut watch = FolderWatch::begin(&[temp.path(), &other], NEVER);
        assert!(watch.system.is_some());
        let wanted = |name: Option<&str>| matches!(name, Some("a" | "b"));
        let write = |name: &str| std::fs::write(temp.path().join(name), "x").unwrap();
        for name in ["lock", ".nb-half", "a", "b"] {
            write(name);
        }
        watch.changed(wanted).await;
        let soon = Duration::from_millis(1);
        let more = tokio::time::timeout(soon, watch.changed(wanted)).await;
        assert!(more.is_err(), "it was all reported at once");
        std::fs::rename(temp.path().join(".nb-half"), other.join("a")).unwrap();
        watch.changed(wanted).await;
        std::fs::remove_file(temp.path().join("b")).unwrap();
        watch.changed(wanted).await;
    }

    #[tokio::test]
    async fn without_a_watch_a_change_is_assumed_at_intervals() {
        let temp = tempfile::tempdir().unwrap();
        let pace = Duration::from_millis(1);
        let mut watch = FolderWatch::begin(&[&temp.path().join("none")], pace);
        assert!(watch.system.is_none());
        watch.changed(|name| name.is_none()).await;
    }
}
