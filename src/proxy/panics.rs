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
static PLACE: Mutex<Option<String>> = Mutex::new(None);

/// The number of panics after which the process exits.
pub(super) const MOST: u32 = 3;

/// Installs the panic hook, for all threads.
pub(super) fn begin() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(Location::to_string);
        *PLACE.lock().unwrap_or_else(PoisonError::into_inner) = place;
        HAPPENED.notify_one();
        before(panic);
    }));
}

/// Returns the source position of the last panic.
pub(super) fn place() -> String {
    let place = PLACE.lock().unwrap_or_else(PoisonError::into_inner).take();
    place.unwrap_or_else(|| "an unknown place".to_owned())
}
