//! A kernel's keeper: the process that waits for its end.
//!
//! How a process ended, the system tells its parent alone. So every kernel has a parent of its own
//! that sleeps until then, writes down what it was told and lets this program do the rest. It is
//! nobody's descendant, as its kernel is; to kill it costs no more than what it would have known.
//! It ends with its kernel, and with it what the kernel left running in its process group. A sandbox
//! puts a process between the two that tells how its kernel ended; where only that one was killed,
//! the kernel goes on and is waited for.
//!
//! Where the user wants a kernel ended that nobody uses, it also looks now and then whether that is
//! so. The clock it goes by stands still while the machine sleeps.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, kill_process_group,
    test_kill_process_group, wait as wait_for_any, waitid,
};
use wait4::Wait4;

use super::identity::Process;
use super::plan::{End, Keep, Look, Plan, Recorded};
use super::platform::{self, OomKills};
use crate::project::{Exit, beneath};

/// How long what a program left in its process group may take to end by itself.
const GROUP_GRACE: Duration = Duration::from_secs(1);

/// How often it is looked whether that has ended: nobody but its parent is told.
const GROUP_POLL: Duration = Duration::from_millis(20);

/// How often it is looked whether what was killed has ended.
const ADOPTED_POLL: Duration = Duration::from_millis(5);

/// At least so long lies between two looks.
const LOOK_GAP: Duration = Duration::from_millis(200);

/// A look that did not work is tried again after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

enum Event {
    Ended,
    Look,
}

/// Starts the plan's program as a child and stays until it has ended. The child is made before the
/// plan is there, and both end where none comes.
///
/// # Errors
/// It was not even begun.
pub(super) fn keep(
    read_plan: impl FnOnce() -> io::Result<Option<Plan>>,
    becomes: &str,
) -> io::Result<()> {
    rustix::process::setsid()?;
    let mut child = Command::new(platform::reopened_executable()?)
        .arg0("nb")
        .arg(becomes)
        .stdin(Stdio::piped())
        .spawn()?;
    // No folder is to be in use because a kernel was once started in it.
    std::env::set_current_dir("/")?;
    let (tell, told) = channel();
    listen(tell.clone())?;
    let before = platform::oom_kills();
    let plan = read_plan();
    let mut stdin = child.stdin.take();
    let plan = match plan {
        Ok(Some(plan)) => plan,
        nothing => {
            drop(stdin);
            child.wait()?;
            return nothing.map(drop);
        }
    };
    let keep = &plan.keep.clone();
    let keep = keep
        .as_ref()
        .ok_or_else(|| io::Error::other("there is nothing to keep"))?;
    if keep.ends_all {
        platform::adopt_orphans();
    }
    let plan = Plan {
        keep: None,
        keeper: Some(Process::current()),
        ..plan
    };
    let text = serde_json::to_vec(&plan).map_err(io::Error::other)?;
    if let Some(stdin) = &mut stdin {
        stdin.write_all(&text)?;
    }
    drop(stdin);
    let_go()?;
    let pid = child.id();
    let pid_file = plan.pid_file.clone();
    let waiting = std::thread::spawn(move || {
        wait(pid);
        let outlived = recorded(pid, &pid_file).is_some_and(|process| outlives(pid, &process));
        let _ = tell.send(Event::Ended);
        outlived
    });
    watch(&told, keep);
    let outlived = waiting.join().unwrap_or_default();
    let end = finish(child, &plan.pid_file, keep, before).filter(|_| !outlived);
    if keep.ends_all {
        end_adopted();
    }
    let after = end.and_then(|end| {
        let text = serde_json::to_vec(&end).ok()?;
        beneath::replace_unsynced(&keep.end_file, &text).ok()?;
        // Whoever ended it may have cleared up meanwhile, and nobody asks any more.
        if !plan.pid_file.exists() {
            let _ = beneath::remove_file(&keep.end_file);
            return None;
        }
        own(&keep.after).ok()?.spawn().ok()
    });
    if let Some(container) = &keep.container {
        container.remove();
    }
    end_group(pid);
    if let Some(mut after) = after {
        after.wait()?;
    }
    Ok(())
}

/// Lets go of what belongs to whoever asked for the start: he may wait for its end.
fn let_go() -> io::Result<()> {
    let null = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// Hears whether the user wants something else by now.
fn listen(tell: Sender<Event>) -> io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGUSR1])?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            let _ = tell.send(Event::Look);
        }
    });
    Ok(())
}

/// Waits for the end of a child, which is not reaped: its pid is nobody else's until then.
fn wait(pid: u32) {
    let Some(pid) = raw(pid) else { return };
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while matches!(waitid(WaitId::Pid(pid), how), Err(rustix::io::Errno::INTR)) {}
}

/// Says whether the kernel that the child stood for went on without it for more than a moment, and
/// returns when that has ended too. Nobody is left then who could tell how.
fn outlives(pid: u32, process: &Process) -> bool {
    if process.pid == pid || !process.is_alive() {
        return false;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else { return false };
    runtime.block_on(async {
        let outlived = !process.ended_within(GROUP_GRACE).await;
        process.death().await;
        outlived
    })
}

/// Returns once the child has ended, and ends it if nobody has used it for too long.
fn watch(told: &Receiver<Event>, keep: &Keep) {
    let mut next = keep.first_look;
    let mut clock = Clock::now();
    let mut unused = Duration::ZERO;
    loop {
        let event = match next {
            Some(next) => told.recv_timeout(next.max(LOOK_GAP)),
            None => told.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match event {
            Ok(Event::Ended) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(Event::Look) | Err(RecvTimeoutError::Timeout) => {}
        }
        let now = Clock::now();
        let Some(look) = look(keep) else {
            next = Some(LOOK_AGAIN);
            continue;
        };
        unused = awake_unused(unused, look.unused, now.since(clock));
        clock = now;
        next = look.limit.map(|limit| limit.saturating_sub(unused));
        if next == Some(Duration::ZERO) {
            let ended = own(&keep.end_unused).and_then(|mut command| command.status());
            next = look.limit.max(Some(LOOK_AGAIN));
            if ended.is_ok_and(|status| status.success()) {
                // Its end comes next.
                next = Some(LOOK_AGAIN);
            }
        }
    }
}

fn look(keep: &Keep) -> Option<Look> {
    let said = own(&keep.look).ok()?.stdout(Stdio::piped()).output().ok()?;
    serde_json::from_slice(&said.stdout).ok()
}

fn own(arguments: &[OsString]) -> io::Result<Command> {
    let mut command = Command::new(platform::reopened_executable()?);
    command.arg0("nb").args(arguments);
    Ok(command)
}

/// Two clocks: one that people read, and one that stands still while the machine sleeps.
#[derive(Clone, Copy)]
struct Clock {
    wall: SystemTime,
    awake: Instant,
}

/// How much went by on both.
#[derive(Clone, Copy)]
struct Passed {
    wall: Duration,
    awake: Duration,
}

impl Clock {
    fn now() -> Self {
        Self {
            wall: SystemTime::now(),
            awake: Instant::now(),
        }
    }

    fn since(self, before: Self) -> Passed {
        Passed {
            // One that was set back is taken for one that stood still.
            wall: self.wall.duration_since(before.wall).unwrap_or_default(),
            awake: self.awake.duration_since(before.awake),
        }
    }
}

/// The rule: for how long nobody has used a kernel while the machine was awake.
///
/// `before` is what it was at the last look, `unused` what the clock on the wall says now. Where it
/// cannot be told whether the machine slept before or after the last use, it slept after.
fn awake_unused(before: Duration, unused: Option<Duration>, passed: Passed) -> Duration {
    let Some(unused) = unused else {
        return Duration::ZERO;
    };
    if unused >= passed.wall {
        return before + passed.awake;
    }
    let asleep = passed.wall.saturating_sub(passed.awake);
    unused.saturating_sub(asleep).min(passed.awake)
}

/// Reaps the child and tells how it ended; none where its start failed or was called off, or where
/// whoever ended it has cleared up.
fn finish(child: Child, pid_file: &Path, keep: &Keep, before: OomKills) -> Option<End> {
    let pid = child.id();
    let process = recorded(pid, pid_file);
    if process.is_some()
        && let Some(group) = raw(pid)
    {
        // As long as it is not reaped, its group is nobody else's.
        let _ = kill_process_group(group, Signal::TERM);
    }
    let ended = child.wait4().ok()?;
    let process = process?;
    let stands_for_another = process.pid != pid || keep.container.is_some();
    let how = how(ended.status, stands_for_another);
    let exit = match how {
        Exit::Signal(signal) if signal == Signal::KILL.as_raw() => {
            if platform::was_ended_for_memory(process.pid) {
                Exit::OutOfMemory
            } else if platform::oom_kills().exceeds(before) {
                Exit::PerhapsOutOfMemory
            } else {
                how
            }
        }
        _ => how,
    };
    Some(End {
        process,
        at: Timestamp::now(),
        exit,
        memory_bytes: Some(ended.rusage.maxrss).filter(|bytes| *bytes > 0),
    })
}

/// Returns the kernel that this keeper's child is or stands for, if it was started.
fn recorded(pid: u32, pid_file: &Path) -> Option<Process> {
    let recorded =
        serde_json::from_slice::<Recorded>(&beneath::read(pid_file, beneath::SMALL).ok()?).ok()?;
    let own = recorded.process.pid == pid || recorded.keeper == Some(Process::current());
    own.then_some(recorded.process)
}

/// Returns how a child ended; one that stands for another process, as that of a sandbox does, tells
/// a signal by a status over 128, as shells do.
fn how(status: ExitStatus, stands_for_another: bool) -> Exit {
    match (status.signal(), status.code()) {
        (Some(signal), _) => Exit::Signal(signal),
        (None, Some(code @ 129..=192)) if stands_for_another => Exit::Signal(code - 128),
        (None, code) => Exit::Status(code.unwrap_or_default()),
    }
}

/// Ends what became this process's child because its own parent had ended. What that started comes
/// here in its turn.
fn end_adopted() {
    let deadline = Instant::now() + GROUP_GRACE;
    while Instant::now() < deadline {
        for child in platform::children().into_iter().filter_map(raw) {
            let _ = kill_process(child, Signal::KILL);
        }
        loop {
            match wait_for_any(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        std::thread::sleep(ADOPTED_POLL);
    }
}

/// Ends what a program that has ended left behind in its process group.
fn end_group(pid: u32) {
    let Some(group) = raw(pid) else { return };
    let deadline = Instant::now() + GROUP_GRACE;
    while test_kill_process_group(group).is_ok() {
        if Instant::now() >= deadline {
            let _ = kill_process_group(group, Signal::KILL);
            return;
        }
        std::thread::sleep(GROUP_POLL);
    }
}

fn raw(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn passed(wall: u32, awake: u32) -> Passed {
        Passed {
            wall: MINUTE * wall,
            awake: MINUTE * awake,
        }
    }

    #[test]
    fn a_machine_that_sleeps_is_no_kernel_that_nobody_uses() {
        let minutes = |before: u32, unused: Option<u32>, passed| {
            awake_unused(MINUTE * before, unused.map(|it| MINUTE * it), passed).as_secs() / 60
        };
        // In use, and used between two looks.
        assert_eq!(minutes(30, None, passed(60, 60)), 0);
        assert_eq!(minutes(30, Some(10), passed(60, 60)), 10);
        // Not used since before the last look.
        assert_eq!(minutes(10, Some(70), passed(60, 60)), 70);
        assert_eq!(minutes(10, Some(670), passed(660, 60)), 70);
        // It slept after the last use, or perhaps before.
        assert_eq!(minutes(0, Some(610), passed(660, 60)), 10);
        assert_eq!(minutes(0, Some(10), passed(660, 60)), 0);
        // The clock on the wall was set: no more than went by.
        assert_eq!(minutes(5, Some(50), passed(0, 60)), 65);
        assert_eq!(minutes(0, Some(59), passed(60, 10)), 9);
    }

    #[test]
    fn an_end_is_told_with_its_signal_or_status() {
        let status = |raw, stands_for| how(ExitStatus::from_raw(raw), stands_for);
        assert_eq!(status(3 << 8, false), Exit::Status(3));
        assert_eq!(status(11, false), Exit::Signal(11));
        assert_eq!(status(137 << 8, false), Exit::Status(137));
        assert_eq!(status(137 << 8, true), Exit::Signal(9));
        assert_eq!(status(9, true), Exit::Signal(9));
    }
}
