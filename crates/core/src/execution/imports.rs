//! Makes a running Python kernel find packages that were installed or removed beside it.

use serde_json::json;

use super::inspect::{self, Inspector};
use super::vars::{self, VarsError};
use crate::kernel::witness::literal;
use crate::project::{Project, Session};

/// Makes imports in a session's kernel look for new files. Returns the imported modules that stay as they are although
/// their packages, of which these were changed, have other files now. This runs no user code.
///
/// # Errors
/// [`VarsError`]; a busy kernel without subshells is reported within seconds.
pub async fn refresh_imports(
    project: &Project,
    key: &str,
    session: &Session,
    by: &str,
    packages: &[String],
) -> Result<Vec<String>, VarsError> {
    let inspector = Inspector::join(project, key, session, by).await?;
    let call = format!("refresh({})", literal(&json!(packages).to_string()));
    let request = inspect::request(&call, inspector.is_beside());
    vars::ask(inspector, &request).await
}
