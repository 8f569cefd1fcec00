//! The steps of the demo, in their order.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use super::front_end::FrontEnd;
use super::{CommandOutput, DemoError, DemoProject, ENDS, NOTEBOOK, Step, StepActor};
use crate::client::{Execute, ExecutionEvent, OutputMessage, RequestEnd};
use crate::wire::Channel;

/// How many lines the person's cell prints, and the pause between two lines.
const LINES: usize = 5;
const PAUSE: Duration = Duration::from_millis(150);

/// How long a cell of the front end may take.
const CELL: Duration = Duration::from_secs(60);

/// Plays all steps.
pub(super) async fn run_steps(
    project: &DemoProject,
    report: &mut dyn FnMut(&Step),
) -> Result<(), DemoError> {
    let mut narrator = Narrator { project, report };
    narrator.demo(
        "makes a project for one kernel and two hands: an agent's `nb`, a person's front end",
        vec![
            format!("folder {}", project.root.display()),
            format!("Python {}", project.python.display()),
        ],
    );
    let pid = narrator.agent_opens().await?;
    let mut human = narrator.human_joins(&pid).await?;
    narrator.share_variables(&mut human, &pid).await?;
    narrator.human_sees_output_as_it_comes(&mut human).await?;
    narrator.human_answers(&mut human).await?;
    narrator.human_interrupts(&mut human).await?;
    narrator.human_leaves(human).await?;
    if !project.kept {
        narrator.agent_ends().await?;
    }
    narrator.demo("is done: every step saw what it should", Vec::new());
    Ok(())
}

struct Narrator<'a> {
    project: &'a DemoProject,
    report: &'a mut dyn FnMut(&Step),
}

impl Narrator<'_> {
    async fn agent_opens(&mut self) -> Result<String, DemoError> {
        let python = self.project.python.to_string_lossy().into_owned();
        self.nb(&["open", NOTEBOOK, "--python", &python, "--no-serve"])
            .await?;
        let code = "import os, time; numbers = [1, 2, 3]; print('kernel process', os.getpid())";
        let ran = self.nb(&["run", code]).await?;
        let pid = ran.stdout.trim().rsplit(' ').next().unwrap_or_default();
        let kernels = self.project.kernels();
        expect(
            &ran.command,
            "the process that nb started",
            &ran.stdout,
            kernels.iter().any(|kernel| kernel.pid.to_string() == pid),
        )?;
        self.nb(&["serve"]).await?;
        Ok(pid.to_owned())
    }

    async fn human_joins(&mut self, pid: &str) -> Result<FrontEnd, DemoError> {
        let spec = self.project.root.join("jupyter/kernels/nb-shared");
        let mut human = FrontEnd::launch(
            &spec,
            &self.project.root,
            &self.project.root.join("front-end"),
            &self.project.environment,
        )
        .await?;
        let argv = human.argv.join(OsStr::new(" "));
        let action = format!(
            "launches the kernelspec as a front end does: {}",
            argv.display()
        );
        let info = human.client.kernel_info(Channel::Control, CELL).await?;
        let info: serde_json::Value = serde_json::from_slice(info.content()).unwrap_or_default();
        let banner = info["banner"].as_str().unwrap_or_default();
        let output = vec![
            format!("answered {} after the launch", millis(human.took)),
            banner.lines().next().unwrap_or_default().to_owned(),
        ];
        let took = human.took;
        self.human(&action, output, took);
        let code = "print(os.getpid(), numbers)";
        let printed = self.cell(&mut human, code).await?;
        let expected = "the agent's variable in the agent's process";
        let holds = printed.trim() == format!("{pid} [1, 2, 3]");
        expect(code, expected, &printed, holds)?;
        Ok(human)
    }

    async fn share_variables(&mut self, human: &mut FrontEnd, pid: &str) -> Result<(), DemoError> {
        self.cell(human, "numbers.append(36)").await?;
        let (code, printed) = ("print(os.getpid()); sum(numbers)", format!("{pid}\n42"));
        self.nb_prints(code, "the person's change", &printed)
            .await?;
        self.nb(&["status"]).await?;
        Ok(())
    }

    async fn human_sees_output_as_it_comes(
        &mut self,
        human: &mut FrontEnd,
    ) -> Result<(), DemoError> {
        let code = format!(
            "for i in range({LINES}):\n    print('line', i, flush=True)\n    time.sleep({})",
            PAUSE.as_secs_f64()
        );
        let start = Instant::now();
        let mut arrived = Vec::new();
        let request = Execute::new(code.as_str());
        let watched = human.client.execute(&request, |event| {
            if let Some(OutputMessage::Stream(_)) = event.output() {
                arrived.push(start.elapsed());
            }
            None
        });
        let outcome = with_time_limit(&code, watched).await?;
        let times: Vec<_> = arrived.iter().map(|at| millis(*at)).collect();
        let output = vec![format!("lines after {}", times.join(", "))];
        self.human(
            &format!("runs {}", one_line(&code)),
            output,
            start.elapsed(),
        );
        let ends = arrived.first().zip(arrived.last());
        let is_spread = ends.is_some_and(|(first, last)| *last >= *first + PAUSE);
        expect(
            &code,
            "lines one after another",
            &times.join(", "),
            outcome.end == RequestEnd::Ok && arrived.len() >= LINES && is_spread,
        )
    }

    async fn human_answers(&mut self, human: &mut FrontEnd) -> Result<(), DemoError> {
        let code = "name = input('What is your name? ')";
        let start = Instant::now();
        let mut prompt_text = String::new();
        let mut request = Execute::new(code);
        request.allow_stdin = true;
        let answered = human.client.execute(&request, |event| match event {
            ExecutionEvent::Prompt(prompt) => {
                prompt_text.clone_from(&prompt.prompt);
                Some("Ada".to_owned())
            }
            _ => None,
        });
        let outcome = with_time_limit(code, answered).await?;
        let output = vec![format!("asked {prompt_text:?}, answered \"Ada\"")];
        self.human(&format!("runs {code}"), output, start.elapsed());
        expect(
            code,
            "the question, once",
            &prompt_text,
            outcome.end == RequestEnd::Ok && prompt_text == "What is your name? ",
        )?;
        self.nb_prints("print('hello', name)", "the answer", "hello Ada")
            .await
    }

    async fn human_interrupts(&mut self, human: &mut FrontEnd) -> Result<(), DemoError> {
        let code = "print('asleep', flush=True); time.sleep(600)";
        let start = Instant::now();
        let mut pressed = None;
        let execution = async {
            let mut execution = human.client.start(&Execute::new(code)).await?;
            while let Some(event) = execution.next().await {
                if matches!(event.output(), Some(OutputMessage::Stream(_))) {
                    pressed = Some(Instant::now());
                    execution.interrupt();
                }
            }
            Ok::<_, DemoError>(execution.outcome().cloned())
        };
        let outcome = with_time_limit(code, execution).await?;
        let raised = match outcome.as_ref().map(|outcome| &outcome.end) {
            Some(RequestEnd::Raised(raised)) => raised.ename.clone(),
            other => format!("{other:?}"),
        };
        let after = pressed.map(|at| millis(at.elapsed())).unwrap_or_default();
        let output = vec![format!("{raised}, {after} after the interrupt")];
        let action = format!("runs {code} and interrupts it");
        self.human(&action, output, start.elapsed());
        let expected = "KeyboardInterrupt";
        expect(code, expected, &raised, raised == expected)
    }

    async fn human_leaves(&mut self, human: FrontEnd) -> Result<(), DemoError> {
        let (status, took) = human.leave().await?;
        let output = format!("nb-proxy ended with {status} after {}", millis(took));
        self.human("closes the window: SIGTERM to nb-proxy", vec![output], took);
        let expected = "the kernel alive, with everything in it";
        self.nb_prints("print(name, sum(numbers))", expected, "Ada 42")
            .await
    }

    async fn agent_ends(&mut self) -> Result<(), DemoError> {
        let kernels = self.project.kernels();
        self.nb(&["shutdown"]).await?;
        for kernel in kernels {
            if !kernel.ended_within(ENDS).await {
                return Err(DemoError::LeftRunning(kernel.pid));
            }
        }
        self.demo("looks around", vec!["nothing is left running".to_owned()]);
        Ok(())
    }

    /// Runs a cell of the person to its end, and reports the step.
    async fn cell(&mut self, human: &mut FrontEnd, code: &str) -> Result<String, DemoError> {
        let mut text = String::new();
        let request = Execute::new(code);
        let execution = human.client.execute(&request, |event| {
            match event.output() {
                Some(OutputMessage::Stream(it)) => text.push_str(&it.text),
                Some(OutputMessage::Result(it)) => {
                    let plain = it.data.get("text/plain").and_then(|it| it.as_str());
                    text.push_str(plain.unwrap_or_default());
                }
                Some(OutputMessage::Error(it)) => text.push_str(&it.traceback.join("\n")),
                _ => {}
            }
            None
        });
        let outcome = with_time_limit(code, execution).await?;
        let output = text.lines().map(str::to_owned).collect();
        self.human(
            &format!("runs {}", one_line(code)),
            output,
            outcome.duration,
        );
        expect(code, "no error", &text, outcome.end == RequestEnd::Ok)?;
        Ok(text)
    }

    /// Runs a command of the agent, and reports the step.
    async fn nb(&mut self, arguments: &[&str]) -> Result<CommandOutput, DemoError> {
        let ran = self.project.nb(arguments).await?;
        let output = ran.stdout.lines().chain(ran.stderr.lines());
        let output = output.map(str::to_owned).collect();
        self.report(
            StepActor::Agent,
            format!("$ {}", ran.command),
            output,
            ran.took,
        );
        Ok(ran)
    }

    /// Runs code of the agent, which must print `text`.
    async fn nb_prints(&mut self, code: &str, expected: &str, text: &str) -> Result<(), DemoError> {
        let ran = self.nb(&["run", code]).await?;
        let holds = ran.stdout.trim() == text;
        expect(&ran.command, expected, &ran.stdout, holds)
    }

    fn human(&mut self, action: &str, output: Vec<String>, took: Duration) {
        self.report(StepActor::Human, action.to_owned(), output, took);
    }

    fn demo(&mut self, action: &str, output: Vec<String>) {
        self.report(StepActor::Demo, action.to_owned(), output, Duration::ZERO);
    }

    fn report(&mut self, actor: StepActor, action: String, output: Vec<String>, took: Duration) {
        let at = self.project.start.elapsed();
        (self.report)(&Step {
            at,
            actor,
            action,
            output,
            took,
        });
    }
}

async fn with_time_limit<T, E: Into<DemoError>>(
    step: &str,
    execution: impl Future<Output = Result<T, E>>,
) -> Result<T, DemoError> {
    match tokio::time::timeout(CELL, execution).await {
        Ok(result) => result.map_err(Into::into),
        Err(_) => Err(DemoError::Unexpected {
            step: one_line(step),
            expected: "an end".to_owned(),
            actual: format!("none within {CELL:?}"),
        }),
    }
}

fn expect(step: &str, expected: &str, actual: &str, holds: bool) -> Result<(), DemoError> {
    if holds {
        return Ok(());
    }
    Err(DemoError::Unexpected {
        step: one_line(step),
        expected: expected.to_owned(),
        actual: format!("{:?}", actual.trim()),
    })
}

/// Returns code as one line that is still valid Python.
fn one_line(code: &str) -> String {
    code.lines()
        .map(str::trim)
        .fold(String::new(), |mut all, line| {
            if !all.is_empty() {
                all.push_str(if all.ends_with(':') { " " } else { "; " });
            }
            all + line
        })
}

fn millis(took: Duration) -> String {
    format!("{} ms", took.as_millis())
}
