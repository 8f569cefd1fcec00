//! What a job's folder keeps of its cells, folded again.

use std::collections::HashSet;
use std::io;

use super::writing::{Recorded, no_widgets};
use crate::notebook::{OutputChange, Widgets};
use crate::project::jobs::{Job, JobFolder, Said};

/// What a job's cells have left so far, by what is in its folder.
pub(super) struct Kept {
    pub(super) outputs: Vec<Recorded>,
    pub(super) widgets: Widgets,
    /// The messages that are in there, where their ids were written down.
    pub(super) ids: HashSet<String>,
}

impl Kept {
    /// Reads it.
    pub(super) fn read(job: &Job, folder: &JobFolder) -> io::Result<Self> {
        let mut kept = Self {
            outputs: vec![Recorded::of(job); job.cells.len()],
            widgets: no_widgets(job),
            ids: HashSet::new(),
        };
        for (recorded, cell) in kept.outputs.iter_mut().zip(&job.cells) {
            recorded.busy = cell.begun_at;
            recorded.input = cell.input_at;
            recorded.idle = cell.idle_at;
        }
        kept.widgets.begin();
        let mut from = 0;
        loop {
            let (said, next) = folder.said(from)?;
            if next == from {
                return Ok(kept);
            }
            from = next;
            said.iter().for_each(|said| kept.take(said));
        }
    }

    fn take(&mut self, said: &Said) {
        self.ids.extend(said.id.clone());
        let content = said.content.get().as_bytes();
        let none: [&[u8]; 0] = [];
        if self.widgets.take(&said.msg_type, content, &none) {
            return;
        }
        let Some(recorded) = self.outputs.get_mut(said.cell) else {
            return;
        };
        recorded.raised |= said.msg_type == "error";
        if let OutputChange::Displayed { display_id, shown } =
            recorded.folded.take(&said.msg_type, content)
        {
            for (other, recorded) in self.outputs.iter_mut().enumerate() {
                if other != said.cell {
                    recorded.folded.update(&display_id, &shown);
                }
            }
        }
    }
}
