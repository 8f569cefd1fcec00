//! The look at what was swapped out: is it what was read, or did somebody save in between?

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use super::holders::Holder;
use super::text;
use crate::editing::file_stamp::FileStamp;
use crate::editing::notebook_file::HALF_WRITTEN;
use crate::notebook::Document;

/// How long one is waited for who has the file open for writing and writes nothing.
pub(super) const PATIENCE: Duration = Duration::from_millis(300);

/// The time between two checks of the file meanwhile.
const LOOK: Duration = Duration::from_millis(5);

/// What is in the file that was swapped out.
#[derive(Debug)]
pub(super) enum SwappedOut {
    /// What was read; and nobody will write into it.
    Same,
    /// Somebody has it open for writing and is not done; who, where that is known.
    Held(Option<String>),
    /// What somebody saved in between.
    Saved {
        saved: Box<Document>,
        stamp: FileStamp,
        /// Whether somebody has it open for writing still.
        held: bool,
    },
    /// Something else than a notebook.
    Broken,
}

/// Looks at a file that was read when it had this stamp, and this text where that is known.
///
/// One who writes into it is waited for, not longer than `patience` if nothing was written yet.
pub(super) fn look(
    file: &File,
    stamp: &FileStamp,
    text: Option<&Document>,
    patience: Duration,
) -> io::Result<SwappedOut> {
    let begun = Instant::now();
    let mut holder = None::<Holder>;
    loop {
        let found = file.metadata()?;
        // Looked for before the bytes are: who lets go has written them.
        holder = match holder.filter(|holder| holder.still(&found)) {
            None => Holder::of(&found),
            same => same,
        };
        let held = holder.is_some();
        let now = FileStamp::of(&file.metadata()?);
        let same = stamp.proves(&now)
            || match text {
                Some(text) => text::is_in(file, text)?,
                None => false,
            };
        let waited = begun.elapsed();
        if same {
            if !held {
                return Ok(SwappedOut::Same);
            }
            if waited >= patience {
                return Ok(SwappedOut::Held(holder.map(|holder| holder.name())));
            }
        } else {
            let is_over = match held {
                true => waited >= (patience * 8).min(HALF_WRITTEN),
                // Perhaps by somebody who is not seen.
                false => waited >= HALF_WRITTEN,
            };
            if !held || is_over {
                match Document::parse(text::read(file)?) {
                    Ok(saved) if now.agrees(&FileStamp::of(&file.metadata()?)) => {
                        let (saved, stamp) = (Box::new(saved), now);
                        return Ok(SwappedOut::Saved { saved, stamp, held });
                    }
                    Err(fault) if !held && (is_over || !fault.cut_off) => {
                        return Ok(SwappedOut::Broken);
                    }
                    // Half written, or written while it was read.
                    _ if is_over => {
                        return Ok(SwappedOut::Held(holder.map(|holder| holder.name())));
                    }
                    _ => {}
                }
            }
        }
        std::thread::sleep(LOOK);
    }
}
