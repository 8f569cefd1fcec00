//! Outputs, execution count and times of a cell, which are set and cleared together.

use std::borrow::Cow;

use super::cells::{CellChange, ChangeKind};
use super::error::DocumentEditError;
use super::jupyter_style::{is_in_lines, lines, sorted_and_mapped};
use crate::notebook::document::{CellType, Document};
use crate::notebook::json::{Json, list, string_at};
use crate::notebook::outputs::MimeBundle;

/// The results of an execution in a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellExecution {
    /// The outputs in their order, in nbformat 4's form; a long text may be one string.
    pub outputs: Vec<Json>,
    /// The number in `In [ ]`.
    pub execution_count: Option<u64>,
    /// `metadata.execution`, JupyterLab's times; `None` removes it.
    pub times: Option<Json>,
}

impl Document {
    /// Sets the results of an execution in a code cell. Outputs are written as Jupyter writes them: with
    /// sorted fields, and text as a list of lines if the file has such lists.
    ///
    /// # Errors
    /// There is no cell at the index, or it is not a code cell.
    pub fn set_execution(
        &mut self,
        index: usize,
        execution: &CellExecution,
    ) -> Result<CellChange, DocumentEditError> {
        let cell = self.check(index)?;
        if cell.cell_type() != CellType::Code {
            return Err(DocumentEditError::NotCode(cell.id().to_owned()));
        }
        let lists = self.style.lists;
        self.change(index, ChangeKind::Outputs, |cell, layout| {
            let outputs = execution.outputs.iter();
            let outputs = list(outputs.map(|output| as_jupyter(output.bytes(), lists)));
            let outputs = layout.value(&outputs);
            let old = cell.raw("outputs");
            if old.is_none_or(|raw| layout.value(raw) != outputs) {
                cell.set("outputs", &outputs, layout);
            }
            let count = execution.execution_count;
            let count = count.map_or_else(|| "null".to_owned(), |count| count.to_string());
            if cell.raw("execution_count") != Some(count.as_bytes()) {
                cell.set("execution_count", count.as_bytes(), layout);
            }
            cell.set_metadata(&["execution"], execution.times.as_ref(), layout);
        })
    }

    /// Replaces the MIME bundles of some of a code cell's outputs, given by their positions. The other
    /// results stay.
    ///
    /// # Errors
    /// There is no cell at the index, or it is not a code cell.
    pub fn set_displayed(
        &mut self,
        index: usize,
        places: &[usize],
        shown: &MimeBundle,
    ) -> Result<CellChange, DocumentEditError> {
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
    /// There is no cell at the index, or it is not a code cell.
    pub fn clear_outputs(&mut self, index: usize) -> Result<CellChange, DocumentEditError> {
        self.set_execution(index, &CellExecution::default())
    }
}

/// Returns an output with its fields and data sorted, and its text as lines.
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
