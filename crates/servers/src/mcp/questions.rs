//! Questions of running code, as forms for the client's person.
//!
//! In the versions of the protocol before 2026-07-28 the server requests the answer while the call waits. In later ones the
//! call ends with the question, and the client repeats it with the answer: the repeated call answers the question and goes
//! on with the run.

use rmcp::RoleServer;
use rmcp::model::{
    CallToolResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationSchema, ErrorData, InputRequest, InputRequiredResult, InputResponses, JsonObject,
    ProtocolVersion,
};
use rmcp::service::RequestContext;
use serde::{Deserialize, Serialize};

use super::tools::ToolName;
use crate::api::outputs::plain;
use crate::notebook::visible_line;
use crate::project::jobs::JobPrompt;

/// The field of a form that has the answer to a question, and the question's name.
const ANSWER: &str = "answer";

/// What a repeated call says of the question that it answers. It is no secret: `answer_input` takes the same.
#[derive(Deserialize, Serialize)]
struct Asked {
    run_id: String,
    number: Option<u64>,
}

/// Says whether a request is of a version of the protocol in which servers send no requests, and HTTP has no sessions.
pub(super) fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    let version = context.protocol_version();
    version.is_some_and(|it| it >= ProtocolVersion::V_2026_07_28)
}

/// Says whether the client shows forms.
pub(super) fn can_ask(context: &RequestContext<RoleServer>) -> bool {
    let elicitation = context.client_capabilities().and_then(|it| it.elicitation);
    // A client that names no mode means forms.
    elicitation.is_some_and(|it| it.form.is_some() || it.url.is_none())
}

/// Returns the form of a question.
pub(super) fn form(prompt: &JobPrompt) -> Option<ElicitRequestParams> {
    let schema = ElicitationSchema::builder().required_string(ANSWER).build();
    Some(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: question(&prompt.prompt),
        requested_schema: schema.ok()?,
    })
}

/// Returns the text that the person has written into a form, unless it was declined.
pub(super) fn text_of(response: ElicitResult) -> Option<String> {
    let is_given = response.action == ElicitationAction::Accept;
    let content = response.content.filter(|_| is_given)?;
    content[ANSWER].as_str().map(str::to_owned)
}

/// Returns a question of the code as it is shown to a person.
fn question(prompt: &str) -> String {
    let prompt = plain(prompt);
    match &*visible_line(prompt.trim()) {
        "" => "The notebook's code asks for a line of input.".to_owned(),
        prompt => format!("The notebook's code asks: {prompt}"),
    }
}

/// Returns the question with which a call ends, if its code asks for something else than a password.
pub(super) fn asked(result: &CallToolResult) -> Option<InputRequiredResult> {
    let fields = result.structured_content.as_ref()?;
    let prompt = JobPrompt::deserialize(fields.get("prompt")?).ok()?;
    if fields["status"] != "waiting_input" || prompt.password {
        return None;
    }
    let asked = Asked {
        run_id: fields["run_id"].as_str()?.to_owned(),
        number: prompt.number,
    };
    let question = InputRequest::Elicitation(ElicitRequest::new(form(&prompt)?));
    Some(InputRequiredResult::new(
        Some([(ANSWER.to_owned(), question)].into()),
        Some(serde_json::to_string(&asked).ok()?),
    ))
}

/// Makes the arguments of a repeated call those of the tool that goes on with its run, and returns this tool. A question
/// that the person has declined is not asked again: the second value is false.
pub(super) fn answered(
    state: &str,
    responses: &InputResponses,
    arguments: &mut JsonObject,
) -> Result<(ToolName, bool), ErrorData> {
    let Ok(Asked { run_id, number }) = serde_json::from_str(state) else {
        let text = "the requestState is none of this server";
        return Err(ErrorData::invalid_params(text, None));
    };
    let response = responses.get(ANSWER).map(ElicitResult::deserialize);
    let text = response.and_then(Result::ok).and_then(text_of);
    let kept = [
        "notebook",
        "path",
        "notebook_path",
        "file_path",
        "timeout_s",
        "timeout",
    ];
    arguments.retain(|name, _| kept.contains(&&**name));
    arguments.insert("run_id".to_owned(), run_id.into());
    Ok(match text {
        Some(text) => {
            arguments.insert("text".to_owned(), text.into());
            arguments.insert("number".to_owned(), number.into());
            (ToolName::AnswerInput, true)
        }
        None => {
            arguments.remove("timeout_s");
            arguments.remove("timeout");
            arguments.insert("all".to_owned(), true.into());
            (ToolName::GetRunStatus, false)
        }
    })
}

#[cfg(test)]
mod tests {
    use rmcp::model::ContentBlock;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_question_ends_a_call_and_its_answer_goes_on_with_the_run() {
        let ended = |status: &str, is_secret: bool| {
            let prompt = json!({"prompt": "name? ", "password": is_secret, "number": 2});
            let mut result = CallToolResult::success(Vec::<ContentBlock>::new());
            let fields = json!({"status": status, "run_id": "r1", "prompt": prompt});
            result.structured_content = Some(fields);
            asked(&result)
        };
        assert!(ended("ok", false).is_none() && ended("waiting_input", true).is_none());
        let question = serde_json::to_value(ended("waiting_input", false)).unwrap();
        let form = &question["inputRequests"]["answer"]["params"];
        assert_eq!(form["message"], "The notebook's code asks: name?");
        let state = question["requestState"].as_str().unwrap();

        let given =
            json!({"notebook": "a", "run_id": "r1", "timeout": 5, "text": "Ada", "number": 2});
        let declined = json!({"notebook": "a", "run_id": "r1", "all": true});
        for (response, tool, arguments) in [
            (
                json!({"action": "accept", "content": {"answer": "Ada"}}),
                ToolName::AnswerInput,
                &given,
            ),
            (
                json!({"action": "decline"}),
                ToolName::GetRunStatus,
                &declined,
            ),
            (
                json!({"action": "accept", "content": {}}),
                ToolName::GetRunStatus,
                &declined,
            ),
            (json!(7), ToolName::GetRunStatus, &declined),
        ] {
            let responses = [(ANSWER.to_owned(), response)].into();
            let call = json!({"notebook": "a", "timeout": 5, "source": "input()", "run": true});
            let mut call = call.as_object().unwrap().clone();
            let (goes_on, may_ask) = answered(state, &responses, &mut call).unwrap();
            assert_eq!((goes_on, Value::Object(call)), (tool, arguments.clone()));
            assert_eq!(may_ask, tool == ToolName::AnswerInput);
        }
        let none = InputResponses::default();
        answered("nonsense", &none, &mut JsonObject::new()).unwrap_err();
    }
}
