//! The project folder `.nb/`: where it is, and what is remembered in it.
//!
//! One folder per project holds `state.json` (which notebook has which kernel), the connection
//! files, the kernels' logs, `proxy.log`, who is joined and the journal. The folder is private to
//! its user (0700, files 0600) and keeps itself out of version control.
//!
//! Whole files are replaced atomically; append-only ones grow by one write a record under their
//! lock. Fields that this version does not know are kept. A damaged file is an error that names
//! the file and the remedy; it is never overwritten. Whether a recorded process still lives is
//! not judged here: that is `kernel::process`.

pub mod beneath;
mod config;
pub mod confined;
mod connection_report;
pub mod counters;
pub mod cursor;
pub mod displays;
mod error_category;
pub mod event;
mod facts;
mod folder;
mod followed;
mod free_space;
mod fresh;
mod host;
mod identity;
pub mod jobs;
pub mod joined;
pub mod ledger;
pub mod live_editor;
mod lock;
mod moved;
pub mod names;
pub mod objects;
pub mod questions;
mod real_path;
pub mod registry;
mod remove;
mod root;
mod sandbox;
mod sandbox_folders;
pub mod save;
pub mod scratch;
mod session;
pub mod session_name;
mod state;
mod state_folder;
mod stranger;
pub mod temporary;
mod token;
mod user_file;
mod watch;
pub mod written;

pub use config::{Config, ConfigError, JournalConfig, OnRestart, StartupCode};
pub use connection_report::{ConnectionReport, ConnectionState};
pub use error_category::ErrorCategory;
pub use facts::{FACTS_BYTES, StoredFacts};
pub use folder::{Project, ProjectError};
pub use followed::FollowedProject;
pub use free_space::free_bytes;
pub use fresh::fresh_id;
pub use host::{HostIdentity, Relation, boot_id, pid_namespace};
pub use identity::{disown, share_records};
pub use lock::{Lock, NotLocked, lock_notebook, try_lock_notebook};
pub use moved::Moves;
pub use real_path::real_path;
pub use remove::remove_tree;
pub use root::{notebook_path, project_folders};
pub use sandbox::{Mechanism, Missing, Sandbox, SandboxCheck, Strictness};
pub use session::{
    AttachedKernel, Backend, Confinement, Container, Ended, Exit, InterruptMode, KernelSettings,
    LocalKernel, ProcessStamp, RealSpec, RemoteKernel, ResourceLimits, Session, SharedKernel,
    Status, UnknownBackend,
};
pub use state::{State, StateError};
pub use state_folder::state_folder;
pub use token::{TokenOf, server_token};
pub use user_file::{read_private, replace_private, user_folder};
pub use watch::FolderWatch;
