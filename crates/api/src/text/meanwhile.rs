//! What others did meanwhile as text.

use crate::activity::notification::overwritten_words;
use crate::api::envelope::Meanwhile;
use crate::execution::lost::KilledRecorder;
use crate::hint::Hint;

/// Returns a line for each thing that happened beside a request, without how the kernel ended.
pub fn lines(meanwhile: &Meanwhile) -> Vec<Hint> {
    let lost = meanwhile.lost.iter().map(KilledRecorder::hint);
    let mut lines: Vec<_> = lost.collect();
    if let Some(news) = &meanwhile.notebook {
        lines.extend(overwritten_words(&news.notifications.overwritten));
        let since = news.notifications.since.iter();
        lines.extend(since.map(|entry| entry.text.clone().into()));
        let waits = news.waits_behind_you.iter();
        lines.extend(waits.map(|it| {
            let text = format!("{} waits with {} behind your cell", it.by, it.label);
            text.into()
        }));
    }
    lines
}
