//! A kernel's supervisor: the parent process that waits for the kernel's end.
//!
//! The system reports only to a process's parent how the process ended. So every kernel has a parent that
//! sleeps until then, records the end and starts this program for everything else. Like its kernel, a
//! supervisor is a child of init. If it is killed, only the way in which the kernel ends is lost. It ends
//! with its kernel, and ends the processes that the kernel left in its process group. A sandbox puts a
//! process between the two, which passes on how its kernel ended; if only that process was killed, the
//! supervisor continues to wait for the kernel itself.
//!
//! If the user wants unused kernels to be ended, the supervisor also checks from time to time whether its
//! kernel is unused, by a clock that stands still while the machine sleeps.

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
use super::plan::{IdleReport, PidRecord, ProcessEnd, StartPlan, Supervision};
use super::platform::{self, OomKills};
use crate::project::{Exit, beneath};

/// How long processes that a kernel left in its process group have to end by themselves.
const GROUP_GRACE: Duration = Duration::from_secs(1);

/// The pause between two checks of the process group: the system reports an end only to the parent.
const GROUP_POLL: Duration = Duration::from_millis(20);

/// The pause between two checks of killed descendants.
const ADOPTED_POLL: Duration = Duration::from_millis(5);

/// The shortest time between two idle checks.
const CHECK_GAP: Duration = Duration::from_millis(200);

/// The time after which a failed idle check is tried again.
const CHECK_AGAIN: Duration = Duration::from_secs(60);

enum Event {
    Ended,
    CheckIdle,
}

/// Starts the plan's program as a child and stays until it has ended. The child is made before the plan is
/// read; both processes end if no plan comes.
///
/// # Errors
/// If the program was not started.
pub(super) fn supervise(
    read_plan: impl FnOnce() -> io::Result<Option<StartPlan>>,
    becomes: &str,
) -> io::Result<()> {
    rustix::process::setsid()?;
    let mut child = Command::new(platform::reopened_executable()?)
        .arg0("nb")
        .arg(becomes)
        .stdin(Stdio::piped())
        .spawn()?;
    // A file system cannot be unmounted as long as a process has its working directory there.
    std::env::set_current_dir("/")?;
    let (sender, events) = channel();
    listen(sender.clone())?;
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
    let supervision = plan.supervision.clone();
    let supervision =
        &supervision.ok_or_else(|| io::Error::other("the plan has no supervision"))?;
    if supervision.ends_all {
        platform::adopt_orphans();
    }
    let plan = StartPlan {
        supervision: None,
        supervisor: Some(Process::current()),
        ..plan
    };
    let text = serde_json::to_vec(&plan).map_err(io::Error::other)?;
    if let Some(stdin) = &mut stdin {
        stdin.write_all(&text)?;
    }
    drop(stdin);
    close_stdio()?;
    let pid = child.id();
    let pid_file = plan.pid_file.clone();
    if let Some(owner) = supervision.owner.clone() {
        let pid_file = pid_file.clone();
        std::thread::spawn(move || end_with(&owner, pid, &pid_file));
    }
    let waiting = std::thread::spawn(move || {
        wait(pid);
        let outlived =
            recorded(pid, &pid_file).is_some_and(|process| has_outlived_parent(pid, &process));
        let _ = sender.send(Event::Ended);
        outlived
    });
    watch(&events, supervision);
    let outlived = waiting.join().unwrap_or_default();
    let end = finish(child, &plan.pid_file, supervision, before).filter(|_| !outlived);
    if supervision.ends_all {
        end_adopted();
    }
    let after = end.and_then(|end| {
        let text = serde_json::to_vec(&end).ok()?;
        beneath::replace_unsynced(&supervision.end_file, &text).ok()?;
        // `nb shutdown` may have removed the kernel's files in the meantime: then this one is not read.
        if !plan.pid_file.exists() {
            let _ = beneath::remove_file(&supervision.end_file);
            return None;
        }
        own_command(&supervision.after).ok()?.spawn().ok()
    });
    if let Some(container) = &supervision.container {
        container.remove();
    }
    end_group(pid);
    if let Some(mut after) = after {
        after.wait()?;
    }
    Ok(())
}

/// Closes the stdin, stdout and stderr of the process that requested the start, which may wait until all
/// writers of a pipe have closed it.
pub(super) fn close_stdio() -> io::Result<()> {
    let null = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// Triggers an idle check at each SIGUSR1, which means that the user has changed the limit.
fn listen(sender: Sender<Event>) -> io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGUSR1])?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            let _ = sender.send(Event::CheckIdle);
        }
    });
    Ok(())
}

/// Waits for the end of a child without reaping it, so that its pid is not reused yet.
fn wait(pid: u32) {
    let Some(pid) = raw_pid(pid) else { return };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while matches!(
        waitid(WaitId::Pid(pid), options),
        Err(rustix::io::Errno::INTR)
    ) {}
}

/// Returns whether a sandboxed kernel lived on for more than [`GROUP_GRACE`] after the child between it and
/// this process had ended. Waits until the kernel has ended, too; how it ended is then unknown.
fn has_outlived_parent(pid: u32, process: &Process) -> bool {
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

/// Ends the child, and the kernel that it stands for, once another process has ended.
fn end_with(owner: &Process, pid: u32, pid_file: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    // Without a runtime the kernel goes on, as other kernels do.
    let Ok(runtime) = runtime else { return };
    runtime.block_on(owner.death());
    if let Some(kernel) = recorded(pid, pid_file) {
        let _ = kernel.signal_group(Signal::KILL);
    }
    let _ = raw_pid(pid).map(|group| kill_process_group(group, Signal::KILL));
}

/// Returns once the child has ended; ends it if it is unused for too long.
fn watch(events: &Receiver<Event>, supervision: &Supervision) {
    let mut next = supervision.first_idle_check;
    let mut clock = Clock::now();
    let mut unused = Duration::ZERO;
    loop {
        let event = match next {
            Some(next) => events.recv_timeout(next.max(CHECK_GAP)),
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match event {
            Ok(Event::Ended) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(Event::CheckIdle) | Err(RecvTimeoutError::Timeout) => {}
        }
        let now = Clock::now();
        let Some(report) = check_idle(supervision) else {
            next = Some(CHECK_AGAIN);
            continue;
        };
        unused = awake_unused(unused, report.unused, now.since(clock));
        clock = now;
        next = report.limit.map(|limit| limit.saturating_sub(unused));
        if next == Some(Duration::ZERO) {
            let ended =
                own_command(&supervision.end_unused).and_then(|mut command| command.status());
            next = match ended.is_ok_and(|status| status.success()) {
                true => Some(CHECK_AGAIN),
                // It was used after the check.
                false => report.limit,
            };
        }
    }
}

fn check_idle(supervision: &Supervision) -> Option<IdleReport> {
    let output = own_command(&supervision.idle_check).ok()?.output().ok()?;
    serde_json::from_slice(&output.stdout).ok()
}

fn own_command(arguments: &[OsString]) -> io::Result<Command> {
    let mut command = Command::new(platform::reopened_executable()?);
    command.arg0("nb").args(arguments);
    Ok(command)
}

/// A reading of two clocks: wall-clock time, and a clock that stands still while the machine sleeps.
#[derive(Clone, Copy)]
struct Clock {
    wall: SystemTime,
    awake: Instant,
}

/// The time between two readings of both clocks.
#[derive(Clone, Copy)]
struct ElapsedTime {
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

    fn since(self, before: Self) -> ElapsedTime {
        ElapsedTime {
            // A wall clock that was set back counts as having stood still.
            wall: self.wall.duration_since(before.wall).unwrap_or_default(),
            awake: self.awake.duration_since(before.awake),
        }
    }
}

/// Returns how long a kernel was unused while the machine was awake.
///
/// `before` is the result of the last check, `unused` the wall-clock time. If the machine may have slept
/// before or after the last use, this function assumes that it slept after it.
fn awake_unused(before: Duration, unused: Option<Duration>, passed: ElapsedTime) -> Duration {
    let Some(unused) = unused else {
        return Duration::ZERO;
    };
    if unused >= passed.wall {
        return before + passed.awake;
    }
    let asleep = passed.wall.saturating_sub(passed.awake);
    unused.saturating_sub(asleep).min(passed.awake)
}

/// Reaps the child and returns how it ended; `None` if its start failed or was called off, or if its pid file
/// was removed.
fn finish(
    child: Child,
    pid_file: &Path,
    supervision: &Supervision,
    before: OomKills,
) -> Option<ProcessEnd> {
    let pid = child.id();
    let process = recorded(pid, pid_file);
    if process.is_some()
        && let Some(group) = raw_pid(pid)
    {
        // The id of its group is not reused before the child is reaped.
        let _ = kill_process_group(group, Signal::TERM);
    }
    let ended = child.wait4().ok()?;
    let process = process?;
    let is_stand_in = process.pid != pid || supervision.container.is_some();
    let exit = exit_of(ended.status, is_stand_in);
    let is_killed = exit == Exit::Signal(Signal::KILL.as_raw());
    let exit = if is_killed && platform::was_ended_for_memory(process.pid) {
        Exit::OutOfMemory
    } else if is_killed && platform::oom_kills().exceeds(before) {
        Exit::PerhapsOutOfMemory
    } else {
        exit
    };
    Some(ProcessEnd {
        process,
        at: Timestamp::now(),
        exit,
        memory_bytes: Some(ended.rusage.maxrss).filter(|bytes| *bytes > 0),
    })
}

/// Returns the kernel, if it was started: this supervisor's child, or a process in the child's sandbox.
fn recorded(pid: u32, pid_file: &Path) -> Option<Process> {
    let recorded =
        serde_json::from_slice::<PidRecord>(&beneath::read(pid_file, beneath::SMALL).ok()?).ok()?;
    let is_own = recorded.process.pid == pid || recorded.supervisor == Some(Process::current());
    is_own.then_some(recorded.process)
}

/// Returns how a child ended. A child that stands for another process, as in a sandbox, passes on a signal as
/// an exit code above 128, as shells do.
fn exit_of(status: ExitStatus, is_stand_in: bool) -> Exit {
    match (status.signal(), status.code()) {
        (Some(signal), _) => Exit::Signal(signal),
        (None, Some(code @ 129..=192)) if is_stand_in => Exit::Signal(code - 128),
        (None, code) => Exit::Status(code.unwrap_or_default()),
    }
}

/// Ends orphaned descendants of the kernel, which the system made children of this process. After that their
/// own children become this process's.
fn end_adopted() {
    let deadline = Instant::now() + GROUP_GRACE;
    while Instant::now() < deadline {
        for child in platform::children(std::process::id()) {
            let _ = raw_pid(child).map(|child| kill_process(child, Signal::KILL));
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

/// Ends the processes that an ended kernel left in its process group.
fn end_group(pid: u32) {
    let Some(group) = raw_pid(pid) else { return };
    let deadline = Instant::now() + GROUP_GRACE;
    while test_kill_process_group(group).is_ok() {
        if Instant::now() >= deadline {
            let _ = kill_process_group(group, Signal::KILL);
            return;
        }
        std::thread::sleep(GROUP_POLL);
    }
}

fn raw_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn passed(wall: u32, awake: u32) -> ElapsedTime {
        ElapsedTime {
            wall: MINUTE * wall,
            awake: MINUTE * awake,
        }
    }

    #[test]
    fn sleep_of_the_machine_does_not_count_as_idle_time() {
        let minutes = |before: u32, unused: Option<u32>, passed| {
            awake_unused(MINUTE * before, unused.map(|it| MINUTE * it), passed).as_secs() / 60
        };
        // In use now, or used between two checks.
        assert_eq!(minutes(30, None, passed(60, 60)), 0);
        assert_eq!(minutes(30, Some(10), passed(60, 60)), 10);
        // Not used since before the last check.
        assert_eq!(minutes(10, Some(70), passed(60, 60)), 70);
        assert_eq!(minutes(10, Some(670), passed(660, 60)), 70);
        // The machine slept after the last use, or perhaps before.
        assert_eq!(minutes(0, Some(610), passed(660, 60)), 10);
        assert_eq!(minutes(0, Some(10), passed(660, 60)), 0);
        // The wall clock was set: the result does not exceed the time that has passed.
        assert_eq!(minutes(5, Some(50), passed(0, 60)), 65);
        assert_eq!(minutes(0, Some(59), passed(60, 10)), 9);
    }

    #[test]
    fn an_exit_has_its_signal_or_status() {
        let status = |raw, is_stand_in| exit_of(ExitStatus::from_raw(raw), is_stand_in);
        assert_eq!(status(3 << 8, false), Exit::Status(3));
        assert_eq!(status(11, false), Exit::Signal(11));
        assert_eq!(status(137 << 8, false), Exit::Status(137));
        assert_eq!(status(137 << 8, true), Exit::Signal(9));
        assert_eq!(status(9, true), Exit::Signal(9));
    }
}
