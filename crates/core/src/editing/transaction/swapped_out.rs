//! Checks a swapped-out file: is it the file that was read, or has another program saved in between?

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use super::holders::Holder;
use super::text;
use crate::editing::file_stamp::FileStamp;
use crate::editing::notebook_file::HALF_WRITTEN;
use crate::notebook::Document;

/// How long to wait for a process that has the file open for writing and writes nothing.
pub(super) const TIMEOUT: Duration = Duration::from_millis(300);

/// The time between two checks of the file during that wait.
const PAUSE: Duration = Duration::from_millis(5);

/// The content of a swapped-out file.
#[derive(Debug)]
pub(super) enum SwappedOut {
    /// The text that was read; no process will write into the file.
    Same,
    /// A process has the file open for writing and has not finished; its name, if known.
    Held(Option<String>),
    /// A save of another program in between.
    Saved {
        saved: Box<Document>,
        stamp: FileStamp,
        /// Whether a process still has the file open for writing.
        is_open: bool,
    },
    /// The file is not a notebook.
    Broken,
}

/// Checks a file that had this stamp when it was read, and this text if that is known.
///
/// Waits while a process writes into the file; at most `timeout` if it has written nothing yet.
pub(super) fn check(
    file: &File,
    stamp: &FileStamp,
    text: Option<&Document>,
    timeout: Duration,
) -> io::Result<SwappedOut> {
    let begun = Instant::now();
    let mut holder = None::<Holder>;
    loop {
        let found = file.metadata()?;
        // This comes before the comparison: all writes of a process that has closed the file are
        // then in it.
        holder = match holder.filter(|holder| holder.is_open_for_writing(&found)) {
            None => Holder::of(&found),
            same => same,
        };
        let is_open = holder.is_some();
        let now = FileStamp::of(&file.metadata()?);
        let same = stamp.proves(&now)
            || match text {
                Some(text) => text::is_in(file, text)?,
                None => false,
            };
        let waited = begun.elapsed();
        if same {
            if !is_open {
                return Ok(SwappedOut::Same);
            }
            if waited >= timeout {
                return Ok(SwappedOut::Held(holder.map(|holder| holder.name())));
            }
        } else {
            let is_over = match is_open {
                true => waited >= (timeout * 8).min(HALF_WRITTEN),
                // A process that is not visible here may be writing.
                false => waited >= HALF_WRITTEN,
            };
            if !is_open || is_over {
                match Document::parse(text::read(file)?) {
                    Ok(saved) if now.agrees(&FileStamp::of(&file.metadata()?)) => {
                        let (saved, stamp) = (Box::new(saved), now);
                        return Ok(SwappedOut::Saved {
                            saved,
                            stamp,
                            is_open,
                        });
                    }
                    Err(fault) if !is_open && (is_over || !fault.cut_off) => {
                        return Ok(SwappedOut::Broken);
                    }
                    // The file is incomplete, or was written during the read.
                    _ if is_over => {
                        return Ok(SwappedOut::Held(holder.map(|holder| holder.name())));
                    }
                    _ => {}
                }
            }
        }
        std::thread::sleep(PAUSE);
    }
}
