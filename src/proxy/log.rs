//! `proxy.log`: one file of the project, appended by all of its proxies.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use crate::project::{Lock, Project, beneath};

/// Over this size the log is set aside as `proxy.log.1` at the next launch.
const ROTATE_BYTES: u64 = 5 << 20;

/// How many bytes of log lines wait for the project to be known.
const WAITING_BYTES: usize = 64 << 10;

/// How many lines wait at most for a disk that is slow; those that come then are lost, and counted.
const WAITING: usize = 500;

/// Where the lines go.
enum Sink {
    /// Which project's log it will be is not known yet: under VS Code, its traffic names the notebook.
    Waiting(Vec<u8>),
    /// Another thread writes them; [`close`] waits for it.
    File(NonBlocking, WorkerGuard),
}

/// The sink that every event of this process goes to.
#[derive(Clone)]
struct Lines(Arc<Mutex<Sink>>);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Sink::Waiting(lines) if lines.len() + line.len() > WAITING_BYTES => Ok(line.len()),
            Sink::Waiting(lines) => lines.write(line),
            Sink::File(lines, _) => lines.write(line),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// This process's log.
struct Log {
    lines: Lines,
    /// Chooses the level anew.
    set_level: Box<dyn Fn(EnvFilter) + Send + Sync>,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// Begins to take events; they wait until [`open`] says where they go.
///
/// `NB_LOG` chooses the level (`debug` shows every message's type, `trace` its frames' lengths).
pub(super) fn begin() {
    LOG.get_or_init(|| {
        let lines = Lines(Arc::new(Mutex::new(Sink::Waiting(Vec::new()))));
        let writer = lines.clone();
        let pid = std::process::id();
        let builder = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_target(false)
            // On a full disk it would say so on stderr for each line, which a Jupyter server shows.
            .log_internal_errors(false)
            .with_timer(Clock { pid })
            .with_writer(move || writer.clone())
            .with_env_filter(level(None))
            .with_filter_reloading();
        let handle = builder.reload_handle();
        let subscriber = builder.finish();
        // Only a test that runs two proxies in one process has a subscriber already.
        let _ = tracing::subscriber::set_global_default(subscriber);
        Log {
            lines,
            set_level: Box::new(move |filter| {
                let _ = handle.reload(filter);
            }),
        }
    });
}

/// Lets the lines go to the project's log, those that waited first.
///
/// `wanted` is the project's own wish for the level.
pub(super) fn open(project: &Project, wanted: Option<&str>) -> io::Result<()> {
    let path = project.proxy_log();
    rotate(&path)?;
    // Made private and found to be a regular file of this user's before the appender opens it.
    drop(beneath::append(&path)?);
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("the log has no folder"));
    };
    let mut file = tracing_appender::rolling::never(folder, name);
    let Some(log) = LOG.get() else { return Ok(()) };
    {
        let mut sink = log.lines.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Sink::Waiting(lines) = &*sink {
            file.write_all(lines)?;
        }
        let lines = NonBlockingBuilder::default().buffered_lines_limit(WAITING);
        let (lines, guard) = lines.finish(file);
        *sink = Sink::File(lines, guard);
    }
    if let Some(wanted) = wanted {
        (log.set_level)(level(Some(wanted)));
    }
    Ok(())
}

/// Waits until the lines are written, for a second at most. Those that come after are not written.
pub(super) fn close() {
    let Some(log) = LOG.get() else { return };
    let mut sink = log.lines.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Sink::File(lines, guard) = std::mem::replace(&mut *sink, Sink::Waiting(Vec::new())) {
        drop(sink);
        let lost = lines.error_counter().dropped_lines();
        drop(guard);
        if lost > 0 {
            eprintln!("nb-proxy: {lost} lines of its log are lost: the disk was too slow");
        }
    }
}

fn level(wanted: Option<&str>) -> EnvFilter {
    match wanted {
        Some(wanted) => EnvFilter::try_new(wanted).ok(),
        None => EnvFilter::try_from_env("NB_LOG").ok(),
    }
    .unwrap_or_else(|| EnvFilter::new("info"))
}

/// Sets a large log aside, under a lock: several proxies may be launched at once.
fn rotate(path: &Path) -> io::Result<()> {
    if beneath::metadata(path).map_or(0, |data| data.len()) <= ROTATE_BYTES {
        return Ok(());
    }
    // Whoever has it sets the log aside.
    let Some(_lock) = Lock::attempt(&path.with_extension("log.lock"))? else {
        return Ok(());
    };
    if beneath::metadata(path)?.len() > ROTATE_BYTES {
        beneath::rename(path, &path.with_extension("log.1"))?;
    }
    Ok(())
}

/// The time in UTC and the proxy's pid: several proxies write into one file.
struct Clock {
    pid: u32,
}

impl tracing_subscriber::fmt::time::FormatTime for Clock {
    fn format_time(
        &self,
        writer: &mut tracing_subscriber::fmt::format::Writer<'_>,
    ) -> std::fmt::Result {
        write!(writer, "{:.3} [{}]", jiff::Timestamp::now(), self.pid)
    }
}
