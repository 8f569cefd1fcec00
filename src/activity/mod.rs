//! Who acts on a kernel and a notebook, and what they did.

pub mod actor;
pub mod company;
pub mod notification;
pub mod participants;
pub mod zone;
