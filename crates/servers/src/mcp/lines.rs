//! The size of a client's messages.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use rmcp::transport::async_rw::DEFAULT_MAX_LINE_LENGTH;
use tokio::io::{AsyncRead, ReadBuf};

/// A stream of messages, one a line. It fails at a line that rmcp would drop, whose request would never be
/// answered.
pub(super) struct BoundedLines<R> {
    inner: R,
    /// How much of the current line was read.
    length: usize,
    /// Whether a line was too long.
    is_over: Arc<AtomicBool>,
}

impl<R> BoundedLines<R> {
    /// Returns the stream, and what becomes true at a line that is too long.
    pub(super) fn of(inner: R) -> (Self, Arc<AtomicBool>) {
        let is_over = Arc::new(AtomicBool::new(false));
        let lines = Self {
            inner,
            length: 0,
            is_over: is_over.clone(),
        };
        (lines, is_over)
    }

    /// Counts bytes that were read, and returns whether a line is too long.
    fn count(&mut self, bytes: &[u8]) -> bool {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.length += part.len();
            if self.length > DEFAULT_MAX_LINE_LENGTH {
                return true;
            }
            if part.ends_with(b"\n") {
                self.length = 0;
            }
        }
        false
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedLines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        if self.count(&buffer.filled()[before..]) {
            self.is_over.store(true, Ordering::Relaxed);
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        Poll::Ready(Ok(()))
    }
}
