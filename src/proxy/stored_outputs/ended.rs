//! Series that have ended, stored until a subscriber has read their end.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::series::{Series, SeriesStage};
use crate::route::ClientId;
use crate::socket::DeliveryProgress;

/// How long a subscriber must stay connected after it has read the end of a series before the series is
/// dropped.
const READ_GRACE: Duration = Duration::from_secs(1);

/// The same where pages are open that speak with `nb live`: it is known after 20 s that one was killed.
const PAGE_GRACE: Duration = Duration::from_secs(25);

/// How many series, and how many of their bytes in memory, are stored at most. The oldest are dropped first.
const SERIES_MAX: usize = 4096;
const BYTES_MAX: usize = 32 << 20;

/// How many of the unread series may have folders: each holds an open file. The others stay in memory.
pub(super) const FOLDERS_MAX: usize = 8;

/// Series that have ended, in the order of their ends.
#[derive(Default)]
pub(super) struct EndedSeries {
    all: VecDeque<EndedEntry>,
    release_at: Option<Instant>,
    /// Whether some may be urgent. Cached, since each message asks for it and there may be thousands of
    /// series.
    has_urgent: bool,
    /// Whether pages are open that speak with `nb live`.
    any_page: bool,
}

/// The count of published messages.
#[derive(Clone, Copy)]
pub(in crate::proxy) struct Published {
    /// How many messages were sent to all subscribers.
    pub(in crate::proxy) messages: u64,
    /// Whether there is a subscriber.
    pub(in crate::proxy) has_subscriber: bool,
}

struct EndedEntry {
    series: Series,
    /// The end of the series is among the first `number` published messages.
    number: u64,
    /// When to check next whether a subscriber has read the end.
    due: Instant,
    /// Whether there was a subscriber when the series ended.
    had_subscriber: bool,
}

/// Why the proxy checks whether the ends of cells were read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) enum ReleaseReason {
    /// The time for the check of some of them has come.
    Due,
    /// The front end ends this proxy. A subscriber that was connected when a cell ended has got its outputs,
    /// even if it closed its connections before it ended the proxy, as batch clients do.
    Stopped,
    /// The front end was killed, and this proxy ends.
    Orphaned,
}

/// The series that are no longer stored here.
#[derive(Default)]
pub(super) struct Released {
    /// A client has got their outputs, or does not want them.
    pub(super) read: Vec<Series>,
    /// No client has got their outputs.
    pub(super) unseen: Vec<Series>,
    /// Whether a series that is still stored must be written now.
    pub(super) any_urgent: bool,
}

impl EndedSeries {
    /// Adds a series that has ended; returns the series that are dropped to make room.
    pub(super) fn push(&mut self, series: Series, published: Published) -> Vec<Series> {
        let folders = self.all().filter(|series| series.has_folder()).count();
        let due = Instant::now()
            + match self.any_page && folders < FOLDERS_MAX {
                true => PAGE_GRACE,
                false => READ_GRACE,
            };
        self.release_at = Some(self.release_at.map_or(due, |at| at.min(due)));
        self.has_urgent |= series.urgent;
        self.all.push_back(EndedEntry {
            series,
            number: published.messages + 1,
            due,
            had_subscriber: published.has_subscriber,
        });
        let mut dropped = Vec::new();
        let mut bytes: usize = self.all.iter().map(|entry| entry.series.bytes).sum();
        while (bytes > BYTES_MAX || self.all.len() > SERIES_MAX)
            && let Some(oldest) = self.all.pop_front()
        {
            bytes -= oldest.series.bytes;
            dropped.push(oldest.series);
        }
        dropped
    }

    /// Sets whether pages are open that speak with `nb live`.
    pub(super) fn set_pages(&mut self, any_page: bool) {
        self.any_page = any_page;
    }

    /// Takes all clients for away.
    pub(super) fn set_all_away(&mut self) {
        let now = Instant::now();
        for entry in &mut self.all {
            entry.series.is_client_away = true;
            entry.due = now;
        }
        if !self.all.is_empty() {
            self.release_at = Some(now);
        }
    }

    /// Returns when [`EndedSeries::release`] must be called.
    pub(super) fn release_at(&self) -> Option<Instant> {
        self.release_at
    }

    /// Removes and returns the series whose end was read by a subscriber that is still connected, and those
    /// that no subscriber can read any more. What another window has read does not help a client that has left.
    pub(super) fn release(
        &mut self,
        progress: impl Fn(u64) -> DeliveryProgress,
        is_joined: impl Fn(&ClientId) -> bool,
        reason: ReleaseReason,
    ) -> Released {
        let mut released = Released::default();
        let now = Instant::now();
        let is_final = reason != ReleaseReason::Due;
        if !is_final && self.release_at.is_none_or(|due| due > now) {
            return released;
        }
        let is_due = |entry: &EndedEntry| is_final || entry.due <= now;
        // A subscriber that has read the last end has read all earlier ones.
        let last = self.all.iter().rev().find(|entry| is_due(entry));
        let all_read = last.is_some_and(|entry| progress(entry.number) == DeliveryProgress::Read);
        let has_folder = |entry: &&EndedEntry| entry.series.has_folder();
        let mut folders = self.all.iter().filter(has_folder).count();
        for mut entry in std::mem::take(&mut self.all) {
            if !is_due(&entry) {
                self.all.push_back(entry);
                continue;
            }
            let entry_progress = if all_read {
                DeliveryProgress::Read
            } else {
                progress(entry.number)
            };
            match entry_progress {
                _ if entry.series.is_client_away => {
                    entry.series.stage = SeriesStage::Unseen;
                    released.unseen.push(entry.series);
                }
                DeliveryProgress::Waits if !is_final => {
                    entry.due = now + READ_GRACE;
                    if !entry.series.has_folder() && folders < FOLDERS_MAX {
                        folders += 1;
                        entry.series.urgent = true;
                        released.any_urgent = true;
                    }
                    self.all.push_back(entry);
                }
                DeliveryProgress::Read | DeliveryProgress::Waits => {
                    released.read.push(entry.series);
                }
                // The client has not subscribed, or it has got a notice that it missed messages.
                DeliveryProgress::NoReader
                    if entry.series.client.as_ref().is_some_and(&is_joined) =>
                {
                    released.read.push(entry.series);
                }
                DeliveryProgress::NoReader
                    if reason == ReleaseReason::Stopped && entry.had_subscriber =>
                {
                    released.read.push(entry.series);
                }
                DeliveryProgress::NoReader => {
                    entry.series.stage = SeriesStage::Unseen;
                    released.unseen.push(entry.series);
                }
            }
        }
        self.has_urgent |= released.any_urgent;
        self.release_at = self.all.iter().map(|entry| entry.due).min();
        released
    }

    /// Returns when the first of them must be written.
    pub(super) fn due(&self) -> Option<Instant> {
        let all = self.has_urgent.then(|| self.all());
        all.into_iter().flatten().filter_map(Series::due).min()
    }

    /// Checks whether any series must still be written.
    pub(super) fn update_urgent(&mut self) {
        self.has_urgent = self.all.iter().any(|entry| entry.series.urgent);
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Series> {
        self.all.iter().map(|entry| &entry.series)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Series> {
        let mut all = self.all.iter_mut().map(|entry| &mut entry.series);
        all.find(|series| series.number == number)
    }
}

#[cfg(test)]
impl EndedSeries {
    pub(super) fn numbers(&self) -> Vec<u64> {
        self.all.iter().map(|entry| entry.number).collect()
    }

    pub(super) fn set_all_due(&mut self, now: Instant) {
        self.release_at = Some(now);
        self.all.iter_mut().for_each(|entry| entry.due = now);
    }
}
