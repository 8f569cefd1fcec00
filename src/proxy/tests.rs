//! A simulated queue before one kernel: jobs of two agents, by the rules of their recorders, and two front ends, by the
//! rules of their bridges, while the kernel is restarted, shut down, killed and opened in random order. They learn
//! with a delay what happens to the kernel. No request may run on a kernel for which it was not made, and each must be
//! answered.
//!
//! `NB_QUEUE_SEED=N` runs one seed and prints its steps.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::json;

use crate::execution::queue::{self, NextStep};
use crate::project::jobs::{Job, JobState};
use crate::project::{Session, Status};
use crate::route::{Action, Bridge, ClientId, Ending, FrontEnd, Interrupt, Kernel, Now, Settings};
use crate::wire::fixtures::message;
use crate::wire::{Channel, Verified};

/// The number of worlds that `cargo test` runs.
const SEEDS: u64 = 10_000;

/// The steps of one world, before all running work ends.
const STEPS: u64 = 14;

/// A small generator of random numbers.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// What became of a request.
#[derive(Debug)]
struct Request {
    /// The front end whose cell it is.
    front_end: Option<usize>,
    /// The generation of the kernel for which it was made; `None` until the front end knows the kernel that it awaits.
    made_for: Option<u64>,
    /// Whether it was made while the kernel was being started.
    is_early: bool,
    ran_on: Option<u64>,
    is_answered: bool,
}

/// A request in a kernel's queue.
#[derive(Debug)]
enum Code {
    Job(usize),
    /// A cell of a front end: the header of its request.
    Cell {
        front_end: usize,
        header: Bytes,
    },
}

#[derive(Debug)]
struct SimulatedKernel {
    generation: u64,
    queue: VecDeque<(usize, Code)>,
    running: Option<(usize, Code)>,
}

/// How far the recorder of a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waits,
    /// It is connected to the kernel of a generation.
    Joined(u64),
    Sent(u64),
    Over,
}

#[derive(Debug)]
struct SimulatedJob {
    job: Job,
    request: usize,
    stage: Stage,
}

#[derive(Debug)]
struct SimulatedFrontEnd {
    bridge: Bridge,
    /// The messages that are not written to the kernel yet.
    outbox: VecDeque<(ClientId, Channel, Verified)>,
}

/// What must happen in some world, so that the test means something.
#[derive(Debug, Default)]
struct Reached {
    jobs_ran: AtomicU64,
    cells_ran: AtomicU64,
    /// A job ended before its turn, since its kernel had ended.
    jobs_ended_in_queue: AtomicU64,
    /// A job was connected to a kernel that had ended.
    jobs_lost_their_kernel: AtomicU64,
    /// A job waited for an earlier one of its actor.
    jobs_waited: AtomicU64,
    /// A request that was made while the kernel was restarted ran on the next one.
    ran_after_a_restart: AtomicU64,
    /// A job that was requested while the kernel was restarted ran on the next one.
    jobs_ran_after_a_restart: AtomicU64,
    /// A cell failed that no kernel had run.
    cells_failed: AtomicU64,
    /// A cell of a front end that knew its kernel failed before it was written to that kernel, which had ended.
    cells_lost_their_kernel: AtomicU64,
    /// A kernel ended while it ran a cell.
    cells_ended_with_their_kernel: AtomicU64,
}

struct World<'a> {
    rng: Rng,
    is_shown: bool,
    reached: &'a Reached,
    now: Now,
    session: Session,
    kernel: Option<SimulatedKernel>,
    processes: u32,
    requests: Vec<Request>,
    jobs: Vec<SimulatedJob>,
    front_ends: Vec<SimulatedFrontEnd>,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn ending() -> Ending {
    Ending::new("KernelDied", "it ended")
}

/// Returns the number of the request that a message answers.
fn parent_number(message: &Verified) -> Option<usize> {
    message.parent().ok()?.msg_id.parse().ok()
}

impl<'a> World<'a> {
    fn new(seed: u64, reached: &'a Reached, now: Now, session: Session) -> Self {
        let front_end = |number: usize| {
            let settings = Settings {
                id: format!("own {number}"),
                held_bytes: 1 << 20,
                undelivered_bytes: 1 << 20,
                front_end: FrontEnd::VsCode,
            };
            SimulatedFrontEnd {
                bridge: Bridge::new(settings, now),
                outbox: VecDeque::new(),
            }
        };
        let mut world = Self {
            rng: Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            is_shown: false,
            reached,
            now,
            session,
            kernel: None,
            processes: 0,
            requests: Vec::new(),
            jobs: Vec::new(),
            front_ends: (0..2).map(front_end).collect(),
        };
        world.open();
        world.finish_start();
        for number in 0..world.front_ends.len() {
            for channel in [Channel::Shell, Channel::Control, Channel::Stdin] {
                let client = world.client(number);
                world.front_ends[number]
                    .bridge
                    .client_joined(channel, &client);
            }
            world.tell(number);
        }
        world
    }

    fn client(&self, front_end: usize) -> ClientId {
        ClientId::new(format!("client {front_end}").into())
    }

    fn show(&self, text: std::fmt::Arguments<'_>) {
        if self.is_shown {
            eprintln!(
                "{text}: {:?} {}",
                self.session.status, self.session.generation
            );
        }
    }

    fn step(&mut self) {
        match self.rng.below(20) {
            0..4 => self.ask_for_job(),
            4..8 => self.send_cell(),
            8..11 => self.kernel_works(),
            11..14 if !self.jobs.is_empty() => {
                let job = self.rng.below(self.jobs.len() as u64) as usize;
                self.recorder_works(job);
            }
            14 | 15 => {
                let number = self.rng.below(2) as usize;
                self.tell(number);
                self.write(number);
            }
            16 => {
                // Its user withdraws what waits.
                let number = self.rng.below(2) as usize;
                self.front_ends[number].bridge.interrupt(self.now);
                self.act(number);
            }
            17 => self.begin_restart(),
            18 => match self.rng.below(3) {
                0 => self.shut_down(),
                1 => self.kill(),
                _ => self.note_death(),
            },
            _ if self.is_starting() => self.finish_start(),
            _ => self.open(),
        }
    }

    // ---- the kernel's process and its record

    fn is_starting(&self) -> bool {
        matches!(self.session.status, Status::Starting | Status::Restarting)
    }

    fn is_gone(&self) -> bool {
        self.session.status == Status::Live && self.kernel.is_none()
    }

    fn begin_restart(&mut self) {
        if self.session.status == Status::Live {
            self.show(format_args!("restart"));
            self.session.status = Status::Restarting;
            self.session.ended = Some(self.session.ends_now("restarted", Some("bob")));
            self.kernel = None;
        }
    }

    fn shut_down(&mut self) {
        self.show(format_args!("shutdown"));
        self.session.status = Status::Stopped;
        self.session.ended = Some(self.session.ends_now("shut down", Some("bob")));
        self.kernel = None;
    }

    fn kill(&mut self) {
        self.show(format_args!("kill"));
        self.kernel = None;
    }

    fn note_death(&mut self) {
        if self.is_gone() {
            self.session.status = Status::Died;
            self.session.ended = Some(self.session.ends_now("SIGKILL", None));
        }
    }

    fn open(&mut self) {
        self.note_death();
        if matches!(self.session.status, Status::Stopped | Status::Died) {
            self.session.status = Status::Starting;
        }
    }

    fn finish_start(&mut self) {
        if self.is_starting() {
            self.session.generation += u64::from(self.session.process().is_some());
            self.processes += 1;
            self.session.set_process(self.processes, 1, None);
            self.session.status = Status::Live;
            self.kernel = Some(SimulatedKernel {
                generation: self.session.generation,
                queue: VecDeque::new(),
                running: None,
            });
            self.show(format_args!("started"));
        }
    }

    /// Ends the running code, or begins the next.
    fn kernel_works(&mut self) {
        let Some(kernel) = &mut self.kernel else {
            return;
        };
        let generation = kernel.generation;
        if let Some((number, code)) = kernel.running.take() {
            self.publish(generation, number, &code, "idle");
            match code {
                Code::Job(job) => self.end_job(job),
                Code::Cell { front_end, header } => {
                    let content = json!({ "status": "ok" });
                    let reply = message("execute_reply", "k", "kernel", header, &content);
                    let client = self.client(front_end);
                    let bridge = &mut self.front_ends[front_end].bridge;
                    bridge.kernel_message(self.now, &client, Channel::Shell, reply);
                    self.act(front_end);
                }
            }
        } else if let Some((number, code)) = kernel.queue.pop_front() {
            let request = &mut self.requests[number];
            request.ran_on = Some(generation);
            if request.is_early {
                count(&self.reached.ran_after_a_restart);
                if request.front_end.is_none() {
                    count(&self.reached.jobs_ran_after_a_restart);
                }
            }
            match &code {
                Code::Job(job) => {
                    self.jobs[*job].job.state = JobState::Running;
                    count(&self.reached.jobs_ran);
                    let is_queued = |it: &SimulatedJob| {
                        it.job.by == self.jobs[*job].job.by && it.job.state == JobState::Queued
                    };
                    let earlier = self.jobs[..*job].iter().find(|it| is_queued(it));
                    assert!(earlier.is_none(), "job {number} ran before {earlier:?}");
                }
                Code::Cell { .. } => count(&self.reached.cells_ran),
            }
            self.publish(generation, number, &code, "busy");
            if let Some(kernel) = &mut self.kernel {
                kernel.running = Some((number, code));
            }
        }
    }

    /// Publishes a status to the front ends that are connected to this kernel.
    fn publish(&mut self, generation: u64, number: usize, code: &Code, state: &str) {
        let header = match code {
            Code::Cell { header, .. } => header.clone(),
            Code::Job(_) => {
                let id = format!("job {number}");
                let request = message("execute_request", &id, "agent", "{}".into(), &json!({}));
                request.header_bytes().clone()
            }
        };
        let content = json!({ "execution_state": state });
        let status = message("status", "k", "kernel", header, &content);
        for front_end in 0..self.front_ends.len() {
            if self.known_generation(front_end) == Some(generation) {
                let bridge = &mut self.front_ends[front_end].bridge;
                bridge.iopub_message(self.now, status.clone());
                self.act(front_end);
            }
        }
    }

    // ---- jobs

    /// Requests a job, by the rule of `execution::exec::begin`.
    fn ask_for_job(&mut self) {
        self.note_death();
        if matches!(self.session.status, Status::Stopped | Status::Died) {
            return;
        }
        let made_for = self.session.generation_to_use();
        let number = self.requests.len();
        self.requests.push(Request {
            front_end: None,
            made_for: Some(made_for),
            is_early: self.is_starting(),
            ran_on: None,
            is_answered: false,
        });
        let job = Job {
            id: number.to_string(),
            by: ["ada", "claude"][self.rng.below(2) as usize].to_owned(),
            session: "a.ipynb".to_owned(),
            asked_at: Timestamp::from_second(number as i64).expect("it is in range"),
            for_generation: Some(made_for),
            ..Job::default()
        };
        self.show(format_args!("job {number} for {made_for}"));
        self.jobs.push(SimulatedJob {
            job,
            request: number,
            stage: Stage::Waits,
        });
    }

    fn recorder_works(&mut self, at: usize) {
        let generation = self.kernel.as_ref().map(|kernel| kernel.generation);
        match self.jobs[at].stage {
            Stage::Waits => {
                let open = self.jobs.iter().filter(|it| it.stage != Stage::Over);
                let open = open.map(|it| (&it.job, ()));
                match queue::next_step(&self.jobs[at].job, &self.session, open) {
                    NextStep::WaitFor(_) => count(&self.reached.jobs_waited),
                    NextStep::End => {
                        count(&self.reached.jobs_ended_in_queue);
                        self.end_job(at);
                    }
                    NextStep::Send if self.is_starting() => {}
                    NextStep::Send => match generation {
                        Some(generation) => self.jobs[at].stage = Stage::Joined(generation),
                        // It finds the process dead.
                        None => {
                            self.note_death();
                            self.end_job(at);
                        }
                    },
                }
            }
            Stage::Joined(own) | Stage::Sent(own) if generation != Some(own) => {
                count(&self.reached.jobs_lost_their_kernel);
                self.end_job(at);
            }
            Stage::Joined(own) => {
                let Some(kernel) = &mut self.kernel else {
                    return;
                };
                if kernel.running.is_none() && kernel.queue.is_empty() {
                    let number = self.jobs[at].request;
                    kernel.queue.push_back((number, Code::Job(at)));
                    self.jobs[at].stage = Stage::Sent(own);
                }
            }
            Stage::Sent(_) | Stage::Over => {}
        }
    }

    fn end_job(&mut self, at: usize) {
        let it = &mut self.jobs[at];
        it.stage = Stage::Over;
        it.job.state = JobState::Done;
        self.requests[it.request].is_answered = true;
    }

    // ---- front ends

    /// Returns the generation of the kernel to which a front end is connected, as far as it knows.
    fn known_generation(&self, front_end: usize) -> Option<u64> {
        match self.front_ends[front_end].bridge.kernel() {
            Kernel::Live { generation, .. } => Some(*generation),
            _ => None,
        }
    }

    fn send_cell(&mut self) {
        let front_end = self.rng.below(2) as usize;
        let number = self.requests.len();
        self.requests.push(Request {
            front_end: Some(front_end),
            made_for: self.known_generation(front_end),
            is_early: self.known_generation(front_end).is_none(),
            ran_on: None,
            is_answered: false,
        });
        self.show(format_args!("cell {number} of {front_end}"));
        let content = json!({ "code": "x", "store_history": true });
        let cell = message(
            "execute_request",
            &number.to_string(),
            "person",
            "{}".into(),
            &content,
        );
        let client = self.client(front_end);
        let bridge = &mut self.front_ends[front_end].bridge;
        bridge.client_message(self.now, Channel::Shell, &client, cell);
        self.act(front_end);
    }

    /// Lets a front end see the present state of the kernel.
    fn tell(&mut self, number: usize) {
        let kernel = match self.session.status {
            Status::Starting | Status::Restarting => Kernel::Awaited,
            Status::Live if self.kernel.is_some() => Kernel::Live {
                generation: self.session.generation,
                interrupt: Interrupt::Message,
                info: None,
            },
            Status::Stopped => Kernel::Ended(ending()),
            _ => Kernel::Died(ending()),
        };
        // A bridge that has ordered a new kernel learns only once that the old one has died.
        let awaits = *self.front_ends[number].bridge.kernel() == Kernel::Awaited;
        if awaits && matches!(kernel, Kernel::Died(_)) {
            return self.open();
        }
        let own = format!("own {number}");
        let it = &mut self.front_ends[number];
        it.outbox
            .retain(|(client, ..)| client.bytes() != own.as_bytes());
        if it.bridge.kernel() == &kernel {
            return;
        }
        let unsent = std::mem::take(&mut it.outbox);
        it.bridge.set_kernel(self.now, kernel, &ending(), unsent);
        if let Some(generation) = self.known_generation(number) {
            let awaiting = self.requests.iter_mut();
            let awaiting =
                awaiting.filter(|it| it.front_end == Some(number) && it.made_for.is_none());
            awaiting.for_each(|it| it.made_for = Some(generation));
        }
        self.act(number);
        if self.known_generation(number).is_some() {
            let content = json!({ "subscription": "" });
            let welcome = message("iopub_welcome", "k", "kernel", "{}".into(), &content);
            let bridge = &mut self.front_ends[number].bridge;
            bridge.iopub_up(self.now);
            bridge.iopub_message(self.now, welcome);
            self.act(number);
        }
    }

    /// Writes a front end's messages to the kernel, if it is still the one to which they are addressed.
    fn write(&mut self, number: usize) {
        let known = self.known_generation(number);
        let Some(kernel) = &mut self.kernel else {
            return;
        };
        if known != Some(kernel.generation) {
            return;
        }
        for (_, _, message) in self.front_ends[number].outbox.drain(..) {
            let header = message.header().expect("it is readable");
            if header.msg_type == "execute_request"
                && let Ok(request) = header.msg_id.parse()
            {
                let code = Code::Cell {
                    front_end: number,
                    header: message.header_bytes().clone(),
                };
                kernel.queue.push_back((request, code));
            }
        }
    }

    fn act(&mut self, number: usize) {
        while let Some(action) = self.front_ends[number].bridge.poll_action() {
            match action {
                Action::OpenLink { client, channel } => {
                    let bridge = &mut self.front_ends[number].bridge;
                    bridge.link_up(self.now, &client, channel);
                }
                Action::ToKernel {
                    client,
                    channel,
                    message,
                } => {
                    let outbox = &mut self.front_ends[number].outbox;
                    outbox.push_back((client, channel, message));
                }
                Action::ToClient { message, .. } => {
                    let Some(request) = parent_number(&message) else {
                        continue;
                    };
                    let request = &mut self.requests[request];
                    assert!(!request.is_answered, "it is answered twice");
                    request.is_answered = true;
                    match (request.ran_on, request.made_for) {
                        (None, made_for) => {
                            count(&self.reached.cells_failed);
                            if made_for.is_some_and(|of| of < self.session.generation) {
                                count(&self.reached.cells_lost_their_kernel);
                            }
                        }
                        (Some(ran_on), _) if ran_on < self.session.generation => {
                            count(&self.reached.cells_ended_with_their_kernel);
                        }
                        (Some(_), _) => {}
                    }
                }
                Action::Revive { .. } => self.open(),
                _ => {}
            }
        }
    }

    // ---- the end

    /// Lets everything end, and checks what became of each request.
    fn settle(&mut self) {
        for _ in 0..200 {
            self.finish_start();
            for number in 0..self.front_ends.len() {
                self.tell(number);
                self.write(number);
            }
            for job in 0..self.jobs.len() {
                self.recorder_works(job);
            }
            self.kernel_works();
            if self.requests.iter().all(|it| it.is_answered) && !self.is_starting() {
                break;
            }
        }
        for (number, request) in self.requests.iter().enumerate() {
            assert!(request.is_answered, "request {number} has no answer");
            if let Some(ran_on) = request.ran_on {
                let made_for = request.made_for;
                assert_eq!(
                    made_for,
                    Some(ran_on),
                    "request {number} ran on another kernel"
                );
            }
        }
    }
}

/// Runs one world; returns the failed assertion. `session` is the record of a session without a kernel.
fn failure(
    seed: u64,
    is_shown: bool,
    reached: &Reached,
    now: Now,
    session: &Session,
) -> Option<String> {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut world = World::new(seed, reached, now, session.clone());
        world.is_shown = is_shown;
        for _ in 0..STEPS {
            world.step();
        }
        world.settle();
    }));
    let panic = result.err()?;
    let text = panic.downcast_ref::<String>().cloned();
    Some(text.unwrap_or_else(|| "a panic without a message".into()))
}

#[test]
fn no_request_runs_on_a_kernel_for_which_it_was_not_made() {
    let now = Now {
        instant: Instant::now(),
        date: Timestamp::UNIX_EPOCH,
    };
    let mut session = Session::local("/p/a.ipynb".into());
    session.status = Status::Stopped;
    let reached = Reached::default();
    if let Some(seed) = std::env::var("NB_QUEUE_SEED")
        .ok()
        .and_then(|it| it.parse().ok())
    {
        assert_eq!(failure(seed, true, &reached, now, &session), None);
        return;
    }
    let next = AtomicU64::new(1);
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism()
            .map_or(2, usize::from)
            .min(4)
        {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > SEEDS || failed.lock().expect("no panic in it").is_some() {
                        return;
                    }
                    if let Some(why) = failure(seed, false, &reached, now, &session) {
                        *failed.lock().expect("no panic in it") = Some((seed, why));
                    }
                }
            });
        }
    });
    if let Some((seed, why)) = failed.into_inner().expect("no panic in it") {
        panic!("NB_QUEUE_SEED={seed} fails: {why}");
    }
    let Reached {
        jobs_ran,
        cells_ran,
        jobs_ended_in_queue,
        jobs_lost_their_kernel,
        jobs_waited,
        ran_after_a_restart,
        jobs_ran_after_a_restart,
        cells_failed,
        cells_lost_their_kernel,
        cells_ended_with_their_kernel,
    } = &reached;
    let all = [
        jobs_ran,
        cells_ran,
        jobs_ended_in_queue,
        jobs_lost_their_kernel,
        jobs_waited,
        ran_after_a_restart,
        jobs_ran_after_a_restart,
        cells_failed,
        cells_lost_their_kernel,
        cells_ended_with_their_kernel,
    ];
    let is_reached = |counter: &&AtomicU64| counter.load(Ordering::Relaxed) > 0;
    assert!(all.iter().all(is_reached), "{reached:?}");
}
