//! Connection files: the addresses of a kernel's five sockets and the key that signs its messages.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::{Channel, SigningKey};

/// The maximum length of a Unix socket's path on this system, in bytes.
///
/// `sockaddr_un` holds 108 bytes on Linux and 104 on other systems, including the final NUL.
pub const SOCKET_PATH_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// The validated content of a connection file.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// The kind of the sockets.
    pub transport: Transport,
    /// The address for TCP; the prefix of the paths for Unix sockets.
    pub ip: String,
    /// The five ports (for Unix sockets: the five suffixes).
    pub ports: Ports,
    /// The key that signs every message; an empty one leaves them unsigned.
    pub key: SigningKey,
    /// The kernelspec's name, if the file has it.
    pub kernel_name: Option<String>,
}

/// The kind of a kernel's sockets. The default is what `nb` gives its own kernels; a connection file that names
/// none means TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// `tcp://ip:port`
    Tcp,
    /// `ipc://ip-port`: Unix sockets; the file's `ip` is the prefix of their paths.
    #[default]
    Ipc,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Ipc => "ipc",
        })
    }
}

/// The ports of the five sockets, each from 1 to 65535.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "each is named for its channel")]
pub struct Ports {
    #[serde(rename = "shell_port")]
    pub shell: u16,
    #[serde(rename = "iopub_port")]
    pub iopub: u16,
    #[serde(rename = "stdin_port")]
    pub stdin: u16,
    #[serde(rename = "control_port")]
    pub control: u16,
    #[serde(rename = "hb_port")]
    pub hb: u16,
}

impl Ports {
    fn of(self, channel: Channel) -> u16 {
        match channel {
            Channel::Shell => self.shell,
            Channel::Iopub => self.iopub,
            Channel::Stdin => self.stdin,
            Channel::Control => self.control,
            Channel::Heartbeat => self.hb,
        }
    }
}

/// The address of one socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// An address and a port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// Why a connection file cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ConnectionFileError {
    #[error("it is not JSON")]
    NotJson(#[source] serde_json::Error),
    #[error("it is not a JSON object")]
    NotAnObject,
    #[error("it has no \"{0}\"")]
    Missing(&'static str),
    #[error("its \"{field}\" is {value}, not {expected}")]
    Field {
        field: &'static str,
        value: String,
        expected: &'static str,
    },
    #[error("its signature scheme \"{0}\" is not supported (only hmac-sha256 is)")]
    Scheme(String),
    #[error(
        "it asks for encryption (\"{0}\"), which is not supported; nothing is served in the clear in its stead"
    )]
    Curve(String),
    #[error("two of its ports are {0}")]
    SamePort(u16),
    #[error("its socket path {path} has more than {SOCKET_PATH_MAX} bytes")]
    PathTooLong { path: String },
}

impl ConnectionInfo {
    /// Parses the content of a connection file; unknown fields are ignored.
    ///
    /// # Errors
    /// Says which field is missing or wrong. The key is never part of the message.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConnectionFileError> {
        let value: Value = serde_json::from_slice(bytes).map_err(ConnectionFileError::NotJson)?;
        let Value::Object(mut fields) = value else {
            return Err(ConnectionFileError::NotAnObject);
        };
        text(&fields, "key")?;
        let key = match fields.remove("key") {
            Some(Value::String(key)) => Zeroizing::new(key),
            _ => Zeroizing::default(),
        };
        let fields = &fields;
        // jupyter_client 8.10 may offer CurveZMQ to kernels whose kernelspec declares it; nb's does not.
        if let Some(name) = fields.keys().find(|name| name.starts_with("curve_")) {
            return Err(ConnectionFileError::Curve(name.clone()));
        }
        let transport = match text(fields, "transport")?.unwrap_or("tcp") {
            "tcp" => Transport::Tcp,
            "ipc" => Transport::Ipc,
            other => return Err(wrong("transport", other, "\"tcp\" or \"ipc\"")),
        };
        let ip = text(fields, "ip")?.ok_or(ConnectionFileError::Missing("ip"))?;
        let ports = Ports {
            shell: port(fields, "shell_port")?,
            iopub: port(fields, "iopub_port")?,
            stdin: port(fields, "stdin_port")?,
            control: port(fields, "control_port")?,
            hb: port(fields, "hb_port")?,
        };
        let mut all = Channel::ALL.map(|channel| ports.of(channel));
        all.sort_unstable();
        if let Some(pair) = all.windows(2).find(|pair| pair.first() == pair.last()) {
            return Err(ConnectionFileError::SamePort(
                pair.first().copied().unwrap_or_default(),
            ));
        }
        let scheme = text(fields, "signature_scheme")?.unwrap_or("");
        if !key.is_empty() && !matches!(scheme, "" | "hmac-sha256") {
            return Err(ConnectionFileError::Scheme(scheme.to_owned()));
        }
        let info = Self {
            transport,
            ip: ip.to_owned(),
            ports,
            key: SigningKey::new(key.as_bytes()),
            kernel_name: text(fields, "kernel_name")?
                .filter(|name| !name.is_empty())
                .map(str::to_owned),
        };
        info.check_address()?;
        Ok(info)
    }

    /// Returns the address of a channel's socket.
    pub fn endpoint(&self, channel: Channel) -> Endpoint {
        let port = self.ports.of(channel);
        match self.transport {
            Transport::Tcp => {
                let ip = tcp_address(&self.ip).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
                Endpoint::Tcp(SocketAddr::new(ip, port))
            }
            Transport::Ipc => Endpoint::Unix(PathBuf::from(format!("{}-{port}", self.ip))),
        }
    }

    /// Returns the text of a connection file with this content, including the key.
    pub fn to_json(&self) -> Zeroizing<String> {
        #[derive(Serialize)]
        struct File<'a> {
            #[serde(flatten)]
            ports: Ports,
            ip: &'a str,
            key: &'a str,
            transport: Transport,
            signature_scheme: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            kernel_name: Option<&'a str>,
        }
        let file = File {
            ports: self.ports,
            ip: &self.ip,
            key: self.key.expose(),
            transport: self.transport,
            signature_scheme: "hmac-sha256",
            kernel_name: self.kernel_name.as_deref(),
        };
        // Large enough from the start: the buffers that a growing vector leaves behind are not wiped.
        let mut text = Vec::with_capacity(1 << 14);
        serde_json::to_writer_pretty(&mut text, &file).expect("strings and numbers are JSON");
        Zeroizing::new(String::from_utf8(text).expect("JSON is UTF-8"))
    }

    fn check_address(&self) -> Result<(), ConnectionFileError> {
        match self.transport {
            Transport::Tcp if tcp_address(&self.ip).is_none() => {
                Err(wrong("ip", &self.ip, "an IP address"))
            }
            Transport::Ipc if self.ip.is_empty() || self.ip.contains('\0') => {
                Err(wrong("ip", &self.ip, "the beginning of a path"))
            }
            // The longest suffix has five digits; the check does not depend on this file's own ports.
            Transport::Ipc if self.ip.len() + "-65535".len() > SOCKET_PATH_MAX => {
                Err(ConnectionFileError::PathTooLong {
                    path: format!("{}-N", self.ip),
                })
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp://{address}"),
            Self::Unix(path) => write!(f, "ipc://{}", path.display()),
        }
    }
}

/// Parses an address as Jupyter writes it: with or without brackets, `localhost`, `*` for all.
fn tcp_address(text: &str) -> Option<IpAddr> {
    match text {
        "localhost" => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        "*" => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        _ => text
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse()
            .ok(),
    }
}

fn text<'a>(
    fields: &'a Map<String, Value>,
    name: &'static str,
) -> Result<Option<&'a str>, ConnectionFileError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        // The value may be the key, so the error does not show it.
        Some(_) => Err(ConnectionFileError::Field {
            field: name,
            value: "no string".into(),
            expected: "a string",
        }),
    }
}

fn port(fields: &Map<String, Value>, name: &'static str) -> Result<u16, ConnectionFileError> {
    let value = fields.get(name).ok_or(ConnectionFileError::Missing(name))?;
    value
        .as_u64()
        .and_then(|number| u16::try_from(number).ok())
        .filter(|number| *number > 0)
        .ok_or_else(|| ConnectionFileError::Field {
            field: name,
            value: value.to_string(),
            expected: "a port from 1 to 65535",
        })
}

fn wrong(field: &'static str, value: &str, expected: &'static str) -> ConnectionFileError {
    ConnectionFileError::Field {
        field,
        value: format!("\"{value}\""),
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(change: &[(&str, Value)]) -> Vec<u8> {
        let mut value = serde_json::json!({
            "shell_port": 9002, "iopub_port": 9004, "stdin_port": 9003, "control_port": 9001, "hb_port": 9000,
            "ip": "127.0.0.1", "key": "secret", "transport": "tcp", "signature_scheme": "hmac-sha256",
            "kernel_name": "nb-shared", "unknown": {"a": 1}
        });
        for (name, new) in change {
            value[*name] = new.clone();
        }
        value.to_string().into_bytes()
    }

    fn fault(change: &[(&str, Value)]) -> String {
        ConnectionInfo::parse(&file(change))
            .expect_err("the file is wrong")
            .to_string()
    }

    #[test]
    fn endpoints_of_tcp_ipv6_and_ipc() {
        let info = ConnectionInfo::parse(&file(&[])).expect("a good file");
        assert_eq!(
            info.endpoint(Channel::Shell).to_string(),
            "tcp://127.0.0.1:9002"
        );
        for ip in ["::1", "[::1]"] {
            let info = ConnectionInfo::parse(&file(&[("ip", ip.into())])).expect("a good file");
            assert_eq!(
                info.endpoint(Channel::Heartbeat).to_string(),
                "tcp://[::1]:9000"
            );
        }
        let info = ConnectionInfo::parse(&file(&[
            ("transport", "ipc".into()),
            ("ip", "/tmp/k".into()),
        ]))
        .expect("good");
        assert_eq!(
            info.endpoint(Channel::Iopub),
            Endpoint::Unix("/tmp/k-9004".into())
        );
    }

    #[test]
    fn a_written_file_is_read_back() {
        let info = ConnectionInfo::parse(&file(&[])).expect("a good file");
        let reread = ConnectionInfo::parse(info.to_json().as_bytes()).expect("our own file");
        assert_eq!(
            (reread.ports, reread.ip, reread.key.expose()),
            (info.ports, info.ip, info.key.expose())
        );
        assert_eq!(reread.kernel_name.as_deref(), Some("nb-shared"));
    }

    #[test]
    fn faults_are_named() {
        assert_eq!(
            fault(&[("hb_port", 0.into())]),
            "its \"hb_port\" is 0, not a port from 1 to 65535"
        );
        assert_eq!(
            fault(&[("hb_port", 65536.into())]),
            "its \"hb_port\" is 65536, not a port from 1 to 65535"
        );
        assert_eq!(
            fault(&[("hb_port", 9001.into())]),
            "two of its ports are 9001"
        );
        assert_eq!(
            fault(&[("ip", "example.org".into())]),
            "its \"ip\" is \"example.org\", not an IP address"
        );
        assert_eq!(
            fault(&[("transport", "udp".into())]),
            "its \"transport\" is \"udp\", not \"tcp\" or \"ipc\""
        );
        assert!(fault(&[("signature_scheme", "hmac-md5".into())]).contains("hmac-md5"));
        assert!(fault(&[("curve_publickey", "x".into())]).contains("encryption"));
        assert!(
            fault(&[("transport", "ipc".into()), ("ip", "/x".repeat(60).into())])
                .contains("more than")
        );
        assert!(ConnectionInfo::parse(b"{\"shell_port\": 1").is_err());
        assert!(ConnectionInfo::parse(b"[]").is_err());
    }

    #[test]
    fn the_key_is_in_no_error_and_in_no_debug_text() {
        assert!(!fault(&[("key", serde_json::json!({"k": "hush"}))]).contains("hush"));
        let info = ConnectionInfo::parse(&file(&[])).expect("a good file");
        assert!(!format!("{info:?}").contains("secret"));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = ConnectionInfo::parse(&bytes);
        }
    }
}
