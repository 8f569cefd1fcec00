//! The part that a socket plays, as its READY command announces it.

use std::fmt;

/// Our own part in a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Takes many peers, each with a routing identity.
    Router,
    /// Sends to whom subscribed; sees the subscriptions.
    Xpub,
    /// Sends and receives freely.
    Dealer,
    /// Receives what it subscribed to.
    Sub,
    /// Sends a request, then awaits its reply. The rule is the caller's to keep.
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

    /// Returns whether a peer of this socket type may talk with us.
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
