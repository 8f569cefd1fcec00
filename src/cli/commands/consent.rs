//! Asks at the terminal before others' work is ended.

use crate::api::problem::{ConfirmationQuestion, Problem, ProblemKind};
use crate::cli::Context;
use crate::cli::terminal::Lines;

impl Context {
    /// Makes a request that may end others' work, with or without `force`. If the request is refused for
    /// that reason, asks the person at the terminal, and repeats it with `force` after a yes.
    pub(crate) async fn with_confirmation<T>(
        &self,
        force: bool,
        request: impl AsyncFn(bool) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let problem = match request(force).await {
            Err(problem) if !self.json && self.can_ask() => problem,
            result => return result,
        };
        let Some(ConfirmationQuestion::Force { text, declined }) = problem.question.as_deref()
        else {
            return Err(problem);
        };
        match Lines::confirm(text).await {
            true => request(true).await,
            false => Err(Problem::new(ProblemKind::Refused, declined)),
        }
    }
}
