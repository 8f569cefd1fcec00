//! Puts the witness into a kernel: the code that says what each execution really changed.

use std::time::Duration;

use serde_json::Value;

use crate::client::{Client, ClientError, Execute};
use crate::kernel::witness;
use crate::wire::{Channel, ConnectionInfo};

/// How long a kernel may take to run a request of the witness.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Puts the witness into a kernel that has just started and sent this `kernel_info_reply`, if it is an IPython kernel.
/// Returns whether it has the witness. A kernel that fails at it goes on without.
pub(super) async fn begin(info: &ConnectionInfo, kernel_info: &Value, timeout: Duration) -> bool {
    if kernel_info["implementation"] != "ipython" {
        return false;
    }
    let begun = async {
        let mut client = Client::connect(info, "nb").await?;
        evaluate(&mut client, witness::begin(), timeout.min(ANSWER_TIMEOUT)).await
    };
    begun.await.unwrap_or_else(|error| {
        tracing::warn!(%error, "what cells change will not be known");
        false
    })
}

/// Deletes variables of a kernel that has the witness; returns whether the kernel has done it.
///
/// # Errors
/// There is no answer in time, or the kernel has ended.
pub async fn unbind(client: &mut Client, names: &[String]) -> Result<bool, ClientError> {
    evaluate(client, witness::unbind(names), ANSWER_TIMEOUT).await
}

/// Evaluates an expression silently; returns whether it raised nothing.
async fn evaluate(
    client: &mut Client,
    expression: String,
    timeout: Duration,
) -> Result<bool, ClientError> {
    let mut request = Execute::new("");
    request.silent = true;
    request.store_history = false;
    request
        .user_expressions
        .insert("nb".to_owned(), expression.into());
    let reply = client
        .request(Channel::Shell, "execute_request", &request, timeout)
        .await?;
    let reply: Value = serde_json::from_slice(reply.content()).unwrap_or_default();
    let is_done = reply["user_expressions"]["nb"]["status"] == "ok";
    if !is_done {
        tracing::warn!("the kernel refuses what makes it say what cells change");
    }
    Ok(is_done)
}
