//! ZMTP 3.x as a state machine: greeting, NULL mechanism, frames, commands. Pure.
//!
//! [`Connection`] takes the bytes that a peer sent and returns [`ConnectionEvent`]s and the bytes that must
//! be written back; [`Batch`] converts messages into the slices of one vectored write. Nothing here reads,
//! writes, awaits or reads the clock; `socket` does that.
//!
//! Promises:
//! - Any split of a byte stream gives the same events.
//! - A limit is checked before memory is allocated: memory grows with the received bytes, never with the
//!   announced length.
//! - The content of a frame over [`LARGE_FRAME`] bytes is received straight into a separate buffer and never
//!   copied afterwards; smaller frames are slices of the read buffer.
//! - Any sequence of bytes leads to an [`Error`] for that connection at worst, never to a panic.
//!
//! It speaks ZMTP 3.0 (<https://rfc.zeromq.org/spec/23/>) and 3.1 (<https://rfc.zeromq.org/spec/37/>). ZMTP
//! 1.0 and 2.0 and every mechanism except NULL are refused.

mod batch;
mod command;
mod connection;
mod decoder;
mod error;
mod frame;
mod greeting;
mod message_ends;
mod role;

pub use batch::{Batch, Encoder, message_len};
pub use connection::{Connection, ConnectionEvent, Peer};
pub use decoder::{FrameLimits, LARGE_FRAME};
pub use error::Error;
pub use message_ends::MessageEnds;
pub use role::Role;

/// The longest routing identity that a socket can announce, in bytes.
pub const IDENTITY_MAX: usize = 255;

/// The frames of one message, without a routing identity.
pub type Message = Vec<bytes::Bytes>;
