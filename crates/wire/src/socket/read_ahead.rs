//! What a dialer has read and not delivered yet: messages in memory, and behind them bytes in a file without a name.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{BufMut, Bytes, BytesMut};

use super::spill::{Spill, SpillTo};
use crate::zmtp::{Connection, ConnectionEvent};

/// How many bytes are read at once for the file.
const READ: usize = 256 * 1024;

/// How many bytes stay in memory where the file takes none: its disk is full.
const WITHOUT_FILE: usize = 128 << 20;

/// What was read and not delivered yet, in this order.
#[derive(Default)]
pub(super) struct ReadAhead {
    /// The decoded messages.
    pub(super) events: VecDeque<ConnectionEvent>,
    /// Bytes that the file had.
    next: Bytes,
    /// The file.
    spill: Option<Spill>,
    /// Bytes that are not in the file: they were just read, or the file did not take them.
    last: BytesMut,
}

impl ReadAhead {
    pub(super) fn new(spill: Option<SpillTo>) -> Self {
        Self {
            spill: spill.map(Spill::new),
            ..Self::default()
        }
    }

    /// Returns how many bytes are not decoded yet.
    pub(super) fn undecoded(&self) -> usize {
        let spilled = self.spill.as_ref().map_or(0, Spill::len);
        let spilled = usize::try_from(spilled).unwrap_or(usize::MAX);
        self.next.len() + spilled + self.last.len()
    }

    /// Says whether more bytes may be read for the file.
    pub(super) fn takes_bytes(&self) -> bool {
        let has_room = |spill: &Spill| match self.last.is_empty() {
            true => spill.has_room(READ as u64),
            false => self.last.len() < WITHOUT_FILE,
        };
        self.spill.as_ref().is_some_and(has_room)
    }

    /// Returns the buffer for bytes that are read for the file; [`ReadAhead::spill`] follows.
    pub(super) fn space(&mut self) -> impl BufMut {
        self.last.reserve(READ);
        (&mut self.last).limit(READ)
    }

    /// Moves the bytes that were just read into the file. If that fails, they and what is read after them stay in memory
    /// until they are decoded.
    pub(super) fn spill(&mut self) {
        if let Some(spill) = &mut self.spill
            && (1..=READ).contains(&self.last.len())
            && spill.put(&[IoSlice::new(&self.last)]).is_ok()
        {
            self.last.clear();
        }
    }

    /// Gives the next bytes to a connection's decoder. Says whether there were any.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn decode(&mut self, connection: &mut Connection) -> io::Result<bool> {
        if self.next.is_empty() {
            self.next = match &mut self.spill {
                Some(spill) if !spill.is_empty() => spill.take()?.into(),
                _ => std::mem::take(&mut self.last).freeze(),
            };
        }
        if self.next.is_empty() {
            return Ok(false);
        }
        let mut space = connection.space();
        // No more than there is room for: the buffer would grow.
        let room = space.chunk_mut().len().min(self.next.len());
        space.put_slice(&self.next.split_to(room));
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zmtp::{FrameLimits, Role};

    #[test]
    fn where_the_file_takes_nothing_a_limited_number_of_bytes_stays_in_memory_in_order() {
        let mut ahead = ReadAhead::new(Some(SpillTo {
            folder: "/nonexistent".into(),
            bytes: 1 << 30,
        }));
        let mut count = 0_u8;
        while ahead.takes_bytes() {
            ahead.space().put_bytes(count, READ);
            ahead.spill();
            count = count.wrapping_add(1);
        }
        assert_eq!(ahead.undecoded(), WITHOUT_FILE);
        let mut connection = Connection::new(Role::Sub, Bytes::new(), FrameLimits::default());
        assert!(ahead.decode(&mut connection).expect("no file is read"));
        let decoded = WITHOUT_FILE - ahead.next.len();
        assert!((1..READ).contains(&decoded), "{decoded}");
        let number = |at: usize| ((decoded + at) / READ % 256) as u8;
        let places = (0..ahead.next.len()).step_by(1000);
        assert!({ places }.all(|at| ahead.next[at] == number(at)));
        assert!(ahead.takes_bytes());
    }
}
