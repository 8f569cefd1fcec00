//! Listens, and serves connections within limits.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::map_response;
use axum::response::Response;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::Sleep;

use crate::api::problem::Problem;
use crate::socket::other_user;

/// How long a connection may take for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a client may read none of a response.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The pause after a connection that could not be accepted, as where descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens at an address; port 0 is a free one. Returns the address with its port. `option` names the argument that
/// takes another port.
///
/// # Errors
/// The port is not free, or the address is not one of this machine.
pub async fn listen(
    address: SocketAddr,
    option: &str,
) -> Result<(TcpListener, SocketAddr), Problem> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        let problem = Problem::failed(&format!("listen at {address}"), &error);
        problem.hint(format!("{option} takes another"))
    })?;
    let address = listener.local_addr();
    let address = address.map_err(|error| Problem::failed("listen", &error))?;
    Ok((listener, address))
}

/// Serves connections for ever. While there are `connections_max`, further ones wait until one ends; a connection that
/// has become a websocket no longer counts. Connections of other users of this machine are closed.
pub async fn serve(listener: TcpListener, router: Router, connections_max: usize) {
    let router = router.layer(map_response(close_refused));
    let permits = Arc::new(Semaphore::new(connections_max));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        match other_user(&stream) {
            Ok(None) => {}
            Ok(Some(user)) => {
                tracing::warn!(user, "a connection of another user was closed");
                continue;
            }
            Err(error) => {
                tracing::debug!(%error, "a connection was closed");
                continue;
            }
        }
        // Answers are small or come as a whole: a delay for larger packets would only cost time.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let mut builder = http1::Builder::new();
            builder
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT);
            let has_deadline = Arc::new(AtomicBool::new(true));
            let stream = StallGuard::new(stream, STALL_TIMEOUT, has_deadline.clone());
            let connection = builder.serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection has ended");
            }
            // A websocket has deadlines of its own.
            has_deadline.store(false, Ordering::Relaxed);
            drop(permit);
        });
    }
}

/// Ends the connection of a client that is refused.
async fn close_refused(mut response: Response) -> Response {
    if let StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN = response.status() {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

/// A connection that fails when its client reads nothing of a response for a while.
struct StallGuard<T> {
    stream: T,
    stall: Duration,
    has_deadline: Arc<AtomicBool>,
    /// Runs while a write waits.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<T: AsyncWrite + Unpin> StallGuard<T> {
    fn new(stream: T, stall: Duration, has_deadline: Arc<AtomicBool>) -> Self {
        Self {
            stream,
            stall,
            has_deadline,
            deadline: None,
        }
    }

    fn within_time<R>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut T>, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if let Poll::Ready(written) = write(Pin::new(&mut self.stream), cx) {
            self.deadline = None;
            return Poll::Ready(written);
        }
        if !self.has_deadline.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        let begin = || Box::pin(tokio::time::sleep(self.stall));
        ready!(self.deadline.get_or_insert_with(begin).as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for StallGuard<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for StallGuard<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.within_time(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.within_time(cx, T::poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.within_time(cx, T::poll_shutdown)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.within_time(cx, |stream, cx| stream.poll_write_vectored(cx, slices))
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    /// Serves a page that is refused, and returns its address.
    async fn server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(|| async { StatusCode::UNAUTHORIZED }));
        tokio::spawn(serve(listener, router, 1));
        address
    }

    #[tokio::test]
    async fn a_refused_client_is_answered_once() {
        let mut client = TcpStream::connect(server().await).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        client.write_all(&request.repeat(3)).await.unwrap();
        let mut answer = Vec::new();
        // The connection may be reset, because requests were left unread.
        let _ = client.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        assert_eq!(answer.matches("HTTP/1.1 401").count(), 1, "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn another_user_is_not_served() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let address = server().await;
        let request_as = |user| {
            let script = format!(
                "exec 3<>/dev/tcp/127.0.0.1/{} && printf 'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' >&3 && cat <&3",
                address.port()
            );
            let mut shell = tokio::process::Command::new("bash");
            shell.args(["-c", &script]).current_dir("/").uid(user);
            shell.stderr(Stdio::null()).output()
        };
        assert!(
            request_as(0)
                .await
                .unwrap()
                .stdout
                .starts_with(b"HTTP/1.1 401")
        );
        assert_eq!(request_as(65534).await.unwrap().stdout, b"");
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_disconnected() {
        let (local, mut remote) = tokio::io::duplex(4);
        let has_deadline = Arc::new(AtomicBool::new(true));
        let mut writer = StallGuard::new(local, Duration::from_millis(1), has_deadline.clone());
        let error = writer.write_all(b"a response").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // A websocket waits.
        has_deadline.store(false, Ordering::Relaxed);
        let mut read = [0; 4 + 9];
        let (written, _) =
            tokio::join!(writer.write_all(b"a message"), remote.read_exact(&mut read));
        written.unwrap();
        assert_eq!(&read, b"a rea message");
    }
}
