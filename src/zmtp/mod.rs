//! ZMTP 3.x as a state machine: greeting, NULL mechanism, frames, commands. Pure.
//!
//! [`Connection`] takes the bytes that a peer sent and gives out [`Event`]s and the bytes that
//! must be written back; [`Batch`] turns messages into the slices of one vectored write. Nothing
//! here reads, writes, awaits or asks the time; `socket` is the shell that does.
//!
//! What is promised:
//! - Any split of a byte stream gives the same events.
//! - A limit is checked before the memory is asked for: what is held grows with the bytes that
//!   came, never with the length that was announced.
//! - The content of a frame over [`LARGE_FRAME`] bytes is received straight into a buffer of its
//!   own and never copied afterwards; smaller frames are slices of the read buffer.
//! - Whatever bytes come, the answer is an [`Error`] for that connection, never a panic.
//!
//! Spoken are ZMTP 3.0 (<https://rfc.zeromq.org/spec/23/>) and 3.1
//! (<https://rfc.zeromq.org/spec/37/>). ZMTP 1.0 and 2.0 and every mechanism but NULL are refused.

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
pub use connection::{Connection, Event, Peer};
pub use decoder::{LARGE_FRAME, Limits};
pub use error::Error;
pub use message_ends::MessageEnds;
pub use role::Role;

/// The longest routing identity that a socket can announce, in bytes.
pub const IDENTITY_MAX: usize = 255;

/// The frames of one message, without a routing identity.
pub type Message = Vec<bytes::Bytes>;
