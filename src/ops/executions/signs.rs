//! Being told at once that a job's folder has changed, where the system tells such things.

use std::path::Path;

use imp::Watch;

/// Signs that something is new in a job's folder.
pub(super) struct Signs(Option<Watch>);

impl Signs {
    /// Watches for them from now on. Where the system does not tell, or not another one, none comes.
    pub(super) fn of(folder: &Path) -> Self {
        Self(Watch::begin(folder).ok())
    }

    /// Says whether they may come.
    pub(super) fn come(&self) -> bool {
        self.0.is_some()
    }

    /// Waits for the next one; all that have come until then are one. May be dropped halfway.
    pub(super) async fn next(&mut self) {
        if let Some(watch) = &mut self.0
            && watch.changed().await.is_ok()
        {
            return;
        }
        self.0 = None;
        std::future::pending::<()>().await;
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::path::Path;

    use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
    use rustix::io::Errno;
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use crate::project::jobs::is_told_in;

    /// The folder of a job, watched by the system.
    pub(super) struct Watch(AsyncFd<OwnedFd>);

    impl Watch {
        #[expect(
            deprecated,
            reason = "the successor is unsafe and asks that the descriptor stay open, which an OwnedFd grants"
        )]
        pub(super) fn begin(folder: &Path) -> io::Result<Self> {
            let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            // The record is replaced, the events grow.
            let how = WatchFlags::MOVED_TO | WatchFlags::MODIFY;
            inotify::add_watch(&watch, folder, how)?;
            Ok(Self(AsyncFd::with_interest(watch, Interest::READABLE)?))
        }

        pub(super) async fn changed(&mut self) -> io::Result<()> {
            loop {
                let mut ready = self.0.readable().await?;
                let mut room = [MaybeUninit::uninit(); 1024];
                let mut reader = Reader::new(ready.get_inner(), &mut room);
                let mut is_told = false;
                loop {
                    match reader.next() {
                        Ok(event) => {
                            // Without a name: some were lost.
                            let name = event.file_name().map(|name| name.to_string_lossy());
                            is_told |= name.is_none_or(|name| is_told_in(&name));
                        }
                        Err(Errno::WOULDBLOCK) => break,
                        Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                ready.clear_ready();
                if is_told {
                    return Ok(());
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::io;
    use std::path::Path;

    pub(super) enum Watch {}

    impl Watch {
        pub(super) fn begin(_folder: &Path) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(super) async fn changed(&mut self) -> io::Result<()> {
            match *self {}
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn what_a_recorder_writes_is_told_and_nothing_else() {
        let temp = tempfile::tempdir().unwrap();
        let mut signs = Signs::of(temp.path());
        assert!(signs.come());
        let write = |name: &str| std::fs::write(temp.path().join(name), "x").unwrap();
        // Whatever comes of these was there before the next one.
        write("lock");
        write(".nb-half");
        write("events.jsonl");
        signs.next().await;
        let told = tokio::time::timeout(Duration::from_millis(1), signs.next()).await;
        assert!(told.is_err(), "all that came was told at once");
        std::fs::rename(temp.path().join(".nb-half"), temp.path().join("job.json")).unwrap();
        signs.next().await;
    }

    #[tokio::test]
    async fn a_folder_that_is_gone_tells_nothing() {
        let temp = tempfile::tempdir().unwrap();
        assert!(!Signs::of(&temp.path().join("none")).come());
    }
}
