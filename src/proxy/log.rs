//! `proxy.log`: one file of the project, appended by all of its proxies.

use std::fs::File;
use std::io;
use std::path::Path;

use tracing_subscriber::EnvFilter;

use crate::project::{Lock, Project};

/// Over this size the log is set aside as `proxy.log.1` at the next launch.
const ROTATE_BYTES: u64 = 5 << 20;

/// Opens the project's log and sends every event there.
///
/// Written synchronously: a background writer loses lines at exit and under load. `NB_LOG` chooses
/// the level (`debug` shows every message's type, `trace` its frames' lengths).
pub(super) fn open(project: &Project) -> io::Result<()> {
    let path = project.proxy_log();
    rotate(&path)?;
    drop(
        File::options()
            .create(true)
            .append(true)
            .mode_0600()
            .open(&path)?,
    );
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("the log has no folder"));
    };
    let writer = tracing_appender::rolling::never(folder, name);
    let filter = EnvFilter::try_from_env("NB_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let writer = std::sync::Mutex::new(writer);
    let pid = std::process::id();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_target(false)
        .with_timer(Clock { pid })
        .with_writer(writer)
        .finish();
    // Only a test that runs two proxies in one process has a subscriber already.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(())
}

/// Sets a large log aside, under a lock: several proxies may be launched at once.
fn rotate(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path).map_or(0, |data| data.len()) <= ROTATE_BYTES {
        return Ok(());
    }
    let _lock = Lock::wait(&path.with_extension("log.lock"))?;
    if std::fs::metadata(path)?.len() > ROTATE_BYTES {
        std::fs::rename(path, path.with_extension("log.1"))?;
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

/// Opening a file that only its user may read.
trait Private {
    fn mode_0600(&mut self) -> &mut Self;
}

impl Private for std::fs::OpenOptions {
    fn mode_0600(&mut self) -> &mut Self {
        std::os::unix::fs::OpenOptionsExt::mode(self, 0o600)
    }
}
