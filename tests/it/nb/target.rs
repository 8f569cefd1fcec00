//! Which notebook a command means.

use super::{nb, open, output_of, pid, shell};
use crate::world::World;

#[test]
fn a_notebook_is_named_by_position_by_option_by_variable_or_is_the_only_one() {
    let world = World::new();
    let a = open(&world, "a.ipynb");
    nb(&world, ["interrupt", "--json"]).ended(0);
    let b = open(&world, "b.ipynb");

    let a_path = world.project().join("a.ipynb");
    for (command, more) in [("interrupt", ""), ("restart", ""), ("shutdown", "")] {
        let words = [command, more].into_iter().filter(|word| !word.is_empty());
        let output = nb(&world, words).ended(2);
        for notebook in ["a.ipynb", "b.ipynb"] {
            let whole = world.project().join(notebook);
            assert!(
                output.stderr.contains(&format!(" -n {}", whole.display())),
                "{output:#?}"
            );
        }
        output.with(&format!("hint: nb {command}"));
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
        output_of(&mut command).ended(0).json()["kernel_pid"].clone()
    };
    let (a, b) = (pid(&a), pid(&b));
    assert_eq!(meant(&["open", "a.ipynb"], None), a);
    assert_eq!(meant(&["open"], Some("b.ipynb")), b);
    assert_eq!(meant(&["open", "-n", "a.ipynb"], Some("b.ipynb")), a);
    assert_eq!(
        meant(&["-n", "b.ipynb", "open", "a.ipynb"], Some("b.ipynb")),
        a
    );
    let run = |words: &[&str]| nb(&world, [&["run"], words].concat()).ended(0).stdout;
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

    // In another folder, the notebook's path selects the project too.
    let mut elsewhere = world.nb();
    elsewhere.current_dir("/").arg("interrupt").arg(&a_path);
    output_of(&mut elsewhere).ended(0);
    // If one of the two is still open, nothing needs to be named.
    nb(&world, ["shutdown", "a.ipynb"]).ended(0);
    assert_eq!(meant(&["open"], None), b);
    // If none is open, the message lists all that were.
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

#[test]
fn where_several_are_open_the_one_that_was_used_last_is_meant() {
    let world = World::new();
    for notebook in ["a.ipynb", "b.ipynb"] {
        open(&world, notebook);
    }
    let of = |name: &str, words: &[&str]| nb(&world, [&["--as", name], words].concat());
    // The one that was opened last was used last, by its opener.
    of("eve", &["run", "1"])
        .ended(2)
        .with("several notebooks are open");
    nb(&world, ["run", "x = 'b'"])
        .ended(0)
        .with("b.ipynb: the one of 2 open notebooks that you used last");
    of("eve", &["run", "-n", "a.ipynb", "x = 'a'"]).ended(0);
    of("eve", &["run", "x"]).ended(0).with("'a'");
    nb(&world, ["run", "x"]).ended(0).with("'b'");
    of("eve", &["insert", "a.ipynb", "x"]).ended(0);
    of("eve", &["insert", "b.ipynb", "y"]).ended(0);
    of("eve", &["cells"]).ended(0).with("y").with("b.ipynb");
    of("eve", &["vars"]).ended(0).with("'b'");
    // What ends a kernel asks which one.
    of("eve", &["restart"]).ended(2);
}

#[test]
fn hints_name_the_notebook_as_it_was_typed() {
    let world = World::new();
    // The project is the notebook's folder.
    std::fs::create_dir_all(world.project().join("k")).expect("make a folder");
    let mut opening = world.nb();
    opening.args(["open", "k/my file.ipynb", "--python"]);
    output_of(opening.arg(crate::python::interpreter())).ended(0);
    nb(&world, ["insert", "k/my file.ipynb", "-s", "1"]).ended(0);
    nb(&world, ["exec", "k/my file.ipynb"])
        .ended(2)
        .with("hint: nb exec 'k/my file.ipynb' --all");
    nb(&world, ["cell", "k/my file.ipynb"])
        .ended(2)
        .with("hint: nb cells 'k/my file.ipynb' lists them");
    // The job is in the notebook's project, and the working directory is outside of it.
    let words = ["run", "k/my file.ipynb", "--timeout", "0.1", "input()"];
    let asks = nb(&world, ["run", "k/my file.ipynb", "input()"]).ended(7);
    let next = asks
        .stderr
        .lines()
        .find_map(|line| line.strip_prefix("‣ next: "));
    let reply = next.and_then(|next| next.split(" | ").next());
    let reply = reply.expect("what is to be done").replace("TEXT", "yes");
    assert!(reply.contains("-n 'k/my file.ipynb'"), "{reply}");
    let script = reply.replacen("nb ", "\"$NB_TEST_BINARY\" ", 1);
    output_of(&mut shell(&world, &script)).ended(0);
    nb(&world, ["shutdown", "k/my file.ipynb"]).ended(0);
    let stopped = nb(&world, words).ended(6);
    let open = "nb open 'k/my file.ipynb'";
    stopped.with(open);
    nb(&world, ["vars", "k/my file.ipynb"]).ended(6).with(open);
    assert!(!world.project().join("my file.ipynb").exists());
}
