//! Panics of this process: noticed wherever they happen, so that what they left can be put right.
//!
//! A panic ends the task that it happens in and loses the message that led to it: whoever awaits the answer
//! would wait for ever. So every outstanding request gets an error, and the connections to the kernel are made
//! anew; after the third panic the process ends itself, and says so by its exit code.

use std::panic::Location;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// Says that there was a panic, for the loop of the one proxy of this process.
pub(super) static HAPPENED: Notify = Notify::const_new();

/// Where in the source the last one was. Never its text, in which a user's code may stand.
static PLACE: Mutex<Option<String>> = Mutex::new(None);

/// After so many panics the process ends.
pub(super) const MOST: u32 = 3;

/// Notices panics from now on, of all threads.
pub(super) fn begin() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(Location::to_string);
        *PLACE.lock().unwrap_or_else(PoisonError::into_inner) = place;
        HAPPENED.notify_one();
        before(panic);
    }));
}

/// Returns where the last panic was.
pub(super) fn place() -> String {
    let place = PLACE.lock().unwrap_or_else(PoisonError::into_inner).take();
    place.unwrap_or_else(|| "an unknown place".to_owned())
}
