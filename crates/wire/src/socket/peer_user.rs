//! The user whose process is at the other end of a connection within this machine.
//!
//! Every user of the machine can connect to a port of the loopback interface, and neither iopub nor
//! the heartbeat requires a signature. Linux reports the user to whom a socket belongs.

use std::io;
use std::net::SocketAddr;

/// Returns the user at the other end, if it is neither this user nor root.
///
/// Returns `None` if the system does not report it: the other end is on another machine, this is not Linux,
/// or a sandbox forbids the request.
///
/// # Errors
/// The other end is closed already: its user is not known any more, and its data could still be read.
pub(super) fn other_user(local: SocketAddr, peer: SocketAddr) -> io::Result<Option<u32>> {
    let own_user = rustix::process::geteuid().as_raw();
    let ip = |address: SocketAddr| address.ip().to_canonical();
    let is_within = ip(local).is_loopback() || ip(peer).is_loopback() || ip(local) == ip(peer);
    match socket_between(local, peer, |answer| {
        Some((field(answer, USER)?, field(answer, INODE)?))
    }) {
        // No process has the socket. Linux before 6.17 reports it as root's.
        Some((_, 0)) => Err(io::ErrorKind::ConnectionAborted.into()),
        Some((user, _)) => Ok(Some(user).filter(|user| *user != own_user && *user != 0)),
        // The system does answer, for our own socket.
        None if is_within && queues_of(peer, local).is_some() => {
            Err(io::ErrorKind::ConnectionAborted.into())
        }
        None => Ok(None),
    }
}

/// Returns the process of this machine that has the other end; of several, the one with the lowest number. `None` if the
/// system does not tell.
pub(super) fn process(local: SocketAddr, peer: SocketAddr) -> Option<u32> {
    let inode = socket_between(local, peer, |answer| field(answer, INODE))?;
    let link = format!("socket:[{inode}]");
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let has_it = |process: &u32| {
        let open = std::fs::read_dir(format!("/proc/{process}/fd"));
        let mut open = open.into_iter().flatten().flatten();
        open.any(|it| std::fs::read_link(it.path()).is_ok_and(|to| to.as_os_str() == &*link))
    };
    processes.filter_map(number).filter(has_it).min()
}

/// Returns how many bytes sent to the other end the system still holds because no process has read them:
/// those that the other end has not confirmed and, if it is on this machine, those that it has received.
///
/// Returns `None` if the system does not report it.
pub(super) fn unread_bytes(local: SocketAddr, peer: SocketAddr) -> Option<u64> {
    let own = queues_of(peer, local)?;
    let remote = queues_of(local, peer);
    Some(u64::from(own.unconfirmed) + remote.map_or(0, |remote| u64::from(remote.unread)))
}

/// The number of bytes that the system holds for one socket.
#[derive(Debug, PartialEq, Eq)]
struct Queues {
    /// Received, but not read by its process.
    unread: u32,
    /// Written by its process, but not confirmed by the other end.
    unconfirmed: u32,
}

#[cfg(not(target_os = "linux"))]
fn socket_between<T>(
    _: SocketAddr,
    _: SocketAddr,
    _: impl FnOnce(&[u8]) -> Option<T>,
) -> Option<T> {
    None
}

fn queues_of(local: SocketAddr, peer: SocketAddr) -> Option<Queues> {
    socket_between(local, peer, |answer| {
        Some(Queues {
            unread: field(answer, UNREAD)?,
            unconfirmed: field(answer, UNCONFIRMED)?,
        })
    })
}

/// Requests the one socket that has these two addresses the other way round, by sock_diag(7), and reads the
/// answer.
#[cfg(target_os = "linux")]
fn socket_between<T>(
    local: SocketAddr,
    peer: SocketAddr,
    read: impl FnOnce(&[u8]) -> Option<T>,
) -> Option<T> {
    use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

    let (local, peer) = (canonical(local), canonical(peer));
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(SOCK_DIAG),
    )
    .ok()?;
    let kernel = SocketAddrNetlink::new(0, 0);
    rustix::net::sendto(&socket, &request(local, peer), SendFlags::empty(), &kernel).ok()?;
    let mut answer = [0; 256];
    // The system answers such a request at once.
    let (_, len) = rustix::net::recv(&socket, &mut answer, RecvFlags::DONTWAIT).ok()?;
    read(answer.get(..len)?)
}

#[cfg(target_os = "linux")]
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The type of both the request and the answer.
const SOCK_DIAG_BY_FAMILY: u16 = 20;

/// Returns a request: an `nlmsghdr` and an `inet_diag_req_v2`.
#[cfg(target_os = "linux")]
fn request(local: SocketAddr, peer: SocketAddr) -> Vec<u8> {
    const LEN: u32 = 72;
    const REQUEST: u16 = 1;
    const TCP: u8 = 6;
    let family = if peer.is_ipv4() { 2 } else { 10 };
    let address = |address: SocketAddr| {
        let mut bytes = [0; 16];
        match address.ip() {
            std::net::IpAddr::V4(ip) => bytes[..4].copy_from_slice(&ip.octets()),
            std::net::IpAddr::V6(ip) => bytes = ip.octets(),
        }
        bytes
    };
    let mut bytes = Vec::with_capacity(LEN as usize);
    bytes.extend(LEN.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    // Sequence number and sender.
    bytes.extend([0; 8]);
    bytes.extend([family, TCP, 0, 0]);
    // All TCP states.
    bytes.extend([0xff; 4]);
    bytes.extend(peer.port().to_be_bytes());
    bytes.extend(local.port().to_be_bytes());
    bytes.extend(address(peer));
    bytes.extend(address(local));
    // Any interface, any cookie.
    bytes.extend([0; 4]);
    bytes.extend([0xff; 8]);
    bytes
}

/// The offsets of fields of `inet_diag_msg`, after an `nlmsghdr`.
const UNREAD: usize = 16 + 56;
const UNCONFIRMED: usize = 16 + 60;
const USER: usize = 16 + 64;
const INODE: usize = 16 + 68;

/// Returns a field of an answer (`nlmsghdr` and `inet_diag_msg`); `None` for an error, which has another
/// type.
fn field(answer: &[u8], at: usize) -> Option<u32> {
    const TYPE: usize = 4;
    let kind = answer.get(TYPE..)?.first_chunk()?;
    let value = answer.get(at..)?.first_chunk()?;
    (u16::from_ne_bytes(*kind) == SOCK_DIAG_BY_FAMILY).then(|| u32::from_ne_bytes(*value))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    /// Waits until the other end has no user. Another test may have it for a moment after its end: a child of it before its
    /// program begins, or a look into `/proc`.
    fn refused(local: SocketAddr, peer: SocketAddr) {
        let end = Instant::now() + Duration::from_secs(10);
        while other_user(local, peer).is_ok() {
            assert!(Instant::now() < end, "the other end still has a user");
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_user_of_an_own_connection_is_known() {
        for at in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            // A machine may have no IPv6.
            let Ok(listener) = TcpListener::bind(at) else {
                continue;
            };
            let port = listener.local_addr().unwrap().port();
            let host = if at.starts_with("[::1]") {
                "::1"
            } else {
                "127.0.0.1"
            };
            let Ok(dialled) = TcpStream::connect((host, port)) else {
                continue;
            };
            let (accepted, _) = listener.accept().unwrap();
            let (local, peer) = (
                accepted.local_addr().unwrap(),
                accepted.peer_addr().unwrap(),
            );
            let own_user = rustix::process::geteuid().as_raw();
            let user = socket_between(local, peer, |answer| field(answer, USER));
            assert_eq!(user, Some(own_user), "{at}");
            assert_eq!(other_user(local, peer).unwrap(), None);
            drop(dialled);
            // The other end is closed: Linux may no longer report its owner.
            refused(local, peer);
        }
    }

    #[test]
    fn the_process_at_the_other_end_is_known() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let dialled = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let (local, peer) = (
            accepted.local_addr().unwrap(),
            accepted.peer_addr().unwrap(),
        );
        assert_eq!(process(local, peer), Some(std::process::id()));
        drop(dialled);
        assert_eq!(process(peer, local), Some(std::process::id()));
    }

    #[test]
    fn a_connection_that_was_reset_is_an_error() {
        use std::io::{Read, Write};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut dialled = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        dialled.write_all(b"a request").unwrap();
        let no_linger = Some(std::time::Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&dialled, no_linger).unwrap();
        drop(dialled);
        let (mut accepted, peer) = listener.accept().unwrap();
        refused(accepted.local_addr().unwrap(), peer);
        // Its data could still be read.
        assert_eq!(accepted.read(&mut [0; 100]).unwrap(), 9);
    }

    #[test]
    fn the_user_of_another_users_connection_is_known() {
        use std::os::unix::process::CommandExt;
        const NOBODY: u32 = 65534;
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; cat <&3");
        let mut child = std::process::Command::new("bash")
            .args(["-c", &script])
            .current_dir("/")
            .uid(NOBODY)
            .spawn()
            .unwrap();
        let (accepted, peer) = listener.accept().unwrap();
        let user = other_user(accepted.local_addr().unwrap(), peer);
        assert_eq!(user.unwrap(), Some(NOBODY));
        drop(accepted);
        child.wait().unwrap();
    }

    #[test]
    fn the_unread_bytes_of_the_other_end_are_known() {
        use std::io::{Read, Write};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut dialled = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        let (local, peer) = (
            accepted.local_addr().unwrap(),
            accepted.peer_addr().unwrap(),
        );
        assert_eq!(unread_bytes(local, peer), Some(0));
        accepted.write_all(b"seven b").unwrap();
        assert_eq!(unread_bytes(local, peer), Some(7));
        dialled.read_exact(&mut [0; 7]).unwrap();
        assert_eq!(unread_bytes(local, peer), Some(0));
    }

    #[test]
    fn the_user_of_a_remote_connection_is_unknown() {
        let remote_address = "203.0.113.7:4000".parse().unwrap();
        let local = "127.0.0.1:9".parse().unwrap();
        assert_eq!(other_user(local, remote_address).unwrap(), None);
    }
}
