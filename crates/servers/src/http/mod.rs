//! What servers over HTTP have in common: where they listen, the secrets that their clients send, the names of this
//! machine, and limits.

mod secret;
mod serve;

use std::net::IpAddr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

pub use self::secret::ClientSecret;
pub use self::serve::{OtherEnd, listen, serve};

/// The longest request body, in bytes.
pub const LONGEST_BODY: usize = 16 << 20;

/// The names by which a program of this machine reaches a server of it.
pub const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The characters of a path that an address escapes.
pub const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Returns the name or address in a `Host` header, without its port and without brackets; `None` if it is malformed.
pub fn host_name(host: &str) -> Option<&str> {
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    if let Some(rest) = host.strip_prefix('[') {
        let (name, port) = rest.split_once(']')?;
        let is_whole = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return (is_whole && name.parse::<IpAddr>().is_ok()).then_some(name);
    }
    let name = match host.split_once(':') {
        Some((name, port)) if is_port(port) => name,
        Some(_) => return None,
        None => host,
    };
    let is_character = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (!name.is_empty() && name.bytes().all(is_character)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_read_without_its_port() {
        for (host, name) in [
            ("localhost", Some("localhost")),
            ("localhost:8643", Some("localhost")),
            ("127.0.0.1:1", Some("127.0.0.1")),
            ("[::1]:8643", Some("::1")),
            ("[::1]", Some("::1")),
            ("", None),
            (":8643", None),
            ("localhost:", None),
            ("localhost:99999", None),
            ("localhost:1:2", None),
            ("[::1", None),
            ("[::1]x", None),
            ("[localhost]:1", None),
            ("evil.example@localhost", None),
            ("localhost/evil", None),
        ] {
            assert_eq!(host_name(host), name, "{host}");
        }
    }
}
