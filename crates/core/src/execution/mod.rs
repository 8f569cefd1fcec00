//! Runs code on a kernel: jobs, whose recorders outlive the command that asked for them, and
//! inspections of the kernel beside the running cell.

pub mod category;
pub mod cell_lookup;
pub mod complete;
mod ending;
pub mod exec;
pub mod flush;
pub mod fold;
pub mod follow;
pub mod fresh_run;
pub mod imports;
pub mod inspect;
mod into_notebook;
pub mod lost;
mod observed;
pub mod peek;
pub mod queue;
pub mod recorder;
pub mod replay;
pub mod reply;
mod reply_outputs;
pub mod run;
pub mod vars;

pub use recorder::salvage;
