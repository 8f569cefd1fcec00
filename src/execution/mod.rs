//! What runs on a kernel: jobs with a recorder of their own, that outlive whoever asked; and looks
//! into the kernel beside them.

mod ending;
pub mod exec;
pub mod flush;
pub mod fold;
pub mod follow;
mod heard;
mod into_notebook;
pub mod look;
pub mod lost;
pub(super) mod meant;
mod observed;
pub mod peek;
pub(super) mod recorder;
pub mod replay;
pub mod reply;
pub mod run;
mod signs;
pub mod stale;
pub mod vars;

pub use recorder::salvage;
