//! The use cases, each once. Every adapter calls these.

pub mod asker;
pub mod attach;
pub mod background;
pub mod company;
pub mod consent;
pub mod create;
pub mod demo;
pub mod dotenv;
pub mod everywhere;
pub mod fold;
pub mod idle;
pub mod interrupt;
pub mod life;
pub mod open;
mod open_error;
mod program;
mod ready;
pub mod rename;
pub mod restart;
pub mod run;
pub mod serve;
pub mod share;
pub mod shutdown;
pub mod since;
mod start;
pub mod status;
pub mod target;
