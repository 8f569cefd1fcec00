//! Listens, and serves connections within limits.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::map_response;
use axum::response::Response;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::Sleep;

use crate::api::problem::Problem;
use crate::socket::{other_user, peer_process};

/// How long a connection may take for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a refused connection has to read its answer, and how many are answered at once.
const REFUSE_TIMEOUT: Duration = Duration::from_secs(1);
const MOST_REFUSALS: usize = 32;

/// What a further connection gets where all others have sent requests.
const TOO_MANY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nconnection: close\r\n\
    content-length: 56\r\n\r\ntoo many connections are open: close some of them first\n";

/// How long a client may read none of a response.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The pause after a connection that could not be accepted, as where descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The other end of a request's connection: an extension of each request.
#[derive(Clone, Debug)]
pub struct OtherEnd(Arc<(SocketAddr, SocketAddr, OnceLock<Option<u32>>)>);

impl OtherEnd {
    fn of(stream: &TcpStream) -> io::Result<Self> {
        let (local, peer) = (stream.local_addr()?, stream.peer_addr()?);
        Ok(Self(Arc::new((local, peer, OnceLock::new()))))
    }

    /// Returns the process that has the connection, if the system tells.
    pub fn process(&self) -> Option<u32> {
        let (local, peer, process) = &*self.0;
        *process.get_or_init(|| peer_process(*local, *peer))
    }
}

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

/// Serves connections for ever, `connections_max` of them at once. For a further one, the connection is closed that waits
/// longest without having sent a whole head of a request; where there is none, the further one is answered that there
/// are too many. A connection that has become a websocket no longer counts. Connections of other users of this machine
/// are closed.
pub async fn serve(listener: TcpListener, router: Router, connections_max: usize) {
    let router = router.layer(map_response(close_refused));
    let permits = Arc::new(Semaphore::new(connections_max));
    let refusals = Arc::new(Semaphore::new(MOST_REFUSALS));
    let silent = Arc::<SilentConnections>::default();
    loop {
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
        if permits.available_permits() == 0 && !silent.close_oldest() {
            if let Ok(refusal) = refusals.clone().try_acquire_owned() {
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(REFUSE_TIMEOUT, refuse(stream)).await;
                    drop(refusal);
                });
            }
            continue;
        }
        let Ok(permit) = permits.clone().acquire_owned().await else {
            return;
        };
        let Ok(other_end) = OtherEnd::of(&stream) else {
            continue;
        };
        let router = TowerToHyperService::new(router.clone());
        silent.spawn(|id| {
            let silent = silent.clone();
            async move {
                let mut builder = http1::Builder::new();
                builder
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_TIMEOUT);
                let has_deadline = Arc::new(AtomicBool::new(true));
                let stream = StallGuard::new(stream, STALL_TIMEOUT, has_deadline.clone());
                let service = service_fn(|mut request: hyper::Request<_>| {
                    silent.remove(id);
                    request.extensions_mut().insert(other_end.clone());
                    router.call(request)
                });
                let connection = builder.serve_connection(TokioIo::new(stream), service);
                if let Err(error) = connection.with_upgrades().await {
                    tracing::debug!(%error, "a connection has ended");
                }
                silent.remove(id);
                // A websocket has deadlines of its own.
                has_deadline.store(false, Ordering::Relaxed);
                drop(permit);
            }
        });
    }
}

/// Answers that there are too many connections.
async fn refuse(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(TOO_MANY).await?;
    stream.shutdown().await?;
    // With bytes that were not read, the connection would be reset, and the answer be lost.
    let mut rest = [0; 4096];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

/// The connections that have not sent a whole head of a request yet, the oldest first.
#[derive(Default)]
struct SilentConnections(Mutex<BTreeMap<u64, AbortHandle>>, AtomicU64);

impl SilentConnections {
    fn list(&self) -> MutexGuard<'_, BTreeMap<u64, AbortHandle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the task of a connection, which gets its number.
    fn spawn<F: Future<Output = ()> + Send + 'static>(&self, task: impl FnOnce(u64) -> F) {
        let id = self.1.fetch_add(1, Ordering::Relaxed);
        // Held until it is in the list: the task may remove itself at once.
        let mut list = self.list();
        let task = tokio::spawn(task(id));
        list.insert(id, task.abort_handle());
    }

    fn remove(&self, id: u64) {
        self.list().remove(&id);
    }

    /// Closes the oldest; returns whether there was one.
    fn close_oldest(&self) -> bool {
        let oldest = self.list().pop_first();
        oldest.is_some_and(|(_, task)| {
            task.abort();
            true
        })
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

    async fn answer(address: SocketAddr, path: &str) -> String {
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn half_requests_do_not_keep_others_out() {
        let address = server().await;
        let mut halves = Vec::new();
        let answer = async {
            for _ in 0..400 {
                let mut half = TcpStream::connect(address).await.unwrap();
                half.write_all(b"GET / HTTP/1.1\r\nHo").await.unwrap();
                halves.push(half);
            }
            answer(address, "/").await
        };
        let answer = tokio::time::timeout(HEAD_TIMEOUT / 3, answer).await;
        assert!(answer.unwrap().starts_with("HTTP/1.1 401"));
    }

    #[tokio::test]
    async fn where_all_connections_have_requests_a_further_one_is_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
        let slow = || async move {
            begun.send(()).unwrap();
            std::future::pending::<StatusCode>().await
        };
        let router = Router::new().route("/slow", get(slow));
        tokio::spawn(serve(listener, router, 2));
        let _slow = [(); 2].map(|()| tokio::spawn(answer(address, "/slow")));
        for _ in 0..2 {
            begins.recv().await.unwrap();
        }
        let text = tokio::time::timeout(HEAD_TIMEOUT / 3, answer(address, "/slow")).await;
        let text = text.expect("a further connection is answered");
        assert!(text.starts_with("HTTP/1.1 503"), "{text}");
        assert!(
            text.ends_with("\r\n\r\ntoo many connections are open: close some of them first\n"),
            "{text}"
        );
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(text.contains(&format!("content-length: {}", body.len())));
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
