//! Whether a page is connected to a kernel of a Jupyter server.
//!
//! The server keeps its connections to a kernel when the last page is closed, and goes on reading outputs that no page
//! shows. It is asked each two seconds.

use std::io;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::activity::jupyter_server::{PAGE_CONNECTED, PAGES_GONE, connections};
use crate::kernel::variables::ProcessVariables;

/// The pause between two questions.
const PAUSE: Duration = Duration::from_secs(2);

/// How long no page may be connected: one that is loaded again connects after up to eight seconds.
const RELOAD: Duration = Duration::from_secs(10);

/// Writes a line when a page is connected to a kernel of the server that launched this process, and one when none is any
/// more. Ends when the input ends.
///
/// # Errors
/// The server does not answer the first question, or the output is closed.
pub async fn watch(
    kernel: String,
    mut input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut pages = Pages::default();
    loop {
        let kernel = kernel.clone();
        let asked = tokio::task::spawn_blocking(move || connections(&kernel, &ProcessVariables));
        match asked.await.map_err(io::Error::other)? {
            Ok(count) => {
                if let Some(line) = pages.seen(count, Instant::now()) {
                    output.write_all(format!("{line}\n").as_bytes()).await?;
                    output.flush().await?;
                }
            }
            // Later it may be busy for a moment.
            Err(error) if pages.said.is_none() => return Err(error),
            Err(_) => {}
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            _ = input.read_u8() => return Ok(()),
        }
    }
}

/// What was said of a kernel's pages.
#[derive(Default)]
struct Pages {
    said: Option<&'static str>,
    none_since: Option<Instant>,
}

impl Pages {
    /// Takes in how many are connected; returns what there is to say.
    fn seen(&mut self, count: u64, now: Instant) -> Option<&'static str> {
        let since = *match count {
            0 => self.none_since.get_or_insert(now),
            _ => {
                self.none_since = None;
                return self.says(PAGE_CONNECTED);
            }
        };
        match now.duration_since(since) >= RELOAD {
            true => self.says(PAGES_GONE),
            false => None,
        }
    }

    fn says(&mut self, line: &'static str) -> Option<&'static str> {
        (self.said.replace(line) != Some(line)).then_some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_loaded_again_is_not_gone() {
        let start = Instant::now();
        let mut pages = Pages::default();
        let mut seen = |count, seconds| pages.seen(count, start + Duration::from_secs(seconds));
        assert_eq!(seen(2, 0), Some(PAGE_CONNECTED));
        assert_eq!(seen(1, 2), None);
        assert_eq!(seen(0, 4), None);
        assert_eq!(seen(0, 12), None);
        assert_eq!(seen(1, 13), None);
        assert_eq!(seen(0, 14), None);
        assert_eq!(seen(0, 24), Some(PAGES_GONE));
        assert_eq!(seen(0, 26), None);
        assert_eq!(seen(1, 28), Some(PAGE_CONNECTED));
    }
}
