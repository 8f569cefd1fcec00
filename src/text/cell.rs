//! Cells with their sources and outputs as text.

use serde_json::Value;

use crate::api::{CellAnswer, ShownCell, ShownOutputs};
use crate::notebook::CellType;

/// Returns the cells as text; `readable` prepares each source.
pub(crate) fn text(answer: &CellAnswer, readable: impl Fn(&str) -> String) -> String {
    let mut text = String::new();
    for cell in &answer.cells {
        text.push_str(&head(cell));
        text.push_str(&line_ended(readable(&cell.source)));
        if let ShownOutputs::Previews(previews) = &cell.outputs {
            text.push_str(&previews.text());
        }
    }
    text
}

/// Returns a text that ends with a newline, unless it is empty.
pub(crate) fn line_ended(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// Returns the line above a cell, with the properties that appear nowhere else.
fn head(cell: &ShownCell) -> String {
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
    let mut head = parts.join(" · ");
    head.push('\n');
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
    head.extend(sections.iter().map(|section| format!("--- {section}\n")));
    head
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
