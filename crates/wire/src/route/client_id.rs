//! The identity of a client.

use std::fmt;

use bytes::Bytes;

/// A client's routing identity, as the ROUTER sockets know it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(Bytes);

impl ClientId {
    /// Makes the id of a client from the identity that its connection announced, or from the one generated
    /// for it.
    pub fn new(identity: Bytes) -> Self {
        Self(identity)
    }

    /// Returns the identity's bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Returns whether the identity was generated: such a client cannot come back.
    ///
    /// ZMTP reserves identities that begin with a zero byte for generated ones.
    pub fn is_anonymous(&self) -> bool {
        self.0.first() == Some(&0)
    }
}

impl fmt::Display for ClientId {
    /// Shows at most twelve characters that are safe in a log line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
        if !self.0.is_empty() && self.0.iter().all(plain) {
            let shown = self.0.get(..12).unwrap_or(&self.0);
            f.write_str(&String::from_utf8_lossy(shown))
        } else {
            let shown = self.0.get(..6).unwrap_or(&self.0);
            write!(f, "0x")?;
            shown.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
        }
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientId({self})")
    }
}
