//! Being told at once that a job's folder has changed, where the system tells such things.

use std::path::Path;

use tokio::time::Instant;

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

    /// Waits for the next one; all that have come until then are one. News of a job may come in floods:
    /// nothing but its end is told before `rest`. May be dropped halfway.
    pub(super) async fn next(&mut self, rest: Instant) {
        if let Some(watch) = &mut self.0
            && watch.told(rest).await.is_ok()
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
    use tokio::time::Instant;

    use crate::project::jobs::{Told, told_in};

    /// The folder of a job, watched by the system.
    pub(super) struct Watch(AsyncFd<OwnedFd>);

    impl Watch {
        #[expect(
            deprecated,
            reason = "the successor is unsafe and asks that the descriptor stay open, which an OwnedFd grants"
        )]
        pub(super) fn begin(folder: &Path) -> io::Result<Self> {
            let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            // The record is replaced, the others grow.
            let how = WatchFlags::MOVED_TO | WatchFlags::MODIFY;
            inotify::add_watch(&watch, folder, how)?;
            Ok(Self(AsyncFd::with_interest(watch, Interest::READABLE)?))
        }

        pub(super) async fn told(&mut self, rest: Instant) -> io::Result<()> {
            let mut told = self.changed().await?;
            while told == Told::News {
                told = tokio::select! {
                    () = tokio::time::sleep_until(rest) => return Ok(()),
                    told = self.changed() => told?,
                };
            }
            Ok(())
        }

        async fn changed(&mut self) -> io::Result<Told> {
            loop {
                let mut ready = self.0.readable().await?;
                let mut room = [MaybeUninit::uninit(); 1024];
                let mut reader = Reader::new(ready.get_inner(), &mut room);
                let mut told = None;
                loop {
                    match reader.next() {
                        Ok(event) => {
                            let name = event.file_name().map(|name| name.to_string_lossy());
                            // Without a name: some were lost.
                            let of_file = name.map_or(Some(Told::Over), |name| told_in(&name));
                            told = told.max(of_file);
                        }
                        Err(Errno::WOULDBLOCK) => break,
                        Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                ready.clear_ready();
                if let Some(told) = told {
                    return Ok(told);
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::io;
    use std::path::Path;

    use tokio::time::Instant;

    pub(super) enum Watch {}

    impl Watch {
        pub(super) fn begin(_folder: &Path) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(super) async fn told(&mut self, _rest: Instant) -> io::Result<()> {
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
        let now = Instant::now();
        let write = |name: &str| std::fs::write(temp.path().join(name), "x").unwrap();
        // Whatever comes of these was there before the next one.
        write("lock");
        write(".nb-half");
        write("events.jsonl");
        signs.next(now).await;
        let told = tokio::time::timeout(Duration::from_millis(1), signs.next(now)).await;
        assert!(told.is_err(), "all that came was told at once");
        std::fs::rename(temp.path().join(".nb-half"), temp.path().join("job.json")).unwrap();
        signs.next(now).await;
    }

    #[tokio::test]
    async fn news_of_a_job_wait_and_its_end_does_not() {
        let temp = tempfile::tempdir().unwrap();
        let mut signs = Signs::of(temp.path());
        let rest = Instant::now() + Duration::from_millis(20);
        let write = |name: &str| std::fs::write(temp.path().join(name), "x").unwrap();
        write("events.jsonl");
        write(".nb-half");
        std::fs::rename(temp.path().join(".nb-half"), temp.path().join("job.json")).unwrap();
        signs.next(rest).await;
        assert!(Instant::now() >= rest);
        let rest = Instant::now() + Duration::from_secs(3600);
        write("events.jsonl");
        write("over");
        signs.next(rest).await;
        assert!(Instant::now() < rest);
    }

    #[tokio::test]
    async fn a_folder_that_is_gone_tells_nothing() {
        let temp = tempfile::tempdir().unwrap();
        assert!(!Signs::of(&temp.path().join("none")).come());
    }
}
