//! Random names.

/// Returns eight random hexadecimal digits, like Jupyter's cell ids. Jobs and edits have such names
/// too; users can shorten them to a unique prefix.
pub fn fresh_id() -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    id.chars().take(8).collect()
}
