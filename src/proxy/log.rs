//! `proxy.log`: one file of the project, appended by all of its proxies.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use crate::project::{Lock, Project, beneath};

/// A larger log is renamed to `proxy.log.1` at the next launch.
const ROTATE_BYTES: u64 = 5 << 20;

/// How many bytes of log lines are buffered until the project is known.
const BUFFERED_BYTES: usize = 64 << 10;

/// How many lines may wait for a slow disk; further ones are dropped and counted.
const QUEUED_LINES: usize = 500;

/// The destination of log lines.
enum Sink {
    /// The project is not known yet: under VS Code, the traffic names the notebook.
    Buffer(Vec<u8>),
    /// Another thread writes them; [`close`] waits for it.
    File(NonBlocking, WorkerGuard),
}

/// The sink that every event of this process goes to.
#[derive(Clone)]
struct LogWriter(Arc<Mutex<Sink>>);

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Sink::Buffer(lines) if lines.len() + line.len() > BUFFERED_BYTES => Ok(line.len()),
            Sink::Buffer(lines) => lines.write(line),
            Sink::File(lines, _) => lines.write(line),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// This process's log.
struct Log {
    writer: LogWriter,
    /// Replaces the log level.
    set_level: Box<dyn Fn(EnvFilter) + Send + Sync>,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// Starts to collect events; they are buffered until [`open`] names the file.
///
/// `NB_LOG` sets the level (`debug` shows every message's type, `trace` its frames' lengths).
pub(super) fn begin() {
    LOG.get_or_init(|| {
        let writer = LogWriter(Arc::new(Mutex::new(Sink::Buffer(Vec::new()))));
        let sink = writer.clone();
        let builder = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_target(false)
            // On a full disk the subscriber would print an error on stderr for each line, and a Jupyter
            // server shows that.
            .log_internal_errors(false)
            .with_timer(Clock)
            .with_writer(move || sink.clone())
            .with_env_filter(level(None))
            .with_filter_reloading();
        let handle = builder.reload_handle();
        let subscriber = builder.finish();
        // A subscriber exists already only in a test that runs two proxies in one process.
        let _ = tracing::subscriber::set_global_default(subscriber);
        Log {
            writer,
            set_level: Box::new(move |filter| {
                let _ = handle.reload(filter);
            }),
        }
    });
}

/// Directs the lines into the project's log, the buffered ones first.
///
/// `configured` is the level in the project's settings.
pub(super) fn open(project: &Project, configured: Option<&str>) -> io::Result<()> {
    let path = project.proxy_log();
    rotate(&path)?;
    // Creates the file as private, or checks that it is a regular file of this user, before the appender
    // opens it.
    drop(beneath::append(&path)?);
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("the log has no folder"));
    };
    let mut file = tracing_appender::rolling::never(folder, name);
    let Some(log) = LOG.get() else { return Ok(()) };
    {
        let mut sink = log.writer.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Sink::Buffer(lines) = &*sink {
            file.write_all(lines)?;
        }
        let lines = NonBlockingBuilder::default().buffered_lines_limit(QUEUED_LINES);
        let (lines, guard) = lines.finish(file);
        *sink = Sink::File(lines, guard);
    }
    if configured.is_some() {
        (log.set_level)(level(configured));
    }
    Ok(())
}

/// Waits until the lines are written, for one second at most. Later lines are dropped.
pub(super) fn close() {
    let Some(log) = LOG.get() else { return };
    let mut sink = log.writer.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Sink::File(lines, guard) = std::mem::replace(&mut *sink, Sink::Buffer(Vec::new())) {
        drop(sink);
        let dropped = lines.error_counter().dropped_lines();
        drop(guard);
        if dropped > 0 {
            eprintln!("nb-proxy: {dropped} lines of its log are lost: the disk was too slow");
        }
    }
}

fn level(configured: Option<&str>) -> EnvFilter {
    match configured {
        Some(level) => EnvFilter::try_new(level).ok(),
        None => EnvFilter::try_from_env("NB_LOG").ok(),
    }
    .unwrap_or_else(|| EnvFilter::new("info"))
}

/// Renames a large log under a lock: several proxies may be launched at once.
fn rotate(path: &Path) -> io::Result<()> {
    if beneath::metadata(path).map_or(0, |data| data.len()) <= ROTATE_BYTES {
        return Ok(());
    }
    // The process that holds the lock renames the log.
    let Some(_lock) = Lock::attempt(&path.with_extension("log.lock"))? else {
        return Ok(());
    };
    if beneath::metadata(path)?.len() > ROTATE_BYTES {
        beneath::rename(path, &path.with_extension("log.1"))?;
    }
    Ok(())
}

/// The time in UTC and the proxy's pid: several proxies write into one file.
struct Clock;

impl tracing_subscriber::fmt::time::FormatTime for Clock {
    fn format_time(
        &self,
        writer: &mut tracing_subscriber::fmt::format::Writer<'_>,
    ) -> std::fmt::Result {
        let (now, pid) = (jiff::Timestamp::now(), std::process::id());
        write!(writer, "{now:.3} [{pid}]")
    }
}
