//! Cells with their sources and outputs as text.

use serde_json::Value;

use crate::api::{CellAnswer, ShownCell, ShownOutputs};
use crate::notebook::{CellType, visible};
use crate::text::Part;

/// Returns the cells as text.
pub fn parts(answer: &CellAnswer) -> Vec<Part> {
    let mut parts = Vec::new();
    for cell in &answer.cells {
        parts.extend(head(cell).into_iter().map(Part::Own));
        parts.push(Part::Others(visible(&cell.source).into_owned()));
        if let ShownOutputs::Previews(previews) = &cell.outputs {
            for (head, text) in previews.texts() {
                parts.push(Part::Own(head));
                parts.push(Part::Others(text.to_owned()));
            }
        }
    }
    parts
}

/// Returns the lines above a cell, with the properties that appear nowhere else.
fn head(cell: &ShownCell) -> Vec<String> {
    let mut parts = vec![
        format!("=== {} {}", cell.index, cell.id),
        cell.cell_type.to_string(),
    ];
    match (cell.cell_type, cell.execution_count) {
        (_, Some(count)) => parts.push(format!("In[{count}]")),
        (CellType::Code, None) => parts.push("In[ ]".to_owned()),
        _ => {}
    }
    if let (Some("stale"), Some(stale)) = (cell.state, &cell.stale) {
        parts.push(format!("stale: {}", stale.text));
    }
    let mut sections: Vec<_> = metadata(cell)
        .map(|metadata| format!("metadata {metadata}"))
        .into_iter()
        .collect();
    for attachment in &cell.attachments {
        let forms = attachment.forms.iter().map(|form| format!(" · {form}"));
        let forms: String = forms.collect();
        sections.push(format!("attachment {}{forms}", attachment.name));
    }
    if !sections.is_empty() {
        sections.push("source".to_owned());
    }
    let sections = sections.iter().map(|section| format!("--- {section}"));
    std::iter::once(parts.join(" · ")).chain(sections).collect()
}

/// Returns the metadata that somebody set, without the execution times that front ends write.
fn metadata(cell: &ShownCell) -> Option<String> {
    let mut metadata = cell.metadata.clone()?;
    let set: &mut serde_json::Map<String, Value> = metadata.as_object_mut()?;
    for times in ["execution", "ExecuteTime", "papermill", "executionInfo"] {
        set.remove(times);
    }
    (!set.is_empty()).then(|| metadata.to_string())
}
