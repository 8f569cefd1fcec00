//! Names for what is new.

/// Returns eight random hexadecimal digits, as Jupyter makes ids of cells; jobs and edits have such
/// names too, of which a beginning is enough.
pub fn fresh_id() -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    id.chars().take(8).collect()
}
