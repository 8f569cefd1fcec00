//! The events that a file watcher receives for a write.

use std::ffi::CString;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

use super::strace::Strace;
use super::{left, notebook};
use crate::world::{World, succeed};

/// Runs `edit` and returns the events of the notebook itself, in order.
fn events(project: &Path, edit: impl FnOnce()) -> Vec<ReadFlags> {
    let watcher = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).expect("watch");
    // Without CLOSE_WRITE: a process that another test starts has this test's files open until it runs its
    // program, so that a file is closed later than its test closes it.
    let all = WatchFlags::CREATE
        | WatchFlags::MODIFY
        | WatchFlags::ATTRIB
        | WatchFlags::DELETE
        | WatchFlags::MOVE;
    inotify::add_watch(&watcher, project, all).expect("watch the folder");
    edit();
    let name = CString::new("t.ipynb").expect("a name");
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(&watcher, &mut buffer);
    let mut events = Vec::new();
    while let Ok(event) = reader.next() {
        if event.file_name() == Some(&*name) {
            events.push(event.events());
        }
    }
    events
}

/// Sets the notebook's time far back: a write just after a save causes a second event.
fn age(project: &Path) {
    let mut options = std::fs::File::options();
    let file = options.append(true).open(project.join("t.ipynb"));
    let file = file.expect("open it");
    let then = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    file.set_modified(then).expect("set its time");
}

#[test]
fn a_write_just_after_a_save_is_seen_once_more() {
    let world = World::new();
    let project = world.project();
    std::fs::write(project.join("t.ipynb"), notebook(&[("aaaa", "1")])).expect("write it");
    let edit = |source: &str| {
        let words = ["edit", "t.ipynb", "aaaa", source, "--force"];
        succeed(world.nb().args(words));
    };
    let flags = events(&project, || edit("2"));
    let moved = [ReadFlags::MOVED_FROM, ReadFlags::MOVED_TO];
    assert_eq!(flags, [&moved[..], &[ReadFlags::MODIFY]].concat());
    // Long after a save, and after `nb`'s own write, the second event is not needed.
    age(&project);
    for source in ["3", "4"] {
        assert_eq!(events(&project, || edit(source)), moved);
    }
}

#[test]
fn the_last_event_of_a_write_is_the_notebook_that_moves_in() {
    let world = World::new();
    let project = world.project();
    std::fs::write(project.join("t.ipynb"), notebook(&[("aaaa", "1")])).expect("write it");
    age(&project);
    let edit = |source: &str| {
        let words = ["edit", "t.ipynb", "aaaa", source, "--force"];
        succeed(world.nb().args(words));
    };
    let flags = events(&project, || edit("2"));
    assert_eq!(flags, [ReadFlags::MOVED_FROM, ReadFlags::MOVED_TO]);
    // If there is nothing to write, there are no events.
    assert_eq!(events(&project, || edit("2")), []);

    // On a file system without exchange.
    let Some(strace) = Strace::find(&world) else {
        return;
    };
    let words = ["edit", "t.ipynb", "aaaa", "3", "--force"];
    let flags = events(&project, || {
        let run = strace.inject(&words, "renameat2", "error=EINVAL");
        assert_eq!(run.code, Some(0), "{run:#?}");
    });
    assert_eq!(flags.last(), Some(&ReadFlags::MOVED_TO), "{flags:?}");
    assert!(
        !flags
            .iter()
            .any(|event| event.intersects(ReadFlags::DELETE | ReadFlags::MODIFY)),
        "{flags:?}"
    );
    let text = std::fs::read_to_string(project.join("t.ipynb")).expect("read it");
    assert!(text.contains("\"3\""), "{text}");
    assert_eq!(left(&project), Vec::<String>::new());
}
