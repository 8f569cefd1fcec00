//! Repeated failures: logged at the first, when they change, and when they are over.

use std::cell::RefCell;
use std::fmt;

/// Logs the failures of one operation that is done again and again.
///
/// A disk that is full for an hour must not fill the log, but the log must say when it is over.
#[derive(Debug, Default)]
pub(super) struct FailureLog(RefCell<Option<CurrentFailure>>);

#[derive(Debug)]
struct CurrentFailure {
    kind: String,
    count: u64,
}

impl FailureLog {
    /// Records a failure, and logs it unless the last logged one has the same kind. Texts are not compared,
    /// as they may name a temporary file that differs each time.
    pub(super) fn report(&self, kind: impl fmt::Debug, text: &str) {
        let mut current = self.0.borrow_mut();
        let kind = format!("{kind:?}");
        let count = current.as_ref().map_or(1, |before| before.count + 1);
        if current.as_ref().is_none_or(|before| before.kind != kind) {
            tracing::warn!("{text}");
        }
        *current = Some(CurrentFailure { kind, count });
    }

    /// Records a success, and logs it if the last attempt failed.
    pub(super) fn recovered(&self, text: &str) {
        if let Some(CurrentFailure { count, .. }) = self.0.take() {
            tracing::info!(failures = count, "{text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex, PoisonError};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            lines.extend_from_slice(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_failure_is_logged_when_it_begins_changes_and_ends() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_target(false)
            .without_time()
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let failures = FailureLog::default();
            failures.recovered("it is written");
            failures.report(1, "no room for a");
            failures.report(1, "no room for b");
            failures.report(2, "no right");
            failures.recovered("it is written again");
            failures.recovered("it is written again");
            failures.report(1, "no room for c");
        });
        let text = lines.0.lock().expect("no panic in it").clone();
        let text = String::from_utf8(text).expect("text");
        let logged: Vec<_> = text.lines().map(str::trim).collect();
        assert_eq!(
            logged,
            [
                "WARN no room for a",
                "WARN no right",
                "INFO it is written again failures=3",
                "WARN no room for c",
            ]
        );
    }
}
