//! Saves that move a file into the notebook's place, at the worst moment of a write by `nb`, on a file
//! system that cannot exchange two files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

use super::strace::Strace;
use super::{left, notebook};
use crate::world::World;

/// How often both write at the same moment.
const TIMES: usize = 8;

/// How long making the link to the replaced file takes, in microseconds: the other program saves meanwhile.
const SLOW: &str = "delay_enter=200000";

/// Waits until a draft is moved for the second time: the exchange has failed, and the draft is about to
/// replace the notebook.
fn wait_for_replacement(watch: &std::os::fd::OwnedFd) {
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(watch, &mut buffer);
    loop {
        let event = reader.next().expect("an event");
        let name = event
            .file_name()
            .map(|name| name.to_bytes())
            .unwrap_or_default();
        let is_draft = Path::new(OsStr::from_bytes(name)).extension() == Some("tmp".as_ref());
        if is_draft && event.events().contains(ReadFlags::MOVED_TO) {
            return;
        }
    }
}

/// Adds a line to the other program's own cell, and saves by moving.
fn save(project: &Path, line: &str) {
    let path = project.join("t.ipynb");
    let text = std::fs::read_to_string(&path).expect("read the notebook");
    let new = text.replace("# theirs", &format!("# theirs\\n{line}"));
    assert_ne!(new, text);
    let temp = project.join("saved");
    std::fs::write(&temp, new).expect("write a file");
    std::fs::rename(temp, path).expect("move it");
}

#[test]
fn no_save_by_moving_is_lost_without_an_exchange() {
    let world = World::new();
    let project = world.project();
    let path = project.join("t.ipynb");
    let cells = [("ours", "# ours"), ("between", ""), ("theirs", "# theirs")];
    std::fs::write(&path, notebook(&cells)).expect("write the notebook");
    let Some(strace) = Strace::find(&world) else {
        return;
    };
    let strace = strace.without_exchange();
    let mut lines = Vec::new();
    for number in 0..TIMES {
        let (nb_line, editor_line) = (format!("ours_{number}_"), format!("theirs_{number}_"));
        let words = [
            "edit",
            "t.ipynb",
            "-c",
            "ours",
            "--force",
            "--replace",
            "# ours",
        ];
        let new = format!("# ours\n{nb_line}");
        let words = [&words[..], &[&new]].concat();
        std::thread::scope(|scope| {
            let watch = inotify::init(CreateFlags::CLOEXEC).expect("watch");
            inotify::add_watch(&watch, &project, WatchFlags::MOVED_TO).expect("watch the folder");
            scope.spawn(|| {
                let watch = watch;
                wait_for_replacement(&watch);
                save(&project, &editor_line);
            });
            let run = strace.inject(&words, "linkat", SLOW);
            // Releases a thread that still waits in vain.
            let end = project.join("end.tmp");
            std::fs::write(project.join("end"), "").expect("write a file");
            std::fs::rename(project.join("end"), end).expect("move it");
            assert_eq!(run.code, Some(0), "{run:#?}");
        });
        lines.extend([nb_line, editor_line]);
    }
    let text = std::fs::read_to_string(&path).expect("read the notebook");
    let lost: Vec<_> = lines.iter().filter(|line| !text.contains(*line)).collect();
    assert_eq!(lost, Vec::<&String>::new(), "{text}");
    assert_eq!(left(&project), Vec::<String>::new());
}
