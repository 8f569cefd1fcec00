//! How long `nb open` takes apart from its kernel, measured within the same run.
//!
//! The kernelspec's program is this one, which records when it began and then becomes a kernel that records
//! when it has sent its first reply. The time between the two is the kernel's own; the time before
//! (including this program's own start) and after is `nb`'s. All times are of the wall clock.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::World;

/// The argument with which this program starts a kernel.
pub const KERNEL: &str = "--kernel";

/// How often a notebook is opened.
const OPENS: usize = 20;

/// Runs ipykernel, and records its first reply.
const TELLS: &str = r#"
import sys, time
moments = sys.argv.pop(1)
from ipykernel.kernelapp import launch_new_instance
from jupyter_client.session import Session

send = Session.send

def told(self, stream, what, *rest, **more):
    sent = send(self, stream, what, *rest, **more)
    if what == "kernel_info_reply":
        Session.send = send
        with open(moments, "a") as file:
            file.write(f"{time.time_ns()}\n")
    return sent

Session.send = told
launch_new_instance()
"#;

/// Becomes the kernel.
pub fn kernel(moments: &str, python: &str, arguments: impl Iterator<Item = String>) {
    let began = now().as_nanos();
    let file = OpenOptions::new().append(true).create(true).open(moments);
    writeln!(file.expect("open a file"), "{began}").expect("write a moment");
    let error = Command::new(python)
        .args(["-c", TELLS, moments])
        .args(arguments)
        .exec();
    panic!("cannot become {python}: {error}");
}

/// How long the parts of one run took.
struct Taken {
    before: Duration,
    kernel: Duration,
    after: Duration,
}

/// Opens a notebook repeatedly, and prints how long the parts took.
pub fn table(world: &World, own: &str) -> Value {
    let notebook = world.notebook("opened.ipynb", &["1".to_owned()]);
    let moments = world.root.path().join("moments");
    let this = std::env::current_exe().expect("this program's path");
    let words = [
        &*this.display().to_string(),
        KERNEL,
        &*moments.display().to_string(),
        &*world.python,
        "-f",
        "{connection_file}",
    ];
    world.spec(&words);
    let taken: Vec<_> = (0..OPENS)
        .map(|_| {
            let _ = std::fs::remove_file(&moments);
            let begun = now();
            world.succeed(own, &["open", &notebook]);
            let ended = now();
            let (began, replied) = read(&moments);
            world.succeed(own, &["shutdown", &notebook]);
            Taken {
                before: began - begun,
                kernel: replied - began,
                after: ended - replied,
            }
        })
        .collect();
    let median = |part: fn(&Taken) -> Duration| {
        let mut all: Vec<_> = taken.iter().map(part).collect();
        all.sort();
        all[OPENS / 2].as_secs_f64()
    };
    let title = "opening a notebook";
    println!("{title} (medians of {OPENS})");
    let rows = [
        ("nb open", median(|it| it.before + it.kernel + it.after)),
        (
            "the kernel, from exec to its first reply",
            median(|it| it.kernel),
        ),
        ("what is ours of it", median(|it| it.before + it.after)),
        ("  until the kernel begins", median(|it| it.before)),
        ("  from its reply on", median(|it| it.after)),
    ];
    for (name, seconds) in rows {
        println!("  {name:<42}{:>9.1} ms", seconds * 1e3);
    }
    let [open, kernel, ours, before, after] = rows.map(|(_, seconds)| seconds);
    json!({
        "what": title, "runs": OPENS, "nb_open_s": open, "kernel_s": kernel, "ours_s": ours,
        "before_s": before, "after_s": after,
    })
}

/// Returns when the kernel began and when it had sent its reply.
fn read(moments: &Path) -> (Duration, Duration) {
    let text = std::fs::read_to_string(moments).expect("read the moments");
    let mut all = text
        .lines()
        .map(|line| Duration::from_nanos(line.parse().expect("a number")));
    let began = all.next().expect("the kernel began");
    (began, all.next().expect("it replied"))
}

fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a time after 1970")
}
