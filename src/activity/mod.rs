//! Who acts on a kernel and a notebook, and what they did.

pub mod actor;
pub mod company;
pub mod participants;
pub mod since;
pub mod zone;
