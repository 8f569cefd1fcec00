//! The pure parts of nb, and messages on their way through these parts.

#[path = "../../src/route/mod.rs"]
pub mod route;
#[path = "../../src/wire/mod.rs"]
pub mod wire;
#[path = "../../src/zmtp/mod.rs"]
pub mod zmtp;

pub mod traffic;
