//! Socket types, as a READY command announces them.

use std::fmt;

/// The socket type of our end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Accepts many peers, each with a routing identity.
    Router,
    /// Sends to its subscribers; gets their subscriptions.
    Xpub,
    /// Sends and receives freely.
    Dealer,
    /// Receives the topics to which it has subscribed.
    Sub,
    /// Sends a request, then awaits its reply. The caller must keep to this order.
    Req,
}

impl Role {
    /// Returns the value of the `Socket-Type` property.
    pub fn name(self) -> &'static str {
        match self {
            Self::Router => "ROUTER",
            Self::Xpub => "XPUB",
            Self::Dealer => "DEALER",
            Self::Sub => "SUB",
            Self::Req => "REQ",
        }
    }

    /// Returns whether a peer of this socket type may be connected to this one.
    pub(super) fn accepts(self, socket_type: &str) -> bool {
        let partners: &[&str] = match self {
            Self::Router => &["DEALER", "REQ", "ROUTER"],
            Self::Xpub => &["SUB", "XSUB"],
            Self::Dealer => &["ROUTER", "REP", "DEALER"],
            Self::Sub => &["PUB", "XPUB"],
            Self::Req => &["REP", "ROUTER"],
        };
        partners.contains(&socket_type)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
