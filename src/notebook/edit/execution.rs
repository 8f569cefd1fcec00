//! Outputs, execution count and times of a cell: one unit, set and cleared together.

use std::borrow::Cow;

use super::cells::{CellChange, ChangeKind};
use super::error::EditError;
use super::jupyter_style::{is_in_lines, lines, sorted_and_mapped};
use crate::notebook::document::{CellType, Document};
use crate::notebook::json::{Json, Layout, string_at};
use crate::notebook::outputs::MimeBundle;

/// What an execution leaves in a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellExecution {
    /// The outputs in their order, as nbformat 4 has them; a long text may be one string.
    pub outputs: Vec<Json>,
    /// The number in `In [ ]`.
    pub execution_count: Option<u64>,
    /// `metadata.execution`: JupyterLab's times. None removes it.
    pub times: Option<Json>,
}

impl Document {
    /// Sets what an execution left in a code cell. Outputs are written as Jupyter writes them:
    /// sorted fields, text as a list of lines where the file has such lists.
    ///
    /// # Errors
    /// There is no cell at the index, or it is no code.
    pub fn set_execution(
        &mut self,
        index: usize,
        execution: &CellExecution,
    ) -> Result<CellChange, EditError> {
        let cell = self.check(index)?;
        if cell.cell_type() != CellType::Code {
            return Err(EditError::NotCode(cell.id().to_owned()));
        }
        let lists = self.style.lists;
        self.change(index, ChangeKind::Outputs, |cell, layout| {
            let mut new = cell.clone();
            let outputs = list(&execution.outputs, layout, lists);
            let same = cell
                .raw("outputs")
                .is_some_and(|raw| layout.value(raw) == outputs);
            if !same {
                new.set("outputs", &outputs, layout);
            }
            let count = match execution.execution_count {
                Some(count) => count.to_string(),
                None => "null".to_owned(),
            };
            if new.raw("execution_count") != Some(count.as_bytes()) {
                new.set("execution_count", count.as_bytes(), layout);
            }
            new.set_metadata(&["execution"], execution.times.as_ref(), layout);
            (new.text != cell.text).then(|| new.text.to_vec())
        })
    }

    /// Shows something else in some of a code cell's outputs, by their places; all else that its
    /// execution left stays.
    ///
    /// # Errors
    /// There is no cell at the index, or it is no code.
    pub fn set_displayed(
        &mut self,
        index: usize,
        places: &[usize],
        shown: &MimeBundle,
    ) -> Result<CellChange, EditError> {
        let cell = self.check(index)?;
        let outputs = cell.outputs().enumerate();
        let outputs = outputs.map(|(place, output)| {
            let new = places.contains(&place).then(|| shown.within(&output));
            new.flatten().unwrap_or(output)
        });
        let execution = CellExecution {
            outputs: outputs.collect(),
            execution_count: cell.execution_count(),
            times: cell.metadata(&["execution"]),
        };
        self.set_execution(index, &execution)
    }

    /// Clears a code cell's outputs, execution count and times, as JupyterLab does.
    ///
    /// # Errors
    /// There is no cell at the index, or it is no code.
    pub fn clear_outputs(&mut self, index: usize) -> Result<CellChange, EditError> {
        self.set_execution(index, &CellExecution::default())
    }
}

fn list(outputs: &[Json], layout: &Layout, lists: bool) -> Vec<u8> {
    let mut all = b"[".to_vec();
    for (index, output) in outputs.iter().enumerate() {
        if index > 0 {
            all.push(b',');
        }
        all.extend_from_slice(&as_jupyter(output.bytes(), lists));
    }
    all.push(b']');
    layout.value(&all)
}

/// Returns an output with its fields and those of its data sorted, and its text in lines.
fn as_jupyter(output: &[u8], lists: bool) -> Vec<u8> {
    let stream = string_at(output, &["output_type"]);
    let stream = stream.as_deref() == Some("stream");
    sorted_and_mapped(output, |key, value| match key {
        b"data" => sorted_and_mapped(value, |mime, value| match lists && is_in_lines(mime) {
            true => in_lines(value),
            false => value.into(),
        })
        .into(),
        b"text" if stream && lists => in_lines(value),
        _ => value.into(),
    })
}

/// Returns a string as a list of its lines; a list that the kernel sent stays as it is.
fn in_lines(value: &[u8]) -> Cow<'_, [u8]> {
    match value.starts_with(b"\"") {
        true => lines(value),
        false => value.into(),
    }
}
