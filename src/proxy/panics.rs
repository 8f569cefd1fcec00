//! Panics of this process, noticed on all threads so that the proxy can recover.
//!
//! A panic ends its task and loses the message that led to it: the client that awaits the answer would wait
//! for ever. So every outstanding request gets an error, and the connections to the kernel are made again;
//! after the third panic the process exits, with an exit code that says so.

use std::panic::Location;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// Notifies the loop of this process's proxy of a panic.
pub(super) static HAPPENED: Notify = Notify::const_new();

/// The source position of the last panic. Its message is not stored, as it may contain a user's code.
static LOCATION: Mutex<Option<String>> = Mutex::new(None);

/// The number of panics after which the process exits.
pub(super) const PANICS_MAX: u32 = 3;

/// Installs the panic hook, for all threads.
pub(super) fn begin() {
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let location = panic.location().map(Location::to_string);
        *LOCATION.lock().unwrap_or_else(PoisonError::into_inner) = location;
        HAPPENED.notify_one();
        default_hook(panic);
    }));
}

/// Removes and returns the source position of the last panic.
pub(super) fn take_location() -> String {
    let location = LOCATION
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    location.unwrap_or_else(|| "an unknown place".to_owned())
}
