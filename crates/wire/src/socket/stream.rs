//! TCP and Unix sockets behind one interface. No other file names them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};

use rustix::net::SocketAddrUnix;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixSocket, UnixStream};

use super::peer_user;
use crate::wire::Endpoint;

/// The read half of a connection.
pub(super) type Reader = Box<dyn AsyncRead + Unpin>;
/// The write half of a connection.
pub(super) type Writer = Box<dyn AsyncWrite + Unpin>;

/// A socket to which peers connect. Dropping it frees the address.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// An accepted connection.
pub(super) enum Accepted {
    /// A peer; over TCP with the two addresses.
    Peer(Reader, Writer, Option<Addresses>),
    /// A process of this other user of the machine; its connection is already closed.
    OtherUser(u32),
}

/// The two ends of a TCP connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
}

/// The file of a Unix socket that this process has bound.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode, so that the file of a later socket with the same path is never removed.
    id: Option<(u64, u64)>,
}

impl Listener {
    /// Binds and listens.
    pub(super) fn bind(endpoint: &Endpoint) -> io::Result<Self> {
        let result = match endpoint {
            Endpoint::Tcp(address) => std::net::TcpListener::bind(address).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok(Self::Tcp(TcpListener::from_std(listener)?))
            }),
            Endpoint::Unix(path) => bind_unix(path),
        };
        result.map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot listen on {endpoint}: {error}"),
            )
        })
    }

    /// Returns the address on which it listens, with the port that the system chose.
    pub(super) fn endpoint(&self) -> io::Result<Endpoint> {
        match self {
            Self::Tcp(listener) => Ok(Endpoint::Tcp(listener.local_addr()?)),
            Self::Unix(_, file) => Ok(Endpoint::Unix(file.path.clone())),
        }
    }

    /// Accepts the next connection; closes it if it would take a descriptor that is to be spared.
    pub(super) fn poll_accept(
        &self,
        cx: &mut Context<'_>,
        spares_descriptors: bool,
    ) -> Poll<io::Result<Accepted>> {
        match self {
            Self::Tcp(listener) => listener.poll_accept(cx).map(|accepted| {
                let (stream, peer) = accepted?;
                // Checked first, because the request for the peer's user needs a descriptor, too.
                check_descriptor(&stream, spares_descriptors)?;
                let local = stream.local_addr()?;
                if let Some(user) = peer_user::other_user(local, peer)? {
                    return Ok(Accepted::OtherUser(user));
                }
                let (reader, writer) = tcp_halves(stream)?;
                let addresses = Addresses { local, peer };
                Ok(Accepted::Peer(reader, writer, Some(addresses)))
            }),
            // Other users cannot open the socket's file.
            Self::Unix(listener, _) => listener.poll_accept(cx).map(|accepted| {
                let (stream, _) = accepted?;
                check_descriptor(&stream, spares_descriptors)?;
                let (reader, writer) = unix_halves(stream);
                Ok(Accepted::Peer(reader, writer, None))
            }),
        }
    }
}

/// Returns the other user of this machine whose process is at the other end of an accepted connection; `None` if it is
/// this user, root, or on another machine, or if the system does not report it.
///
/// # Errors
/// The other end has closed the connection already, or hardly any descriptors are left.
pub fn other_user(accepted: &TcpStream) -> io::Result<Option<u32>> {
    check_descriptor(accepted, true)?;
    peer_user::other_user(accepted.local_addr()?, accepted.peer_addr()?)
}

/// Returns the process of this machine that has the other end of a connection between these addresses; `None` if the system
/// does not tell, as outside of Linux.
pub fn peer_process(local: SocketAddr, peer: SocketAddr) -> Option<u32> {
    peer_user::process(local, peer)
}

/// Connects to a listening socket; fails if that would take a descriptor that is to be spared.
pub(super) async fn connect(
    endpoint: &Endpoint,
    spares_descriptors: bool,
) -> io::Result<(Reader, Writer)> {
    match endpoint {
        Endpoint::Tcp(address) => {
            let stream = TcpStream::connect(address).await?;
            check_descriptor(&stream, spares_descriptors)?;
            tcp_halves(reject_self_connection(stream)?)
        }
        Endpoint::Unix(path) => {
            let stream = UnixStream::connect(path).await?;
            check_descriptor(&stream, spares_descriptors)?;
            Ok(unix_halves(stream))
        }
    }
}

/// Fails with the system's own error if the descriptor is one of the last that are to be spared.
fn check_descriptor(descriptor: &impl AsRawFd, spares_descriptors: bool) -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile).current;
    if let Some(limit) = limit.filter(|_| spares_descriptors) {
        // The system assigns the lowest free number.
        let number = u64::try_from(descriptor.as_raw_fd()).unwrap_or_default();
        if number >= limit - (limit / 4).min(SPARED_MAX) {
            return Err(rustix::io::Errno::MFILE.into());
        }
    }
    Ok(())
}

/// Returns how many connections one bound socket may have: where descriptors are to be spared, an eighth of those that
/// the system allows, so that all five ports of a kernel leave some for the sockets to the kernel.
pub(super) fn places(spares_descriptors: bool) -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    let limit = limit.filter(|_| spares_descriptors);
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit / 8).map_or(usize::MAX, |places| places.max(8))
    })
}

/// The maximum number of descriptors to spare.
const SPARED_MAX: u64 = 16;

/// Refuses a socket that is connected to itself.
///
/// A process that repeatedly dials a free port of this machine may get that port as its own source port, and
/// TCP then connects the socket to itself.
fn reject_self_connection(stream: TcpStream) -> io::Result<TcpStream> {
    if stream.local_addr()? == stream.peer_addr()? {
        // Resets the connection, so that the port is free at once: another process is about to listen on it.
        stream.set_zero_linger()?;
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}

fn tcp_halves(stream: TcpStream) -> io::Result<(Reader, Writer)> {
    stream.set_nodelay(true)?;
    let (reader, writer) = stream.into_split();
    Ok((Box::new(reader), Box::new(writer)))
}

fn unix_halves(stream: UnixStream) -> (Reader, Writer) {
    let (reader, writer) = stream.into_split();
    (Box::new(reader), Box::new(writer))
}

fn bind_unix(path: &Path) -> io::Result<Listener> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(path)? => {
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        result => result?,
    };
    let id = std::fs::symlink_metadata(path)
        .map(|file| (file.dev(), file.ino()))
        .ok();
    let file = SocketFile {
        path: path.to_owned(),
        id,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(Listener::Unix(listener, file))
}

/// Returns whether the path is a socket on which no process listens any more.
fn is_stale(path: &Path) -> io::Result<bool> {
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Ok(false);
    }
    // Non-blocking: a socket in use may have no room for one more connection.
    let socket = UnixSocket::new_stream()?;
    let connected = rustix::net::connect(&socket, &SocketAddrUnix::new(path)?);
    Ok(connected == Err(rustix::io::Errno::CONNREFUSED))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let current = std::fs::symlink_metadata(&self.path).map(|file| (file.dev(), file.ino()));
        if current.ok() == self.id && self.id.is_some() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_that_is_connected_to_itself_is_refused() {
        let socket = tokio::net::TcpSocket::new_v4().expect("make a socket");
        let any = "127.0.0.1:0".parse().expect("an address");
        socket.bind(any).expect("bind");
        let itself = socket.local_addr().expect("it is bound");
        let stream = socket.connect(itself).await.expect("it reaches itself");
        let error = reject_self_connection(stream).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        // The port is free again.
        std::net::TcpListener::bind(itself).expect("bind");
    }
}
