//! One text for whoever asks for it by HTTP, on a Unix socket of the user's own.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::{AbortHandle, JoinSet};

use super::stream::{Accepted, Listener, Reader, Writer};
use crate::wire::Endpoint;

/// A text that is made anew for each that asks. Dropping it removes the socket's file.
///
/// At most four connections are answered at a time, each within two seconds; the others wait in the
/// system's queue, and what is not read is not kept.
#[derive(Debug)]
pub struct Page {
    listener: Rc<RefCell<Option<Listener>>>,
    abort: AbortHandle,
}

/// How many are answered at a time.
const READERS: usize = 4;

/// How long one may take to ask and to read.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest request.
const REQUEST_BYTES: usize = 8 * 1024;

/// How long accepting rests after it failed.
const REST: Duration = Duration::from_secs(1);

impl Page {
    /// Serves the text at this path, for this user only.
    ///
    /// # Errors
    /// When the path cannot be had; see [`Router::bind`](super::Router::bind).
    ///
    /// # Panics
    /// Outside a [`tokio::task::LocalSet`].
    pub fn serve(path: &Path, text: impl Fn() -> String + 'static) -> io::Result<Self> {
        let listener = Listener::bind(&Endpoint::Unix(path.to_owned()))?;
        let listener = Rc::new(RefCell::new(Some(listener)));
        let task = tokio::task::spawn_local(accept(Rc::clone(&listener), Rc::new(text)));
        Ok(Self {
            listener,
            abort: task.abort_handle(),
        })
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.listener.take();
        self.abort.abort();
    }
}

async fn accept(listener: Rc<RefCell<Option<Listener>>>, text: Rc<dyn Fn() -> String>) {
    let mut readers = JoinSet::new();
    loop {
        while readers.len() >= READERS {
            readers.join_next().await;
        }
        let accepted = poll_fn(|cx| match &*listener.borrow() {
            Some(listener) => listener.poll_accept(cx, true).map(Some),
            None => Poll::Ready(None),
        });
        let accepted = tokio::select! {
            accepted = accepted => accepted,
            Some(_) = readers.join_next() => continue,
        };
        match accepted {
            None => return,
            Some(Ok(Accepted::Peer(reader, writer, _))) => {
                let answer = answer(reader, writer, Rc::clone(&text));
                readers.spawn_local(tokio::time::timeout(PATIENCE, answer));
            }
            Some(Ok(Accepted::Stranger(_))) => {}
            Some(Err(_)) => tokio::time::sleep(REST).await,
        }
    }
}

/// Reads a request and answers it, whatever it asks for: there is one text.
async fn answer(
    mut reader: Reader,
    mut writer: Writer,
    text: Rc<dyn Fn() -> String>,
) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let room = REQUEST_BYTES.saturating_sub(request.len());
        let mut more = vec![0; room.min(1024)];
        let read = reader.read(&mut more).await?;
        if read == 0 {
            // It asks for too much, or has nothing more to say.
            break;
        }
        request.extend_from_slice(more.get(..read).unwrap_or_default());
    }
    let text = text();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    writer.write_all(head.as_bytes()).await?;
    writer.write_all(text.as_bytes()).await?;
    writer.shutdown().await
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn those_that_say_nothing_keep_nobody_waiting_for_long_and_the_file_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p");
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let page = Page::serve(&path, || "numbers\n".to_owned()).unwrap();
                let mut silent = Vec::new();
                for _ in 0..2 * READERS {
                    silent.push(UnixStream::connect(&path).await.unwrap());
                }
                let mut reader = UnixStream::connect(&path).await.unwrap();
                reader.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
                let mut text = String::new();
                reader.read_to_string(&mut text).await.unwrap();
                assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
                assert!(text.ends_with("Content-Length: 8\r\nConnection: close\r\n\r\nnumbers\n"));
                drop(page);
                assert!(!path.exists());
            })
            .await;
    }
}
