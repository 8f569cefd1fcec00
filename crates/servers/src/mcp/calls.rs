//! The tools' work: from arguments to a request of `api`, and from its answer to a result.

use std::path::Path;

use rmcp::RoleServer;
use rmcp::model::{CallToolResult, JsonObject};
use rmcp::service::RequestContext;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use super::arguments::{
    AnswerInput, ApplyEdits, CreateCell, DeleteCell, GetNotebookState, GetRunStatus, History,
    HistoryAction, Kernel, KernelAction, Notebooks, OfNotebook, OpenNotebook, ReadCell, RunCell,
    UpdateCell, Variables,
};
use super::audit::CallRecord;
use super::commands::{as_tools, problem_lines};
use super::requests::{CallTarget, EditArguments, RequestedEdit, ToRun, policy, read, revision};
use super::result::{ToolAnswer, result};
use super::run::{RunWatcher, follow_options, run_answer};
use super::session::Session;
use super::tools::ToolName;
use super::turns::Turn;
use super::verify::verify;
use crate::api::caller::Caller;
use crate::api::outputs::plain;
use crate::api::problem::{Problem, ProblemKind};
use crate::api::{
    self, CellCondition, CellRequest, CellsRequest, DiffBase, DiffRequest, EditAnswer, EditRequest,
    ExecAnswer, ExecRequest, InterruptJobRequest, InterruptRequest, LogRequest, NotebooksRequest,
    OpenAnswer, OpenRequest, OutputForm, QuestionRequest, ReplyRequest, RestartRequest, RunRequest,
    ShownOutputs, ShutdownRequest, VarsRequest, VersionsRequest, WaitRequest, WantedServer,
    version_lines,
};
use crate::editing::edit::if_rev;
use crate::text::{self, Part};

/// How many characters of outputs are returned unless another limit is given.
const LIMIT: usize = 6000;

/// How many characters a list of cells has at most, about.
const LIST: usize = 5000;

/// How many entries of the history are returned unless another limit is given.
const ENTRIES: usize = 20;

/// How many notebooks are listed.
pub(super) const MOST_NOTEBOOKS: usize = 200;

/// How many variables are listed.
const MOST_VARIABLES: usize = 200;

impl Session {
    /// Calls a tool.
    pub(super) async fn call(
        &self,
        tool: ToolName,
        arguments: JsonObject,
        context: &RequestContext<RoleServer>,
        cancelled: &Notify,
        turn: Turn,
    ) -> CallToolResult {
        let call = Call {
            session: self,
            tool,
            arguments,
            context,
            cancelled,
            turn,
        };
        match tool {
            ToolName::Notebooks => call.notebooks().await,
            ToolName::OpenNotebook => call.about(open_notebook).await,
            ToolName::GetNotebookState => call.about(get_notebook_state).await,
            ToolName::ReadCell => call.about(read_cell).await,
            ToolName::CreateCell => call.about(edit::<CreateCell>).await,
            ToolName::UpdateCell => call.about(edit::<UpdateCell>).await,
            ToolName::DeleteCell => call.about(edit::<DeleteCell>).await,
            ToolName::ApplyEdits => call.about(edit::<ApplyEdits>).await,
            ToolName::RunCell => call.about(run_cell).await,
            ToolName::GetRunStatus => call.about(get_run_status).await,
            ToolName::AnswerInput => call.about(answer_input).await,
            ToolName::Kernel => call.about(kernel).await,
            ToolName::Variables => call.about(variables).await,
            ToolName::History => call.about(history).await,
        }
    }
}

/// A call of a tool.
struct Call<'a> {
    session: &'a Session,
    tool: ToolName,
    arguments: JsonObject,
    context: &'a RequestContext<RoleServer>,
    cancelled: &'a Notify,
    turn: Turn,
}

/// The parts of a call that a tool needs.
struct Request<'a, T> {
    session: &'a Session,
    /// The notebook's path.
    notebook: &'a Path,
    caller: &'a Caller,
    context: &'a RequestContext<RoleServer>,
    cancelled: &'a Notify,
    turn: &'a Turn,
    arguments: T,
}

impl<T> Request<'_, T> {
    /// Refuses what a server that only reads may not do.
    fn may_change(&self) -> Result<(), Problem> {
        match self.session.allowed().read_only {
            true => Err(Problem::new(ProblemKind::Refused, "this server only reads")),
            false => Ok(()),
        }
    }
}

impl Call<'_> {
    /// Calls a tool whose arguments name a notebook.
    async fn about<T: OfNotebook + DeserializeOwned>(
        self,
        tool: impl AsyncFnOnce(Request<'_, T>) -> Result<ToolAnswer, Problem>,
    ) -> CallToolResult {
        let is_cancelled = || self.context.ct.is_cancelled();
        let record = CallRecord::begin(
            self.session.id(),
            self.tool.name(),
            &self.arguments,
            self.context,
        );
        let CallTarget {
            arguments,
            notebook,
            caller,
            unknown,
        } = match self.session.target::<T>(self.arguments, self.context) {
            Ok(target) => target,
            Err(problem) => return result(None, Err(problem), is_cancelled).await,
        };
        caller.notice().await;
        // It is large, and is polled on a stack of limited size.
        let outcome = Box::pin(tool(Request {
            session: self.session,
            notebook: &notebook,
            caller: &caller,
            context: self.context,
            cancelled: self.cancelled,
            turn: &self.turn,
            arguments,
        }));
        let outcome = match self.tool {
            // The analysis of the notebook ends, too.
            ToolName::GetNotebookState | ToolName::ReadCell => tokio::select! {
                outcome = outcome => outcome,
                () = self.context.ct.cancelled() => {
                    Err(Problem::new(ProblemKind::StillRunning, "cancelled"))
                }
            },
            _ => outcome.await,
        };
        record.end(&caller, &outcome).await;
        let outcome = outcome.map(|mut answer| {
            let note =
                |name| Part::Own(format!("there is no argument {name:?}: it was passed over"));
            answer.parts.extend(unknown.into_iter().map(note));
            answer
        });
        result(Some(&caller), outcome, is_cancelled).await
    }

    /// Lists notebooks.
    async fn notebooks(self) -> CallToolResult {
        let is_cancelled = || self.context.ct.is_cancelled();
        let caller = read::<Notebooks>(self.arguments)
            .and_then(|(Notebooks {}, _)| self.session.caller(None, self.context));
        match caller {
            Ok(caller) => {
                let outcome = notebooks(&caller).await;
                result(Some(&caller), outcome, is_cancelled).await
            }
            Err(problem) => result(None, Err(problem), is_cancelled).await,
        }
    }
}

async fn notebooks(caller: &Caller) -> Result<ToolAnswer, Problem> {
    let request = NotebooksRequest {
        most: MOST_NOTEBOOKS,
        kernels: true,
    };
    let answer = api::notebooks(caller, request).await?;
    let kernels = &answer.kernels;
    let lines = kernels.iter().flat_map(text::kernel::lines);
    let mut lines: Vec<_> = lines.map(|line| as_tools(&line)).collect();
    let has_kernel = |path: &Path| {
        kernels
            .iter()
            .any(|it| it.path == caller.working_dir.join(path))
    };
    let others = answer.notebooks.iter().filter(|path| !has_kernel(path));
    lines.extend(others.map(|path| path.display().to_string()));
    match answer.more {
        0 if lines.is_empty() => lines.push("no notebook; open_notebook creates one".to_owned()),
        0 => {}
        more => lines.push(format!("{more} more")),
    }
    Ok(ToolAnswer::of(caller, &answer, rows(lines)).await)
}

/// Returns the parts of an answer that has neither outputs nor sources.
fn rows(lines: impl IntoIterator<Item = String>) -> Vec<Part> {
    lines.into_iter().map(Part::Row).collect()
}

async fn open_notebook(request: Request<'_, OpenNotebook>) -> Result<ToolAnswer, Problem> {
    let arguments = request.arguments;
    let kernel_of = arguments.kernel_of.as_deref();
    let kernel_of = kernel_of.map(|other| request.session.root().notebook(other));
    if arguments.server.is_some() && (arguments.python.is_some() || kernel_of.is_some()) {
        let text = "a kernel on a server goes with neither python nor kernel_of";
        return Err(Problem::new(ProblemKind::Usage, text));
    }
    let open = OpenRequest {
        kernel: arguments.kernel,
        python: arguments.python,
        kernel_of: kernel_of.transpose()?,
        server: arguments.server.map(|name| WantedServer {
            name,
            kernel_id: None,
            spec: None,
        }),
        ..OpenRequest::default()
    };
    let answer = api::open(request.caller, open).await?;
    let lines = match &answer {
        OpenAnswer::Opened(opened) => {
            let mut lines = vec![text::open::opened(opened)];
            lines.extend(opened.notes.iter().map(as_tools));
            lines
        }
        OpenAnswer::Created(created) => vec![format!("{}: created", created.notebook)],
    };
    Ok(ToolAnswer::of(request.caller, &answer, rows(lines)).await)
}

async fn get_notebook_state(request: Request<'_, GetNotebookState>) -> Result<ToolAnswer, Problem> {
    let since = revision(request.arguments.since.as_deref())?;
    let GetNotebookState {
        from,
        failed,
        matching,
        outline,
        ..
    } = request.arguments;
    let is_part = from.is_some() || failed || outline || matching.is_some();
    let cells = CellsRequest {
        since,
        from: from.unwrap_or_default(),
        only: Vec::from_iter(failed.then_some(CellCondition::Failed)),
        matching,
        outline,
        room: Some(LIST),
        names: true,
        ..CellsRequest::default()
    };
    let answer = api::cells(request.caller, cells).await?;
    let positions = request.session.positions();
    if !is_part && answer.more.is_none() {
        // With `since` the answer says what has become of the other cells.
        let ids = match since {
            None => answer.cells.iter().map(|cell| cell.id.clone()).collect(),
            Some(_) => api::cell_ids(request.caller).await?,
        };
        positions.set(request.notebook, ids.into_iter());
    } else {
        for cell in &answer.cells {
            positions.see(request.notebook, cell.index, &cell.id);
        }
    }
    let mut lines = text::cells::lines(&answer, since);
    let more = answer.more;
    lines.extend(more.map(|more| format!("{} more cells: from: {}", more.count, more.from)));
    Ok(ToolAnswer::of(request.caller, &answer, rows(lines)).await)
}

async fn read_cell(request: Request<'_, ReadCell>) -> Result<ToolAnswer, Problem> {
    let arguments = request.arguments;
    let limit = arguments.limit.unwrap_or(LIMIT);
    let cell = CellRequest {
        cells: arguments.cell.selectors(),
        all: false,
        outputs: match arguments.outputs {
            Some(false) => OutputForm::Omitted,
            _ => OutputForm::Previews(Some(limit)),
        },
    };
    let answer = api::cell(request.caller, cell).await?;
    let positions = request.session.positions();
    for cell in &answer.cells {
        positions.see(request.notebook, cell.index, &cell.id);
    }
    let parts = text::cell::parts(&answer)
        .into_iter()
        .map(|part| match part {
            Part::Others(text) => Part::Others(plain(&text)),
            line => line,
        });
    let mut tool_answer = ToolAnswer::of(request.caller, &answer, parts.collect()).await;
    tool_answer.images = answer
        .cells
        .iter()
        .flat_map(|cell| match &cell.outputs {
            ShownOutputs::Previews(previews) => previews.images(),
            ShownOutputs::Omitted | ShownOutputs::Raw(_) => Vec::new(),
        })
        .take(api::outputs::MOST_IMAGES)
        .collect();
    tool_answer.image_size = arguments.image_size;
    Ok(tool_answer)
}

/// Edits a notebook, and runs the written cells if that is requested.
async fn edit<T: EditArguments>(request: Request<'_, T>) -> Result<ToolAnswer, Problem> {
    let caller = request.caller;
    let RequestedEdit {
        operations,
        force,
        run_timeout,
    } = request.arguments.edit()?;
    if let Some(timeout_s) = run_timeout {
        // A call with a bad argument writes nothing.
        caller.wait(timeout_s)?;
    }
    let positions = request.session.positions();
    let are_guesses = positions.are_guesses(request.notebook, &operations);
    if !force {
        let ids = api::cell_ids(caller).await?;
        positions.check(request.notebook, &operations, &ids)?;
    }
    let edit = EditRequest {
        is_list: operations.len() > 1,
        operations,
        policy: policy(force),
    };
    let names_revision = edit.operations.iter().any(|it| if_rev(it).is_some());
    let answer = api::edit(caller, edit).await;
    let answer = answer.map_err(|problem| repeatable(problem, names_revision, are_guesses))?;
    positions.set(request.notebook, answer.ids());
    let lines = edited(&answer);
    if let Some(timeout_s) = run_timeout {
        let watcher = RunWatcher::new(request.context, request.cancelled, request.turn);
        let follow = follow_options(timeout_s, None);
        let run = api::exec_edited(caller, &answer, follow, &watcher);
        if let Some(ran) = watcher.watch(run).await?
            && let ExecAnswer::Job { job, .. } = &ran
        {
            let mut tool_answer = run_answer(caller, &ran, job, lines).await;
            tool_answer.op = answer.op;
            return Ok(tool_answer);
        }
    }
    let mut tool_answer = ToolAnswer::of(caller, &answer, rows(lines)).await;
    tool_answer.op.clone_from(&answer.op);
    tool_answer.is_error = answer.error.is_some();
    Ok(tool_answer)
}

/// Adds to a conflict how the edit is repeated: the answer has the whole texts, which count as seen.
fn repeatable(problem: Problem, names_revision: bool, are_guesses: bool) -> Problem {
    let Some(first) = problem.conflicts.first() else {
        return problem;
    };
    let revision = first.conflict.revision.filter(|_| names_revision);
    let is_unsaved = problem.conflicts.iter().any(|it| it.unsaved);
    let hint = match revision {
        _ if is_unsaved => "ask for it to be saved or reverted there, then repeat it".to_owned(),
        Some(now) => format!("if it still holds, repeat it with expected_revision: \"{now}\""),
        None => "if it still holds, repeat it: their change counts as seen now".to_owned(),
    };
    let other = "an index may mean another cell than you saw before this server was started: if so, name yours by its id";
    problem
        .all_hints(are_guesses.then_some(other))
        .hint(hint)
        .hint("force: true writes without a check")
}

fn edited(answer: &EditAnswer) -> Vec<String> {
    let lines = text::edit::lines(answer);
    let lines = lines.iter().chain(&answer.notes);
    let mut lines: Vec<_> = lines.map(as_tools).collect();
    lines.extend(answer.error.iter().flat_map(problem_lines));
    lines
}

async fn run_cell(request: Request<'_, RunCell>) -> Result<ToolAnswer, Problem> {
    let to_run = request.arguments.to_run()?;
    let RunCell {
        timeout_s,
        wait,
        limit,
        image_size,
        ..
    } = request.arguments;
    let follow = (wait != Some(false)).then(|| follow_options(timeout_s, limit));
    let watcher = RunWatcher::new(request.context, request.cancelled, request.turn);
    let caller = request.caller;
    let cells = match to_run {
        ToRun::Code(code) => {
            let run = RunRequest {
                code,
                max_time: None,
                follow,
            };
            let answer = watcher.watch(api::run(caller, run, &watcher)).await?;
            let mut tool_answer = run_answer(caller, &answer, &answer, None).await;
            tool_answer.image_size = image_size;
            return Ok(tool_answer);
        }
        ToRun::Cells(cells) => cells,
        ToRun::Verify => return verify(caller, &watcher, timeout_s).await,
    };
    let exec = ExecRequest {
        cells,
        follow,
        ..ExecRequest::default()
    };
    let answer = watcher.watch(api::exec(caller, exec, &watcher)).await?;
    match &answer {
        ExecAnswer::Job { job, doubts, .. } => {
            let doubts = doubts.as_ref().and_then(text::graph::doubts);
            let doubts = doubts.map(|doubts| as_tools(&doubts));
            let mut tool_answer = run_answer(caller, &answer, job, doubts).await;
            tool_answer.image_size = image_size;
            Ok(tool_answer)
        }
        ExecAnswer::Nothing { .. } => {
            let line = "there is nothing to run".to_owned();
            Ok(ToolAnswer::of(caller, &answer, rows([line])).await)
        }
    }
}

async fn get_run_status(request: Request<'_, GetRunStatus>) -> Result<ToolAnswer, Problem> {
    let arguments = request.arguments;
    let is_named = arguments.run_id.is_some();
    let wait = WaitRequest {
        job: arguments.run_id,
        all: arguments.all,
        follow: follow_options(
            Some(arguments.timeout_s.unwrap_or_default()),
            arguments.limit,
        ),
    };
    // A look does not interrupt what it looks at.
    let answer = tokio::select! {
        answer = api::wait(request.caller, wait, &api::job::Unobserved) => answer?,
        () = request.cancelled.notified() => return Err(Problem::new(ProblemKind::StillRunning, "cancelled")),
    };
    let record = &answer.record;
    let whose = match is_named || record.actor() == request.caller.by() {
        true => None,
        false => Some(format!("run {} of {}", answer.job, record.by)),
    };
    let run = api::job::RunAnswer::Followed(Box::new(answer));
    Ok(run_answer(request.caller, &run, &run, whose).await)
}

async fn answer_input(request: Request<'_, AnswerInput>) -> Result<ToolAnswer, Problem> {
    let AnswerInput {
        run_id,
        text,
        number,
        timeout_s,
        ..
    } = request.arguments;
    let question = QuestionRequest {
        job: run_id.clone(),
        force: false,
        number,
    };
    let job = match api::question(request.caller, question).await {
        Ok(question) => {
            let job = question.job.clone();
            api::reply(request.caller, ReplyRequest { question, text }).await?;
            Some(job)
        }
        // Somebody else has answered this question meanwhile.
        Err(_) if number.is_some() => run_id,
        Err(problem) => return Err(problem),
    };
    let wait = WaitRequest {
        job,
        // A repeated call has the whole answer: the one that asked had none.
        all: number.is_some(),
        follow: follow_options(timeout_s, None),
    };
    let watcher = RunWatcher::new(request.context, request.cancelled, request.turn);
    let answer = watcher
        .watch(api::wait(request.caller, wait, &watcher))
        .await?;
    let run = api::job::RunAnswer::Followed(Box::new(answer));
    Ok(run_answer(request.caller, &run, &run, None).await)
}

async fn kernel(request: Request<'_, Kernel>) -> Result<ToolAnswer, Problem> {
    let caller = request.caller;
    let Kernel {
        action,
        ref run_id,
        force,
        ..
    } = request.arguments;
    if action != KernelAction::Status {
        request.may_change()?;
    }
    match action {
        KernelAction::Status => {
            let answer = api::status(caller).await?;
            let lines = answer.sessions.iter().flat_map(text::kernel::lines);
            let lines = rows(lines.map(|line| as_tools(&line)));
            Ok(ToolAnswer::of(caller, &answer, lines).await)
        }
        KernelAction::Interrupt => match run_id {
            Some(job) => {
                let job = job.clone();
                let request = InterruptJobRequest { job, force };
                let answer = api::interrupt_job(caller, request).await?;
                let text = text::kernel::interrupted_job(&answer);
                Ok(ToolAnswer::of(caller, &answer, rows([as_tools(&text)])).await)
            }
            None => {
                let answer = api::interrupt(caller, InterruptRequest { force }).await?;
                let text = text::kernel::interrupted(&answer);
                Ok(ToolAnswer::of(caller, &answer, rows([as_tools(&text)])).await)
            }
        },
        KernelAction::Restart => {
            let request = RestartRequest {
                timeout: None,
                force,
            };
            let answer = api::restart(caller, request).await?;
            Ok(ToolAnswer::of(caller, &answer, rows([text::kernel::restarted(&answer)])).await)
        }
        KernelAction::Shutdown => {
            let answer = api::shutdown(
                caller,
                ShutdownRequest {
                    force,
                    detach: false,
                },
            )
            .await?;
            Ok(ToolAnswer::of(caller, &answer, rows([text::kernel::shut_down(&answer)])).await)
        }
        KernelAction::Packages => {
            let answer = api::packages(caller, request.arguments.packages()?).await?;
            let mut lines = text::packages::lines(&answer);
            lines.extend(answer.notes.iter().cloned());
            Ok(ToolAnswer::of(caller, &answer, rows(lines)).await)
        }
    }
}

async fn variables(request: Request<'_, Variables>) -> Result<ToolAnswer, Problem> {
    let is_one = request.arguments.name.is_some();
    let vars = VarsRequest {
        name: request.arguments.name,
        all: false,
        most: Some(MOST_VARIABLES),
    };
    let answer = api::vars(request.caller, vars).await?;
    let mut lines = text::vars::lines(&answer, is_one);
    if !is_one {
        lines.extend(text::vars::note(&answer).map(|(note, _)| note));
    }
    Ok(ToolAnswer::of(request.caller, &answer, rows(lines)).await)
}

async fn history(request: Request<'_, History>) -> Result<ToolAnswer, Problem> {
    let (caller, arguments) = (request.caller, &request.arguments);
    let count = arguments.limit.unwrap_or(ENTRIES);
    if matches!(
        arguments.action,
        HistoryAction::Undo | HistoryAction::Restore
    ) {
        request.may_change()?;
    }
    match arguments.action {
        HistoryAction::Log => {
            let log = LogRequest {
                count,
                ..LogRequest::default()
            };
            let answer = api::log(caller, log).await?;
            let lines = answer.log.iter();
            let lines = rows(lines.map(|entry| text::log::line(entry, &answer.notebook)));
            Ok(ToolAnswer::of(caller, &answer, lines).await)
        }
        HistoryAction::Versions => {
            let cell = arguments.cell()?;
            let answer = api::cell_versions(caller, VersionsRequest { cell, count }).await?;
            let lines = rows(version_lines(&answer.versions));
            Ok(ToolAnswer::of(caller, &answer, lines).await)
        }
        HistoryAction::Diff => {
            let before = match &arguments.revision {
                Some(revision) => DiffBase::Revision(revision.clone()),
                None => DiffBase::Unnamed,
            };
            let answer = api::diff_notebooks(caller, DiffRequest { before }).await?;
            let mut lines = text::diff::note(&answer);
            lines.extend(text::diff::lines(&answer, |_, line| line));
            Ok(ToolAnswer::of(caller, &answer, rows(lines)).await)
        }
        HistoryAction::Undo => {
            let answer = api::undo(caller, arguments.undo()).await?;
            let positions = request.session.positions();
            positions.set(request.notebook, answer.edit.ids());
            let mut lines = vec![format!("took back {}", answer.undone.op)];
            lines.extend(edited(&answer.edit));
            let mut tool_answer = ToolAnswer::of(caller, &answer, rows(lines)).await;
            tool_answer.op = answer.edit.op;
            Ok(tool_answer)
        }
        HistoryAction::Restore => {
            let answer = api::restore(caller, arguments.restore()?).await?;
            let positions = request.session.positions();
            positions.set(request.notebook, answer.edit.ids());
            let lines = rows(edited(&answer.edit));
            let mut tool_answer = ToolAnswer::of(caller, &answer, lines).await;
            tool_answer.op = answer.edit.op;
            Ok(tool_answer)
        }
    }
}
