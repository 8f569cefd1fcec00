//! Notebooks wherever people keep them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{home, nb, open, opening, path, pid, say, sockets};
use crate::world::World;

fn works(world: &World, notebook: &Path) {
    let said = say(world.nb().arg("run").arg(notebook).arg("print(6 * 7)"));
    said.ended(0).with("42");
    say(world.nb().arg("shutdown").arg(notebook)).ended(0);
}

#[test]
fn names_with_spaces_and_signs_and_long_paths() {
    let world = World::new();
    let odd = world.project().join("Übung №1 'ein \"Heft\"; $x.ipynb");
    let opened = open(&world, &odd);
    assert_eq!(
        path(&opened["notebook"]),
        Path::new(odd.file_name().expect("it has one"))
    );
    works(&world, &odd);
    let hint = nb(&world, ["restart"]).ended(6).err;
    assert!(hint.contains("nb open '"), "{hint}");

    let no_text = OsStr::from_bytes(b"caf\xe9.ipynb");
    nb(&world, [OsStr::new("open"), no_text])
        .ended(2)
        .with("is not UTF-8");
    assert!(!world.project().join(no_text).exists());

    let long = world.project().join("long/".repeat(30)).join("deep.ipynb");
    std::fs::create_dir_all(long.parent().expect("a folder")).expect("make the folders");
    assert!(long.as_os_str().len() > 150);
    let opened = open(&world, &long);
    let sockets = sockets(&path(&opened["connection_file"]));
    assert_eq!(sockets.len(), 5);
    assert!(sockets.iter().all(|socket| socket.as_os_str().len() < 100));
    works(&world, &long);
}

#[test]
fn a_link_is_the_notebook_that_it_names() {
    let world = World::new();
    let real = world.project().join("data/real.ipynb");
    std::fs::create_dir(world.project().join("data")).expect("make a folder");
    let first = open(&world, &real);
    let link = world.project().join("link.ipynb");
    std::os::unix::fs::symlink(&real, &link).expect("make a link");
    let second = open(&world, &link);
    assert_eq!(second["how"], "attached");
    assert_eq!(pid(&second), pid(&first));
    works(&world, &link);
}

#[test]
fn a_folder_that_cannot_be_written_has_its_project_elsewhere() {
    let world = World::new();
    let folder = world.project().join("shelf");
    std::fs::create_dir(&folder).expect("make a folder");
    let notebook = folder.join("t.ipynb");
    std::fs::write(&notebook, "").expect("make a notebook");
    // Root may write everywhere; a file in the way stops root too.
    std::fs::write(folder.join(".nb"), "").expect("make a file");
    let mode = std::fs::Permissions::from_mode;
    std::fs::set_permissions(&folder, mode(0o555)).expect("make it read-only");
    let said = say(world
        .nb()
        .arg("open")
        .arg(&notebook)
        .arg("--python")
        .arg(crate::python::interpreter()));
    let said = said.ended(0).with("cannot hold a project folder");
    said.with(
        &home(&world)
            .join(".local/state/nb/projects")
            .to_string_lossy(),
    );
    let again = say(&mut opening(&world, &notebook)).ended(0);
    assert_eq!(
        again.json()["notes"],
        serde_json::json!([]),
        "it is said once"
    );
    works(&world, &notebook);
    std::fs::set_permissions(&folder, mode(0o755)).expect("make it writable");
    assert_eq!(std::fs::read(&notebook).expect("it is there"), b"");
}

#[test]
fn a_notebook_without_a_kernel_is_made_where_there_is_no_python() {
    let world = World::new();
    let mut command = world.nb();
    command
        .args(["open", "t.ipynb", "--no-kernel", "--json"])
        .env("PATH", "/nonexistent");
    command.env_remove("VIRTUAL_ENV");
    let made = say(&mut command).ended(0).json();
    assert_eq!(made["created"], true);
    assert_eq!(made["kernel_generation"], serde_json::Value::Null);
    assert!(world.project().join("t.ipynb").exists());
    assert!(
        !home(&world).join("jupyter").exists(),
        "nothing is installed"
    );
    assert_eq!(world.processes(), []);
    nb(&world, ["status", "t.ipynb"])
        .ended(6)
        .with("hint: nb open t.ipynb");
    nb(&world, ["open", "no/such/folder/t.ipynb"])
        .ended(1)
        .with("no/such/folder");
}

#[test]
fn over_tcp_it_works_the_same() {
    let world = World::new();
    let first = say(opening(&world, "t.ipynb").args(["--transport", "tcp"]))
        .ended(0)
        .json();
    let file = path(&first["connection_file"]);
    let info = std::fs::read(&file).expect("it was made");
    assert!(String::from_utf8_lossy(&info).contains("127.0.0.1"));
    nb(&world, ["run", "print(6 * 7)"]).ended(0).with("42");
    let again = nb(&world, ["open", "--transport", "ipc"])
        .ended(0)
        .with("attached");
    again.with("tcp) and was kept");
    let restarted = nb(&world, ["restart", "--json"]).ended(0).json();
    assert_eq!(restarted["kernel_generation"], 2);
    assert_eq!(std::fs::read(&file).expect("it is there"), info);
    works(&world, &world.project().join("t.ipynb"));
}
