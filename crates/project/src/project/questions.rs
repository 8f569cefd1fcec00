//! `question.json`: an input request of the kernel to a front end that has disconnected, in the
//! folder of the job that has taken over the front end's cell. The front end's proxy writes it; the
//! recorder gets the answer.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::beneath;
use super::jobs::{JobFolder, JobPrompt};

/// The name of the file.
pub const QUESTION: &str = "question.json";

/// An input request of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The id of the execute request whose code asks.
    pub msg_id: String,
    /// The header of the `input_request`: the parent header of the answer.
    pub header: Value,
    /// Its prompt.
    #[serde(flatten)]
    pub prompt: JobPrompt,
}

impl JobFolder {
    /// Stores a question in place of an earlier one: a kernel asks one question at a time.
    pub fn pass_on(&self, question: &Question) -> io::Result<()> {
        beneath::write_json(&self.question_file(), question)
    }

    /// Returns the question that waits for its answer.
    pub fn question(&self) -> Option<Question> {
        beneath::read_json(&self.question_file(), beneath::SMALL)
    }

    /// Removes the question, which has been answered.
    pub fn forget_question(&self) {
        let _ = beneath::remove_file(&self.question_file());
    }

    fn question_file(&self) -> PathBuf {
        self.path().join(QUESTION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::Project;

    #[test]
    fn a_question_waits_until_it_is_answered() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let (_, folder) = crate::project::jobs::tests::job(&project);
        assert_eq!(folder.question(), None);
        let question = Question {
            msg_id: "1".to_owned(),
            header: serde_json::json!({ "msg_id": "2" }),
            prompt: JobPrompt {
                prompt: "name? ".to_owned(),
                password: false,
                number: None,
            },
        };
        folder.pass_on(&question).unwrap();
        assert_eq!(folder.question(), Some(question));
        folder.forget_question();
        assert_eq!(folder.question(), None);
    }
}
