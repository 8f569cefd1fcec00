//! Jupyter servers on other machines: their records, requests to them, and their failures.
//!
//! A [`ServerRecord`] names a server and says where its secrets are stored; [`ServerClient`] speaks its REST interface;
//! [`ServerError`] says in a line what failed and what to do. Secrets are in headers only, and in no
//! message.

mod address;
pub mod channels;
mod client;
mod contents;
pub mod copy;
pub mod credential;
mod discovery;
mod download;
mod error;
pub mod gateway;
mod headers;
mod hub;
pub mod models;
mod proxy;
mod record;
pub mod registry;
mod secret;
pub mod websocket;

pub use address::{ServerAddress, parse_address};
pub use client::{ServerClient, UpgradedConnection, http_builder};
pub use download::download;
pub use error::{ServerError, ServerErrorKind};
pub use record::{CredentialSource, SecretPlace, ServerKind, ServerRecord, is_server_name};
pub use secret::Secret;
