//! The queue of messages to one peer, and how it is written.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::AsyncWrite;

use super::spill::{Spill, SpillTo};
use crate::zmtp::{Batch, Message, MessageEnds, message_len};

/// The maximum number of slices in one vectored write; `IOV_MAX` on Linux and the BSDs.
const SLICES_MAX: usize = 1024;

/// Up to this many slices are written from an array on the stack.
const SLICES_FEW: usize = 8;

/// A batch that has this many bytes takes no further message.
const BATCH_BYTES: usize = 128 * 1024;

/// The capacity in messages that an empty queue keeps.
const QUEUE_KEPT: usize = 1024;

/// The maximum number of bytes of the protocol's own answers that are queued before all is written: a peer that sends
/// PINGs and reads nothing gets no more.
const RAW_MAX: usize = 16 * 1024;

/// The memory that a message and a frame take besides their bytes, roughly.
const MESSAGE_OVERHEAD: usize = 128;
const FRAME_OVERHEAD: usize = 32;

/// Returns how many bytes of memory a message takes while it waits.
pub(super) fn message_cost(message: &Message) -> usize {
    message_len(message) + MESSAGE_OVERHEAD + FRAME_OVERHEAD * message.len()
}

/// The queue to one peer, with a budget; with a spill, messages beyond the budget wait on disk.
#[derive(Debug)]
pub(super) struct Outbox {
    budget: usize,
    cost: usize,
    /// Its messages come after all of `queue`.
    spill: Option<Spill>,
    /// In order; the first `batched` items are also in `batch`, until they are wholly written.
    queue: VecDeque<Queued>,
    batched: usize,
    batch: Batch,
    /// How many bytes of the first item are written.
    written: usize,
    /// How many messages are not wholly written, in memory or on disk.
    unread: u64,
    /// How many bytes of [`Item::Raw`] were queued since the outbox was last empty.
    raw: usize,
    /// Finds the ends of messages in bytes that are read back from the disk.
    ends: MessageEnds,
}

/// An item of the queue.
#[derive(Debug)]
pub(super) enum Item {
    Own(Message),
    /// One message for many subscribers.
    Shared(Rc<Message>),
    /// One message for many subscribers, short enough to be encoded once.
    Encoded(Bytes),
    /// Whole frames of the protocol itself.
    Raw(Bytes),
    /// Part of the bytes that were on disk; it need not begin or end with a message.
    Spilled(Bytes),
}

impl Item {
    /// Returns how many messages the item has; items that were on disk are counted there.
    fn messages(&self) -> u64 {
        match self {
            Self::Own(_) | Self::Shared(_) | Self::Encoded(_) => 1,
            Self::Raw(_) | Self::Spilled(_) => 0,
        }
    }

    fn encode(&self, batch: &mut Batch) {
        match self {
            Self::Own(message) => batch.push(message),
            Self::Shared(message) => batch.push(message),
            Self::Encoded(bytes) | Self::Raw(bytes) | Self::Spilled(bytes) => batch.push_raw(bytes),
        }
    }
}

#[derive(Debug)]
struct Queued {
    item: Item,
    wire_len: usize,
    cost: usize,
}

impl Outbox {
    pub(super) fn new(budget: usize) -> Self {
        Self {
            budget,
            cost: 0,
            spill: None,
            queue: VecDeque::new(),
            batched: 0,
            batch: Batch::default(),
            written: 0,
            unread: 0,
            raw: 0,
            ends: MessageEnds::default(),
        }
    }

    /// Like [`Outbox::new`], with a file for messages beyond the budget.
    pub(super) fn spilling(budget: usize, to: SpillTo) -> Self {
        Self {
            spill: Some(Spill::new(to)),
            ..Self::new(budget)
        }
    }

    /// Returns how many bytes are queued, in memory and on disk.
    pub(super) fn cost(&self) -> usize {
        let spilled = usize::try_from(self.spilled()).unwrap_or(usize::MAX);
        self.cost.saturating_add(spilled)
    }

    /// Returns how many bytes are on disk.
    pub(super) fn spilled(&self) -> u64 {
        self.spill.as_ref().map_or(0, Spill::len)
    }

    /// Returns how many messages are not wholly written.
    pub(super) fn unread(&self) -> u64 {
        self.unread
    }

    /// Returns whether at most half of the budget is used.
    pub(super) fn has_room(&self) -> bool {
        self.cost <= self.budget / 2
    }

    /// Returns whether everything is written.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && !self.has_spilled()
    }

    fn has_spilled(&self) -> bool {
        self.spill.as_ref().is_some_and(|spill| !spill.is_empty())
    }

    /// Returns whether a message is partly written.
    pub(super) fn is_amid_message(&self) -> bool {
        self.written > 0
    }

    /// Queues an item, or returns it when the budget is used up.
    pub(super) fn push(&mut self, item: Item) -> Result<(), Item> {
        let (wire_len, frames) = match &item {
            Item::Own(message) => (message_len(message), message.len()),
            Item::Shared(message) => (message_len(message), message.len()),
            Item::Encoded(bytes) | Item::Raw(bytes) | Item::Spilled(bytes) => (bytes.len(), 0),
        };
        let cost = wire_len + MESSAGE_OVERHEAD + FRAME_OVERHEAD * frames;
        if matches!(item, Item::Raw(_)) {
            if self.raw + wire_len > RAW_MAX {
                return Err(item);
            }
            self.raw += wire_len;
        }
        let is_full = !self.queue.is_empty() && self.cost + cost > self.budget;
        if is_full || self.has_spilled() {
            return self.push_to_disk(item);
        }
        self.unread += item.messages();
        self.add(item, wire_len, cost);
        Ok(())
    }

    /// Puts an item on disk, or returns it if there is no room.
    fn push_to_disk(&mut self, item: Item) -> Result<(), Item> {
        let Some(spill) = &mut self.spill else {
            return Err(item);
        };
        let mut batch = Batch::default();
        item.encode(&mut batch);
        match spill.put(&batch.io_slices(usize::MAX)) {
            Ok(()) => {
                self.unread += item.messages();
                Ok(())
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::QuotaExceeded {
                    tracing::warn!(%error, "messages that a client has not read could not be written to disk");
                }
                Err(item)
            }
        }
    }

    /// Moves items from the disk back into memory, as many as there is room for.
    fn load_spilled(&mut self) -> io::Result<()> {
        while self.has_room()
            && let Some(spill) = &mut self.spill
            && !spill.is_empty()
        {
            let chunk = Bytes::from(spill.take()?);
            let len = chunk.len();
            self.add(Item::Spilled(chunk), len, len + MESSAGE_OVERHEAD);
        }
        Ok(())
    }

    fn add(&mut self, item: Item, wire_len: usize, cost: usize) {
        self.cost += cost;
        self.queue.push_back(Queued {
            item,
            wire_len,
            cost,
        });
    }

    /// Returns whether a message is not wholly written.
    pub(super) fn has_messages(&self) -> bool {
        let mut queue = self.queue.iter();
        queue.any(|queued| !matches!(queued.item, Item::Raw(_))) || self.has_spilled()
    }

    /// Removes and returns every message that is not wholly written, in order, and drops the other items:
    /// shared messages and the protocol's own answers.
    pub(super) fn take(&mut self) -> Vec<Message> {
        self.batch.clear();
        self.batched = 0;
        self.written = 0;
        self.cost = 0;
        self.unread = 0;
        self.raw = 0;
        std::mem::take(&mut self.queue)
            .into_iter()
            .filter_map(|queued| match queued.item {
                Item::Own(message) => Some(message),
                Item::Shared(_) | Item::Encoded(_) | Item::Raw(_) | Item::Spilled(_) => None,
            })
            .collect()
    }

    /// Writes until the queue is empty, with one vectored write for each batch.
    pub(super) fn poll_write(
        &mut self,
        writer: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.batch.is_empty() {
                self.load_spilled()?;
                self.fill();
                if self.batch.is_empty() {
                    return Poll::Ready(Ok(()));
                }
            }
            let mut few = [IoSlice::new(&[]); SLICES_FEW];
            let many;
            let slices = if self.batch.slices() > SLICES_FEW {
                many = self.batch.io_slices(SLICES_MAX);
                &many
            } else {
                let count = self.batch.put_slices(&mut few);
                few.get(..count).unwrap_or_default()
            };
            let written = ready!(Pin::new(&mut *writer).poll_write_vectored(cx, slices))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.batch.advance(written);
            self.record_written(written);
        }
    }

    fn fill(&mut self) {
        while let Some(queued) = self.queue.get(self.batched)
            && self.batch.len() < BATCH_BYTES
            && self.batch.slices() < SLICES_MAX
        {
            queued.item.encode(&mut self.batch);
            self.batched += 1;
        }
    }

    fn record_written(&mut self, written: usize) {
        let mut rest = written;
        while let Some(first) = self.queue.front()
            && self.batched > 0
        {
            let part = rest.min(first.wire_len - self.written);
            if let Item::Spilled(bytes) = &first.item {
                let bytes = bytes.get(self.written..self.written + part);
                self.unread -= self.ends.count(bytes.unwrap_or_default());
            }
            self.written += part;
            rest -= part;
            if self.written < first.wire_len {
                break;
            }
            self.written = 0;
            self.cost -= first.cost;
            self.batched -= 1;
            if let Some(Queued { item, .. }) = self.queue.pop_front() {
                self.unread -= item.messages();
            }
        }
        if self.queue.is_empty() {
            // The memory for one burst must not be held for ever.
            self.queue.shrink_to(QUEUE_KEPT);
            if !self.has_spilled() {
                self.raw = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer that accepts a given number of bytes, then blocks.
    struct StepWriter {
        step: usize,
        open: bool,
        bytes_written: Vec<u8>,
        writes: usize,
    }

    impl AsyncWrite for StepWriter {
        fn poll_write(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[io::IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            if !std::mem::replace(&mut self.open, false) {
                return Poll::Pending;
            }
            self.writes += 1;
            let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
            let taken = bytes.len().min(self.step);
            self.bytes_written.extend(bytes.iter().take(taken));
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn writer(step: usize) -> StepWriter {
        StepWriter {
            step,
            open: false,
            bytes_written: Vec::new(),
            writes: 0,
        }
    }

    /// Lets one write succeed; returns whether everything is written.
    fn write(outbox: &mut Outbox, writer: &mut StepWriter) -> bool {
        writer.open = true;
        let mut cx = Context::from_waker(std::task::Waker::noop());
        match outbox.poll_write(writer, &mut cx) {
            Poll::Ready(done) => {
                done.expect("it never fails");
                true
            }
            Poll::Pending => false,
        }
    }

    fn message(number: u8) -> Message {
        vec![
            Bytes::from(vec![number; 10]),
            Bytes::from(vec![number; 1000]),
        ]
    }

    fn push(outbox: &mut Outbox, numbers: std::ops::Range<u8>) {
        for number in numbers {
            outbox
                .push(Item::Own(message(number)))
                .expect("there is room");
        }
    }

    #[test]
    fn unsent_messages_are_returned_in_order() {
        let whole = message_len(&message(0));
        for step in [1, whole - 1, whole, whole + 1, 2 * whole + 5] {
            let mut outbox = Outbox::new(1 << 20);
            push(&mut outbox, 0..4);
            let mut writer = writer(step);
            write(&mut outbox, &mut writer);
            let written = step / whole;
            assert_eq!(outbox.is_amid_message(), step % whole > 0);
            let unsent = outbox.take();
            let expected: Vec<_> = (0..4).skip(written).map(message).collect();
            assert_eq!(unsent, expected, "step {step}");
            assert!(outbox.is_empty() && outbox.cost() == 0);
            // The outbox can be used again.
            push(&mut outbox, 7..8);
            writer.bytes_written.clear();
            writer.step = usize::MAX;
            assert!(!write(&mut outbox, &mut writer) || writer.bytes_written.len() == whole);
        }
    }

    #[test]
    fn answers_of_the_protocol_are_bounded_until_all_is_written() {
        let mut outbox = Outbox::new(1 << 20);
        let pong = || Item::Raw(Bytes::from_static(b"\x04\x05\x04PONG"));
        for _ in 0..2 {
            push(&mut outbox, 0..1);
            let queued = (0..100_000).take_while(|_| outbox.push(pong()).is_ok());
            assert_eq!(queued.count(), RAW_MAX / 7);
            // Messages are queued all the same.
            push(&mut outbox, 1..2);
            let mut writer = writer(1000);
            while !write(&mut outbox, &mut writer) {}
        }
    }

    #[test]
    fn unread_messages_are_counted_on_disk_too() {
        let to = SpillTo {
            folder: std::env::temp_dir(),
            bytes: 1 << 20,
        };
        let mut outbox = Outbox::spilling(5_000, to);
        let len = message_len(&message(0));
        push(&mut outbox, 0..200);
        assert!(outbox.spilled() > 0);
        outbox
            .push(Item::Raw(Bytes::from_static(b"\x04\x05\x04PONG")))
            .expect("there is room");
        let mut writer = writer(777);
        while !write(&mut outbox, &mut writer) {
            let whole = writer.bytes_written.len() / len;
            assert_eq!(outbox.unread(), 200_u64.saturating_sub(whole as u64));
        }
        assert_eq!(outbox.unread(), 0);
    }

    #[test]
    fn a_batch_is_one_write() {
        let mut outbox = Outbox::new(1 << 20);
        push(&mut outbox, 0..100);
        let mut writer = writer(usize::MAX);
        while !write(&mut outbox, &mut writer) {}
        assert_eq!(writer.writes, 1);
        assert_eq!(writer.bytes_written.len(), 100 * message_len(&message(0)));
        assert_eq!(outbox.cost(), 0);
    }

    #[test]
    fn the_budget_limits_the_queue_but_not_the_first_message() {
        let mut outbox = Outbox::new(2500);
        outbox
            .push(Item::Own(vec![Bytes::from(vec![0; 10_000])]))
            .expect("an empty one takes any");
        assert!(outbox.push(Item::Own(message(1))).is_err());
        outbox.take();
        push(&mut outbox, 0..2);
        assert!(outbox.push(Item::Own(message(1))).is_err());
        // Empty frames and messages have a cost, too.
        outbox.take();
        let empty = (0..1000)
            .take_while(|_| outbox.push(Item::Own(vec![Bytes::new()])).is_ok())
            .count();
        assert!(empty < 30, "{empty}");
    }
}
