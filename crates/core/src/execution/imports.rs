//! Makes a running Python kernel find packages that were installed or removed beside it.

use serde_json::json;

use super::inspect::{self, Inspector};
use super::vars::{ANSWER_TIMEOUT, VarsError};
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
    let mut inspector = Inspector::join(project, key, session, by).await?;
    let call = format!("refresh({})", literal(&json!(packages).to_string()));
    let request = inspect::request(&call, inspector.is_beside());
    let answer = inspector
        .ask(&request, Some(ANSWER_TIMEOUT), std::future::pending())
        .await;
    inspector.leave().await;
    let answer = answer?;
    if let Some(why) = answer.failed {
        return Err(VarsError::Refused(why));
    }
    let text = inspect::value(&answer.reply).map_err(VarsError::Refused)?;
    serde_json::from_str(&text).map_err(|error| VarsError::Refused(error.to_string()))
}
