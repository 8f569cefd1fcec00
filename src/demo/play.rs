//! The steps of the demo, in their order.

use std::time::{Duration, Instant};

use super::front_end::{FrontEnd, installed_spec};
use super::{DemoError, ENDS, NOTEBOOK, Said, Stage, Step, Who};
use crate::client::{Event, Execute, Output, RequestEnd, RequestOutcome};
use crate::wire::Channel;

/// How many lines the person's cell prints, and the pause between two.
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

/// What the person saw of a cell.
struct Seen {
    text: String,
    outcome: RequestOutcome,
}

impl Teller<'_> {
    async fn agent_opens(&mut self) -> Result<String, DemoError> {
        let python = self.stage.python.to_string_lossy().into_owned();
        let opened = self
            .stage
            .nb(&["open", NOTEBOOK, "--python", &python, "--no-serve"])
            .await?;
        self.agent(&opened);
        let code = "import os, time; numbers = [1, 2, 3]; print('kernel process', os.getpid())";
        let ran = self.stage.nb(&["run", code]).await?;
        self.agent(&ran);
        let pid = ran.stdout.trim().rsplit(' ').next().unwrap_or_default();
        let known = self.stage.kernels();
        expect(
            &ran.command,
            "the process that nb started",
            &ran.stdout,
            known.iter().any(|kernel| kernel.pid.to_string() == pid),
        )?;
        let served = self.stage.nb(&["serve"]).await?;
        self.agent(&served);
        Ok(pid.to_owned())
    }

    async fn human_joins(&mut self, pid: &str) -> Result<FrontEnd, DemoError> {
        let spec = installed_spec(&self.stage.root.join("jupyter"));
        let mut human = FrontEnd::launch(
            &spec,
            &self.stage.root,
            &self.stage.root.join("front-end"),
            &self.stage.environment,
        )
        .await?;
        let argv: Vec<_> = human.argv.iter().map(|it| it.to_string_lossy()).collect();
        let did = format!(
            "launches the kernelspec as a front end does: {}",
            argv.join(" ")
        );
        let info = human.client.kernel_info(Channel::Control, CELL).await?;
        let banner = serde_json::from_slice::<serde_json::Value>(info.content())
            .ok()
            .and_then(|content| Some(content.get("banner")?.as_str()?.to_owned()))
            .unwrap_or_default();
        let saw = vec![
            format!("answered {} after the launch", millis(human.took)),
            banner.lines().next().unwrap_or_default().to_owned(),
        ];
        let took = human.took;
        self.human(&did, saw, took);
        let code = "print(os.getpid(), numbers)";
        let seen = self.cell(&mut human, code).await?;
        expect(
            code,
            "the agent's variable in the agent's process",
            &seen.text,
            seen.text.trim() == format!("{pid} [1, 2, 3]"),
        )?;
        Ok(human)
    }

    async fn they_share(&mut self, human: &mut FrontEnd, pid: &str) -> Result<(), DemoError> {
        self.cell(human, "numbers.append(36)").await?;
        let ran = self
            .stage
            .nb(&["run", "print(os.getpid()); sum(numbers)"])
            .await?;
        self.agent(&ran);
        expect(
            &ran.command,
            "the person's change",
            &ran.stdout,
            ran.stdout.trim() == format!("{pid}\n42"),
        )?;
        let status = self.stage.nb(&["status"]).await?;
        self.agent(&status);
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
            if let Some(Output::Stream(_)) = event.output() {
                arrived.push(began.elapsed());
            }
            None
        });
        let outcome = within(&code, watched).await?;
        let times: Vec<_> = arrived.iter().map(|at| millis(*at)).collect();
        let saw = vec![format!("lines after {}", times.join(", "))];
        self.human(&format!("runs {}", one_line(&code)), saw, began.elapsed());
        let spread = match (arrived.first(), arrived.last()) {
            (Some(first), Some(last)) => last.saturating_sub(*first),
            _ => Duration::ZERO,
        };
        expect(
            &code,
            "lines one after another",
            &times.join(", "),
            outcome.end == RequestEnd::Ok && arrived.len() >= LINES && spread >= PAUSE,
        )
    }

    async fn human_is_asked(&mut self, human: &mut FrontEnd) -> Result<(), DemoError> {
        let code = "name = input('What is your name? ')";
        let began = Instant::now();
        let mut asked = String::new();
        let mut request = Execute::new(code);
        request.allow_stdin = true;
        let answered = human.client.execute(&request, |event| match event {
            Event::Prompt(prompt) => {
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
        let ran = self.stage.nb(&["run", "print('hello', name)"]).await?;
        self.agent(&ran);
        expect(
            &ran.command,
            "the answer",
            &ran.stdout,
            ran.stdout.trim() == "hello Ada",
        )
    }

    async fn human_interrupts(&mut self, human: &mut FrontEnd) -> Result<(), DemoError> {
        let code = "print('asleep', flush=True); time.sleep(600)";
        let began = Instant::now();
        let mut pressed = None;
        let followed = async {
            let mut execution = human.client.start(&Execute::new(code)).await?;
            while let Some(event) = execution.next().await {
                if matches!(event.output(), Some(Output::Stream(_))) {
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
        expect(
            code,
            "KeyboardInterrupt",
            &raised,
            raised == "KeyboardInterrupt",
        )
    }

    async fn human_leaves(&mut self, human: FrontEnd) -> Result<(), DemoError> {
        let (status, took) = human.leave().await?;
        let saw = vec![format!(
            "nb-proxy ended with {status} after {}",
            millis(took)
        )];
        self.human("closes the window: SIGTERM to nb-proxy", saw, took);
        let ran = self.stage.nb(&["run", "print(name, sum(numbers))"]).await?;
        self.agent(&ran);
        expect(
            &ran.command,
            "the kernel alive, with everything in it",
            &ran.stdout,
            ran.stdout.trim() == "Ada 42",
        )
    }

    async fn agent_ends(&mut self) -> Result<(), DemoError> {
        let kernels = self.stage.kernels();
        let ended = self.stage.nb(&["shutdown"]).await?;
        self.agent(&ended);
        for kernel in kernels {
            if !kernel.ended_within(ENDS).await {
                return Err(DemoError::LeftRunning(kernel.pid));
            }
        }
        self.demo("looks around", vec!["nothing is left running".to_owned()]);
        Ok(())
    }

    /// Runs a cell of the person's to its end, and tells of it.
    async fn cell(&mut self, human: &mut FrontEnd, code: &str) -> Result<Seen, DemoError> {
        let mut text = String::new();
        let request = Execute::new(code);
        let followed = human.client.execute(&request, |event| {
            match event.output() {
                Some(Output::Stream(it)) => text.push_str(&it.text),
                Some(Output::Result(it)) => {
                    let plain = it.data.get("text/plain").and_then(|it| it.as_str());
                    text.push_str(plain.unwrap_or_default());
                }
                Some(Output::Error(it)) => text.push_str(&it.traceback.join("\n")),
                _ => {}
            }
            None
        });
        let outcome = within(code, followed).await?;
        let saw = text.lines().map(str::to_owned).collect();
        self.human(&format!("runs {}", one_line(code)), saw, outcome.duration);
        let seen = Seen { text, outcome };
        expect(
            code,
            "no error",
            &seen.text,
            seen.outcome.end == RequestEnd::Ok,
        )?;
        Ok(seen)
    }

    fn agent(&mut self, said: &Said) {
        let saw = said.stdout.lines().chain(said.stderr.lines());
        let saw = saw.map(str::to_owned).collect();
        self.tell(Who::Agent, format!("$ {}", said.command), saw, said.took);
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

/// Returns code as one line that is still Python.
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
