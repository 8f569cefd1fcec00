//! Which notebook a command means.

use super::{nb, open, pid, say};
use crate::world::World;

#[test]
fn a_notebook_is_named_by_position_by_option_by_variable_or_is_the_only_one() {
    let world = World::new();
    let a = open(&world, "a.ipynb");
    nb(&world, ["interrupt", "--json"]).ended(0);
    let b = open(&world, "b.ipynb");

    let a_path = world.project().join("a.ipynb");
    for (command, more) in [
        ("interrupt", ""),
        ("restart", ""),
        ("shutdown", ""),
        ("run", "1"),
    ] {
        let words = [command, more].into_iter().filter(|word| !word.is_empty());
        let said = nb(&world, words).ended(2);
        for notebook in ["a.ipynb", "b.ipynb"] {
            let whole = world.project().join(notebook);
            assert!(
                said.err.contains(&format!(" -n {}", whole.display())),
                "{said:#?}"
            );
        }
        said.with(&format!("hint: nb {command}"));
    }
    let refused = nb(&world, ["interrupt", "--json"]).ended(2).json();
    assert_eq!(refused["error"]["kind"], "usage");
    assert_eq!(refused["error"]["hints"].as_array().map(Vec::len), Some(2));

    let meant = |words: &[&str], variable: Option<&str>| {
        let mut command = world.nb();
        command.args(words).arg("--json");
        if let Some(notebook) = variable {
            command.env("NB_NOTEBOOK", notebook);
        }
        say(&mut command).ended(0).json()["kernel_pid"].clone()
    };
    let (a, b) = (pid(&a), pid(&b));
    assert_eq!(meant(&["open", "a.ipynb"], None), a);
    assert_eq!(meant(&["open"], Some("b.ipynb")), b);
    assert_eq!(meant(&["open", "-n", "a.ipynb"], Some("b.ipynb")), a);
    assert_eq!(
        meant(&["-n", "b.ipynb", "open", "a.ipynb"], Some("b.ipynb")),
        a
    );
    let run = |words: &[&str]| nb(&world, [&["run"], words].concat()).ended(0).out;
    let getpid = "import os; print(os.getpid())";
    assert_eq!(run(&["a.ipynb", getpid]), format!("{a}\n"));
    assert_eq!(run(&["-n", "b.ipynb", getpid]), format!("{b}\n"));

    let both = nb(&world, ["status", "--json"]).ended(0).json();
    assert_eq!(both["sessions"].as_array().map(Vec::len), Some(2));
    let one = nb(&world, ["status", "--json", "-n", "b.ipynb"])
        .ended(0)
        .json();
    assert_eq!(one["sessions"][0]["kernel_pid"], b);
    assert_eq!(one["sessions"][0]["kernel_generation"], 1);

    // From another folder a path names the project too.
    let mut elsewhere = world.nb();
    elsewhere.current_dir("/").arg("interrupt").arg(&a_path);
    say(&mut elsewhere).ended(0);
    // With one of two left, nothing needs to be named.
    nb(&world, ["shutdown", "a.ipynb"]).ended(0);
    assert_eq!(meant(&["open"], None), b);
    // With none, all that were open are named.
    nb(&world, ["shutdown"]).ended(0);
    nb(&world, ["restart"])
        .ended(2)
        .with("no kernel runs here")
        .with("a.ipynb");
    nb(&world, ["open", "notes.txt"])
        .ended(2)
        .with("does not end in .ipynb");
    nb(&world, ["interrupt", "c.ipynb"])
        .ended(6)
        .with("hint: nb open c.ipynb");
}
