//! Kernelspecs, and the choice of a notebook's kernel.

pub mod allow_list;
pub mod candidates;
pub mod ipykernel;
pub mod jupyter_paths;
mod kernelspec;
pub mod prefix;
pub mod quirks;
pub mod selection;

pub use kernelspec::{
    InstalledSpec, PROXY, SHARED, SpecError, check, chooses_ports, command, environment, find,
    installed, is_proxy, is_python, is_shared_name, kernels, list, packaged_proxy, proxy_program,
    read, shared_display_name, shared_name, starts_proxy,
};
pub(super) use kernelspec::{prefix, substitute};
