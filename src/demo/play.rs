//! The steps of the demo, in their order.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use super::front_end::FrontEnd;
use super::{DemoError, ENDS, NOTEBOOK, Said, Stage, Step, Who};
use crate::client::{Execute, ExecutionEvent, OutputMessage, RequestEnd};
use crate::wire::Channel;

/// How many lines the person's cell prints, and the pause between two lines.
const LINES: usize = 5;
const PAUSE: Duration = Duration::from_millis(150);

/// How long a cell of the front end may take.
const CELL: Duration = Duration::from_secs(60);

/// Plays all steps.
pub(super) async fn play(stage: &Stage, tell: &mut dyn FnMut(&Step)) -> Result<(), DemoError> {
    let mut teller = Teller { stage, tell };
    teller.demo(
        "makes a project for one kernel and two hands: an agent's `nb`, a person's front end",
        vec![
            format!("folder {}", stage.root.display()),
            format!("Python {}", stage.python.display()),
        ],
    );
    let pid = teller.agent_opens().await?;
    let mut human = teller.human_joins(&pid).await?;
    teller.they_share(&mut human, &pid).await?;
    teller.human_sees_output_as_it_comes(&mut human).await?;
    teller.human_is_asked(&mut human).await?;
    teller.human_interrupts(&mut human).await?;
    teller.human_leaves(human).await?;
    if !stage.kept {
        teller.agent_ends().await?;
    }
    teller.demo("is done: every step saw what it should", Vec::new());
    Ok(())
}

struct Teller<'a> {
    stage: &'a Stage,
    tell: &'a mut dyn FnMut(&Step),
}

impl Teller<'_> {
    async fn agent_opens(&mut self) -> Result<String, DemoError> {
        let python = self.stage.python.to_string_lossy().into_owned();
        self.nb(&["open", NOTEBOOK, "--python", &python, "--no-serve"])
            .await?;
        let code = "import os, time; numbers = [1, 2, 3]; print('kernel process', os.getpid())";
        let ran = self.nb(&["run", code]).await?;
        let pid = ran.stdout.trim().rsplit(' ').next().unwrap_or_default();
        let known = self.stage.kernels();
        expect(
            &ran.command,
            "the process that nb started",
            &ran.stdout,
            known.iter().any(|kernel| kernel.pid.to_string() == pid),
        )?;
        self.nb(&["serve"]).await?;
        Ok(pid.to_owned())
    }

    async fn human_joins(&mut self, pid: &str) -> Result<FrontEnd, DemoError> {
        let spec = self.stage.root.join("jupyter/kernels/nb-shared");
        let mut human = FrontEnd::launch(
            &spec,
            &self.stage.root,
            &self.stage.root.join("front-end"),
            &self.stage.environment,
        )
        .await?;
        let argv = human.argv.join(OsStr::new(" "));
        let did = format!(
            "launches the kernelspec as a front end does: {}",
            argv.display()
        );
        let info = human.client.kernel_info(Channel::Control, CELL).await?;
        let info: serde_json::Value = serde_json::from_slice(info.content()).unwrap_or_default();
        let banner = info["banner"].as_str().unwrap_or_default();
        let saw = vec![
            format!("answered {} after the launch", millis(human.took)),
            banner.lines().next().unwrap_or_default().to_owned(),
        ];
        let took = human.took;
        self.human(&did, saw, took);
        let code = "print(os.getpid(), numbers)";
        let seen = self.cell(&mut human, code).await?;
        let wanted = "the agent's variable in the agent's process";
        let is_so = seen.trim() == format!("{pid} [1, 2, 3]");
        expect(code, wanted, &seen, is_so)?;
        Ok(human)
    }

    async fn they_share(&mut self, human: &mut FrontEnd, pid: &str) -> Result<(), DemoError> {
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
        let began = Instant::now();
        let mut arrived = Vec::new();
        let request = Execute::new(code.as_str());
        let watched = human.client.execute(&request, |event| {
            if let Some(OutputMessage::Stream(_)) = event.output() {
                arrived.push(began.elapsed());
            }
            None
        });
        let outcome = within(&code, watched).await?;
        let times: Vec<_> = arrived.iter().map(|at| millis(*at)).collect();
        let saw = vec![format!("lines after {}", times.join(", "))];
        self.human(&format!("runs {}", one_line(&code)), saw, began.elapsed());
        let ends = arrived.first().zip(arrived.last());
        let is_spread = ends.is_some_and(|(first, last)| *last >= *first + PAUSE);
        expect(
            &code,
            "lines one after another",
            &times.join(", "),
            outcome.end == RequestEnd::Ok && arrived.len() >= LINES && is_spread,
        )
    }

    async fn human_is_asked(&mut self, human: &mut FrontEnd) -> Result<(), DemoError> {
        let code = "name = input('What is your name? ')";
        let began = Instant::now();
        let mut asked = String::new();
        let mut request = Execute::new(code);
        request.allow_stdin = true;
        let answered = human.client.execute(&request, |event| match event {
            ExecutionEvent::Prompt(prompt) => {
                asked.clone_from(&prompt.prompt);
                Some("Ada".to_owned())
            }
            _ => None,
        });
        let outcome = within(code, answered).await?;
        let saw = vec![format!("asked {asked:?}, answered \"Ada\"")];
        self.human(&format!("runs {code}"), saw, began.elapsed());
        expect(
            code,
            "the question, once",
            &asked,
            outcome.end == RequestEnd::Ok && asked == "What is your name? ",
        )?;
        self.nb_prints("print('hello', name)", "the answer", "hello Ada")
            .await
    }

    async fn human_interrupts(&mut self, human: &mut FrontEnd) -> Result<(), DemoError> {
        let code = "print('asleep', flush=True); time.sleep(600)";
        let began = Instant::now();
        let mut pressed = None;
        let followed = async {
            let mut execution = human.client.start(&Execute::new(code)).await?;
            while let Some(event) = execution.next().await {
                if matches!(event.output(), Some(OutputMessage::Stream(_))) {
                    pressed = Some(Instant::now());
                    execution.interrupt();
                }
            }
            Ok::<_, DemoError>(execution.outcome().cloned())
        };
        let outcome = within(code, followed).await?;
        let raised = match outcome.as_ref().map(|outcome| &outcome.end) {
            Some(RequestEnd::Raised(raised)) => raised.ename.clone(),
            other => format!("{other:?}"),
        };
        let after = pressed.map(|at| millis(at.elapsed())).unwrap_or_default();
        let saw = vec![format!("{raised}, {after} after the interrupt")];
        let did = format!("runs {code} and interrupts it");
        self.human(&did, saw, began.elapsed());
        let wanted = "KeyboardInterrupt";
        expect(code, wanted, &raised, raised == wanted)
    }

    async fn human_leaves(&mut self, human: FrontEnd) -> Result<(), DemoError> {
        let (status, took) = human.leave().await?;
        let saw = format!("nb-proxy ended with {status} after {}", millis(took));
        self.human("closes the window: SIGTERM to nb-proxy", vec![saw], took);
        let wanted = "the kernel alive, with everything in it";
        self.nb_prints("print(name, sum(numbers))", wanted, "Ada 42")
            .await
    }

    async fn agent_ends(&mut self) -> Result<(), DemoError> {
        let kernels = self.stage.kernels();
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
        let followed = human.client.execute(&request, |event| {
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
        let outcome = within(code, followed).await?;
        let saw = text.lines().map(str::to_owned).collect();
        self.human(&format!("runs {}", one_line(code)), saw, outcome.duration);
        expect(code, "no error", &text, outcome.end == RequestEnd::Ok)?;
        Ok(text)
    }

    /// Runs a command of the agent, and reports the step.
    async fn nb(&mut self, arguments: &[&str]) -> Result<Said, DemoError> {
        let said = self.stage.nb(arguments).await?;
        let saw = said.stdout.lines().chain(said.stderr.lines());
        let saw = saw.map(str::to_owned).collect();
        self.tell(Who::Agent, format!("$ {}", said.command), saw, said.took);
        Ok(said)
    }

    /// Runs code of the agent, which must print `text`.
    async fn nb_prints(&mut self, code: &str, wanted: &str, text: &str) -> Result<(), DemoError> {
        let ran = self.nb(&["run", code]).await?;
        let is_so = ran.stdout.trim() == text;
        expect(&ran.command, wanted, &ran.stdout, is_so)
    }

    fn human(&mut self, did: &str, saw: Vec<String>, took: Duration) {
        self.tell(Who::Human, did.to_owned(), saw, took);
    }

    fn demo(&mut self, did: &str, saw: Vec<String>) {
        self.tell(Who::Demo, did.to_owned(), saw, Duration::ZERO);
    }

    fn tell(&mut self, who: Who, did: String, saw: Vec<String>, took: Duration) {
        let at = self.stage.began.elapsed();
        (self.tell)(&Step {
            at,
            who,
            did,
            saw,
            took,
        });
    }
}

async fn within<T, E: Into<DemoError>>(
    step: &str,
    followed: impl Future<Output = Result<T, E>>,
) -> Result<T, DemoError> {
    match tokio::time::timeout(CELL, followed).await {
        Ok(result) => result.map_err(Into::into),
        Err(_) => Err(DemoError::Unexpected {
            step: one_line(step),
            wanted: "an end".to_owned(),
            saw: format!("none within {CELL:?}"),
        }),
    }
}

fn expect(step: &str, wanted: &str, saw: &str, is_so: bool) -> Result<(), DemoError> {
    if is_so {
        return Ok(());
    }
    Err(DemoError::Unexpected {
        step: one_line(step),
        wanted: wanted.to_owned(),
        saw: format!("{:?}", saw.trim()),
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
