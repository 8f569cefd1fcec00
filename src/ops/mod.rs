//! The use cases, each once, in three rooms: [`kernels`], [`editing`], [`executions`]. Every adapter
//! calls these.

pub mod asker;
pub mod background;
pub mod causes;
pub mod company;
pub mod demo;
pub mod editing;
pub mod entry;
pub mod executions;
pub mod kernels;
pub mod log;
pub mod since;
pub mod zone;
