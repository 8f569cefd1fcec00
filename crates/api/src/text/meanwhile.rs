//! What others did meanwhile as text.

use crate::activity::notification::overwritten_words;
use crate::api::envelope::Meanwhile;

/// Returns a line for each thing that happened beside a request, without how the kernel ended. `complete`
/// fills in the notebook of a line's commands.
pub fn lines(meanwhile: &Meanwhile, complete: impl Fn(&str) -> String) -> Vec<String> {
    let lost = meanwhile.lost.iter().map(|lost| complete(&lost.text));
    let mut lines: Vec<_> = lost.collect();
    if let Some(news) = &meanwhile.notebook {
        let overwritten = overwritten_words(&news.notifications.overwritten);
        lines.extend(overwritten.iter().map(|line| complete(line)));
        let since = news.notifications.since.iter();
        lines.extend(since.map(|entry| entry.text.clone()));
    }
    lines
}
