//! The last move of git's HEAD, which may have changed a notebook: `git checkout`, `git pull`, `git stash`, …

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::project::beneath;

/// How many of the last bytes of HEAD's log are read.
const LAST_BYTES: u64 = 8 << 10;

/// How much earlier or later than a file's change the move of HEAD may be that made it, in seconds.
const NEAR: i64 = 10;

/// The longest description, in characters.
const DESCRIPTION_CHARS_MAX: usize = 100;

/// Returns what moved HEAD when a file was changed, in git's words: `checkout: moving from main to dev`. `None` if
/// the file is in no work tree, HEAD did not move then, or only commits moved it.
pub(super) fn moved_with(file: &Path) -> Option<String> {
    let changed = std::fs::metadata(file).and_then(|it| it.modified()).ok()?;
    let changed = Timestamp::try_from(changed).ok()?;
    let mut log = beneath::open(&git_folder(file)?.join("logs/HEAD")).ok()?;
    let length = log.metadata().ok()?.len();
    log.seek(SeekFrom::Start(length.saturating_sub(LAST_BYTES)))
        .ok()?;
    let mut bytes = Vec::new();
    log.take(LAST_BYTES).read_to_end(&mut bytes).ok()?;
    move_near(&String::from_utf8_lossy(&bytes), changed)
}

/// Returns the folder of git's files for the work tree of a file.
fn git_folder(file: &Path) -> Option<PathBuf> {
    let git = file.ancestors().skip(1).map(|it| it.join(".git"));
    let git = git.into_iter().find(|it| it.symlink_metadata().is_ok())?;
    if beneath::is_folder(&git) {
        return Some(git);
    }
    // Of a work tree that `git worktree add` made.
    let text = beneath::read_text(&git, beneath::SMALL).ok()?;
    let folder = text.strip_prefix("gitdir: ")?.trim_end();
    Some(git.parent()?.join(folder))
}

/// Returns the description of the last move of HEAD near a time, from its log. A commit changes no file.
fn move_near(log: &str, at: Timestamp) -> Option<String> {
    let moves = log.lines().rev().filter_map(|line| {
        let (who, description) = line.split_once('\t')?;
        let mut words = who.rsplit(' ');
        let (_zone, seconds) = (words.next()?, words.next()?);
        Some((seconds.parse::<i64>().ok()?, description))
    });
    let mut near = moves.take_while(|(seconds, _)| (at.as_second() - seconds).abs() <= NEAR);
    let (_, description) = near.find(|(_, description)| !description.starts_with("commit"))?;
    let shown = description.chars().filter(|c| !c.is_control());
    Some(shown.take(DESCRIPTION_CHARS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(seconds: i64, description: &str) -> String {
        let (from, to) = ("0".repeat(40), "1".repeat(40));
        format!("{from} {to} Ada L <ada@example.org> {seconds} +0100\t{description}\n")
    }

    #[test]
    fn the_move_of_head_near_a_change_is_named() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let log = [
            line(1000, "checkout: moving from main to dev"),
            line(1001, "commit: a\u{1b}[2K message"),
            line(2000, "commit (amend): another"),
            line(3000, "pull: Fast-forward\u{1b}[2K"),
        ]
        .concat();
        let moved = |seconds| move_near(&log, at(seconds));
        assert_eq!(moved(3002).as_deref(), Some("pull: Fast-forward[2K"));
        assert_eq!(moved(3060), None);
        assert_eq!(moved(2000), None);
        let earlier = log.split_inclusive('\n').take(2).collect::<String>();
        let moved = move_near(&earlier, at(1003));
        assert_eq!(moved.as_deref(), Some("checkout: moving from main to dev"));
        assert_eq!(move_near("no log\nof git", at(0)), None);
    }
}
