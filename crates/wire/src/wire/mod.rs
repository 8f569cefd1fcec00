//! Jupyter messages as bytes: parsed as far as needed, verified, re-signed and passed on.
//!
//! Nothing here does I/O. Frames from a peer are [`Unverified`] until a [`SigningKey`] has
//! turned them into a [`Verified`] message; only that can be routed:
//!
//! ```compile_fail
//! # use nb_wire::wire::{SigningKey, Unverified, Verified};
//! fn route(message: Verified) {}
//! let message = Unverified::parse(Vec::new()).unwrap();
//! route(message); // not verified: does not compile
//! ```
//!
//! A message that passes through keeps its bytes: JSON is parsed, but never serialised again. Source of the
//! format: "Messaging in Jupyter", "The Wire Protocol".

mod channel;
mod connection;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
mod header;
mod key;
mod message;
mod missing;
mod receive;
mod replay;

pub use channel::Channel;
pub use connection::{
    ConnectionFileError, ConnectionInfo, Endpoint, Ports, SOCKET_PATH_MAX, Transport,
};
pub use header::{FACTS, Header, HeaderError, NewHeader, splice_session};
pub use key::{BadSignature, SigningKey};
pub use message::{DELIMITER, Malformed, Unverified, Verified};
pub use missing::MissingMessages;
pub use receive::{MessageFault, Rejected};
pub use replay::Replays;
