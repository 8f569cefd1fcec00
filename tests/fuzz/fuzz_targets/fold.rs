//! Whatever a kernel sends as outputs: no panic, and what they come to can be written into a
//! notebook.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nb::notebook::{
    CellExecution, Document, OutputAccumulator, OutputChange, Widgets, pager_pages,
};

const TYPES: [&str; 6] = [
    "stream",
    "display_data",
    "update_display_data",
    "execute_result",
    "error",
    "clear_output",
];

/// What such messages begin with, so that the fuzzer need not find it.
const CONTENTS: [&str; 4] = [
    "",
    "{\"name\":\"stdout\",\"text\":\"",
    "{\"data\":{\"text/plain\":\"",
    "{\"transient\":{\"display_id\":\"a\"},\"metadata\":{},\"data\":{\"text/html\":\"",
];

fuzz_target!(|messages: Vec<(u8, &[u8])>| {
    let mut folded = OutputAccumulator::default();
    let mut widgets = Widgets::default();
    for (kind, rest) in messages {
        let kind = usize::from(kind);
        let begin = CONTENTS[kind / 8 % CONTENTS.len()].as_bytes();
        let end: &[u8] = match begin.len() {
            0 => b"",
            _ if begin.starts_with(b"{\"name") => b"\"}",
            _ => b"\"}}",
        };
        let content = [begin, rest, end].concat();
        match kind % 8 {
            6 => {
                widgets.take("comm_msg", &content, &[rest]);
            }
            7 => {
                for page in pager_pages(&content) {
                    folded.take("display_data", page.text().as_bytes());
                }
            }
            kind => {
                if let OutputChange::Displayed { display_id, shown } =
                    folded.take(TYPES[kind], &content)
                {
                    folded.update(&display_id, &shown);
                }
            }
        }
    }
    let text =
        "{\"cells\":[{\"cell_type\":\"code\",\"id\":\"a\"}],\"nbformat\":4,\"nbformat_minor\":5}";
    let mut document = Document::parse(text).expect("this is a notebook");
    document.put_widgets(&widgets).expect("the format is 4");
    let execution = CellExecution {
        outputs: folded.outputs(),
        ..CellExecution::default()
    };
    document
        .set_execution(0, &execution)
        .expect("the cell is code");
    let again = Document::parse(document.to_bytes()).expect("outputs leave a notebook");
    for output in again.cells()[0].read_outputs() {
        output.summary(40);
    }
});
