//! A turn as it is shown: the updates of an agent become displays that grow in place. Pure.
//!
//! The parts of a turn (answer, thoughts, plan, tool calls) follow each other in pages. A page is one display
//! of the front end; a new one begins when a page has `PAGE` bytes, so that a long answer is not sent
//! again as a whole whenever it grows. An image is a page of its own.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::markdown;
use super::update::{
    Content, Location, PlanStep, StepState, ToolChange, ToolContent, ToolState, Update,
};

/// The size from which a page is not continued, in bytes of Markdown.
const PAGE: usize = 8 << 10;

/// How much of a turn is shown, in bytes. An agent that says more is cut.
const TURN: usize = 16 << 20;

/// One turn of a conversation.
#[derive(Debug)]
pub struct Turn {
    pages: Vec<Page>,
    tools: HashMap<String, Tool>,
    terminals: HashMap<String, String>,
    plan: Vec<PlanStep>,
    usage: Option<Usage>,
    bytes: usize,
    is_cut: bool,
    is_over: bool,
    /// The folder from which paths are shown.
    root: std::path::PathBuf,
}

/// What a turn has cost so far.
#[derive(Debug)]
struct Usage {
    /// The tokens in the agent's context, and how many it holds.
    used: u64,
    size: u64,
    /// The amount and its currency.
    cost: Option<(f64, String)>,
}

/// What a front end shows of a turn, in one place.
#[derive(Clone, Debug, PartialEq)]
pub struct Display {
    /// Its number in the turn.
    pub page: usize,
    /// Whether it was shown before.
    pub is_update: bool,
    /// The MIME bundle.
    pub data: Value,
}

#[derive(Debug)]
struct Page {
    parts: Vec<Part>,
    is_shown: bool,
    is_changed: bool,
}

#[derive(Debug)]
enum Part {
    Answer(String),
    Thought(String),
    Plan,
    Tool(String),
    Note(String),
    Media { mime: String, data: String },
}

/// A tool call.
#[derive(Debug, Default)]
struct Tool {
    title: String,
    kind: String,
    state: ToolState,
    content: Vec<ToolContent>,
    locations: Vec<Location>,
    output: Option<Value>,
    page: usize,
}

impl Turn {
    /// Begins a turn; paths below `root` are shown from there.
    pub fn new(root: &Path) -> Self {
        Self {
            pages: Vec::new(),
            tools: HashMap::new(),
            terminals: HashMap::new(),
            plan: Vec::new(),
            usage: None,
            bytes: 0,
            is_cut: false,
            is_over: false,
            root: root.to_owned(),
        }
    }

    /// Takes an update.
    pub fn take(&mut self, update: Update) {
        match update {
            Update::Answer(Content::Text(text)) => self.take_text(&text, false),
            Update::Answer(content) => self.take_content(content),
            Update::Thought(text) => self.take_text(&text, true),
            Update::Tool(change) => self.take_tool(change),
            Update::Plan(plan) => {
                self.plan = plan;
                let is_plan = |page: &Page| page.parts.iter().any(|it| matches!(it, Part::Plan));
                match self.pages.iter_mut().find(|page| is_plan(page)) {
                    Some(page) => page.is_changed = true,
                    None => self.add(Part::Plan),
                }
            }
            Update::Usage { used, size, cost } => self.usage = Some(Usage { used, size, cost }),
            Update::Terminal { id, text } => {
                let shows = |tool: &Tool| {
                    let mut content = tool.content.iter();
                    content.any(|it| matches!(it, ToolContent::Terminal(shown) if *shown == id))
                };
                for tool in self.tools.values().filter(|tool| shows(tool)) {
                    self.pages[tool.page].is_changed = true;
                }
                if self.has_room(text.len()) {
                    self.terminals.insert(id, text);
                }
            }
            Update::Note(text) => self.add(Part::Note(text)),
            Update::Commands(_) | Update::Mode(_) | Update::Options(_) | Update::Other => {}
        }
    }

    /// Ends the turn: its last page shows why it stopped, and its usage.
    pub fn end(&mut self, stop: &str) {
        self.is_over = true;
        let open = |it: &&Tool| matches!(it.state, ToolState::Waiting | ToolState::Running);
        for tool in self.tools.values().filter(open) {
            self.pages[tool.page].is_changed = true;
        }
        let mut notes = Vec::new();
        match stop {
            "end_turn" => {}
            "max_tokens" => notes.push("stopped: the answer is as long as it may be".to_owned()),
            "max_turn_requests" => notes.push("stopped: too many requests in one turn".to_owned()),
            "refusal" => notes.push("the agent refuses to go on".to_owned()),
            "cancelled" => notes.push("interrupted".to_owned()),
            other => notes.push(markdown::escaped(other)),
        }
        if let Some(Usage { used, size, cost }) = self.usage.take() {
            notes.push(format!("context: {used} of {size} tokens"));
            if let Some((amount, currency)) = cost {
                notes.push(format!("{amount:.2} {}", markdown::escaped(&currency)));
            }
        }
        if !notes.is_empty() {
            self.add(Part::Note(notes.join(" · ")));
        }
    }

    /// Returns the next display that a front end has not got yet.
    pub fn next_display(&mut self) -> Option<Display> {
        let page = self.pages.iter().position(|page| page.is_changed)?;
        let data = self.bundle(page);
        let shown = &mut self.pages[page];
        shown.is_changed = false;
        Some(Display {
            page,
            is_update: std::mem::replace(&mut shown.is_shown, true),
            data,
        })
    }

    /// Returns the whole text of the answer.
    pub fn answer(&self) -> String {
        let parts = self.pages.iter().flat_map(|page| &page.parts);
        let texts = parts.filter_map(|part| match part {
            Part::Answer(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// Returns whether the turn may grow by so many bytes; says once that it may not.
    fn has_room(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        if self.bytes <= TURN {
            return true;
        }
        if !std::mem::replace(&mut self.is_cut, true) {
            let text = format!("more than {} MiB: the rest is not shown", TURN >> 20);
            self.push(Part::Note(text));
        }
        false
    }

    fn take_text(&mut self, text: &str, is_thought: bool) {
        if text.is_empty() || !self.has_room(text.len()) {
            return;
        }
        let last = self.pages.last_mut().and_then(|page| {
            page.is_changed = true;
            page.parts.last_mut()
        });
        let last_text = match last {
            Some(Part::Answer(last)) if !is_thought => last,
            Some(Part::Thought(last)) if is_thought => last,
            _ => {
                let part = match is_thought {
                    true => Part::Thought(text.to_owned()),
                    false => Part::Answer(text.to_owned()),
                };
                self.add(part);
                return self.divide();
            }
        };
        last_text.push_str(text);
        self.divide();
    }

    /// Moves the end of a part that has grown too long to a new page.
    fn divide(&mut self) {
        loop {
            let Some(page) = self.pages.last_mut() else {
                return;
            };
            let (text, is_thought) = match page.parts.last_mut() {
                Some(Part::Answer(text)) => (text, false),
                Some(Part::Thought(text)) => (text, true),
                _ => return,
            };
            let Some(division) = markdown::division(text, PAGE) else {
                return;
            };
            let rest = format!("{}{}", division.open, &text[division.at..]);
            text.truncate(division.at);
            text.push_str(&division.close);
            self.pages.push(Page::of(match is_thought {
                true => Part::Thought(rest),
                false => Part::Answer(rest),
            }));
        }
    }

    fn take_content(&mut self, content: Content) {
        match content {
            Content::Text(text) => self.take_text(&text, false),
            Content::Media { mime, data } => {
                if self.has_room(data.len()) {
                    self.pages.push(Page::of(Part::Media { mime, data }));
                }
            }
            Content::Link { name, uri } => {
                self.add(Part::Note(link(&name, &uri)));
            }
            Content::File { uri, text } => {
                let shown = markdown::block(&text, "");
                self.add(Part::Note(markdown::folded(&html(&uri), &shown)));
            }
        }
    }

    fn take_tool(&mut self, change: ToolChange) {
        let size = change_size(&change);
        if !self.has_room(size) {
            return;
        }
        let is_new = !self.tools.contains_key(&change.id);
        if is_new {
            self.add(Part::Tool(change.id.clone()));
        }
        let newest = self.pages.len() - 1;
        let tool = self.tools.entry(change.id).or_insert_with(|| Tool {
            page: newest,
            ..Tool::default()
        });
        tool.title = change.title.unwrap_or(std::mem::take(&mut tool.title));
        tool.kind = change.kind.unwrap_or(std::mem::take(&mut tool.kind));
        tool.state = change.state.unwrap_or(tool.state);
        tool.content = change.content.unwrap_or(std::mem::take(&mut tool.content));
        let locations = std::mem::take(&mut tool.locations);
        tool.locations = change.locations.unwrap_or(locations);
        tool.output = change.output.or(tool.output.take());
        self.pages[tool.page].is_changed = true;
    }

    /// Adds a part to the last page, or to a new one if that is full.
    fn add(&mut self, part: Part) {
        let size = match &part {
            Part::Note(text) => text.len(),
            _ => 0,
        };
        if self.has_room(size) {
            self.push(part);
        }
    }

    fn push(&mut self, part: Part) {
        match self.pages.last_mut().filter(|page| !page.is_full()) {
            Some(page) => {
                page.parts.push(part);
                page.is_changed = true;
            }
            None => self.pages.push(Page::of(part)),
        }
    }

    /// Returns a page as a MIME bundle.
    fn bundle(&self, page: usize) -> Value {
        let parts = &self.pages[page].parts;
        if let [Part::Media { mime, data }] = parts.as_slice() {
            return media(mime, data);
        }
        let (mut rich, mut plain) = (String::new(), String::new());
        for part in parts {
            let (shown, text) = self.part(part);
            markdown::add(&mut rich, &shown);
            markdown::add(&mut plain, &text);
        }
        json!({ "text/markdown": rich, "text/plain": plain })
    }

    /// Returns a part as Markdown and as plain text.
    fn part(&self, part: &Part) -> (String, String) {
        match part {
            Part::Answer(text) => (text.clone(), text.clone()),
            Part::Thought(text) => {
                let rich = markdown::folded("<em>thought</em>", text.trim());
                (rich, format!("(thought) {}", text.trim()))
            }
            Part::Plan => self.plan_text(),
            Part::Tool(id) => match self.tools.get(id) {
                Some(tool) => self.tool(tool),
                None => Default::default(),
            },
            Part::Note(text) => (format!("<sub>{text}</sub>"), text.clone()),
            Part::Media { mime, .. } => (mime.clone(), mime.clone()),
        }
    }

    fn plan_text(&self) -> (String, String) {
        let (mut rich, mut plain) = (String::from("**Plan**\n"), String::from("Plan"));
        for step in &self.plan {
            let mark = match step.state {
                StepState::Done => "✓",
                StepState::Doing => "▸",
                StepState::Open => "○",
            };
            let text = markdown::escaped(&step.text);
            let text = match step.state {
                StepState::Done => format!("<del>{text}</del>"),
                StepState::Doing => format!("**{text}**"),
                StepState::Open => text,
            };
            rich.push_str(&format!("\n- {mark} {text}"));
            plain.push_str(&format!("\n {mark} {}", markdown::one_line(&step.text)));
        }
        (rich, plain)
    }

    fn tool(&self, tool: &Tool) -> (String, String) {
        let mark = match tool.state {
            ToolState::Waiting | ToolState::Running if self.is_over => "–",
            ToolState::Waiting => "○",
            ToolState::Running => "▸",
            ToolState::Done => "✓",
            ToolState::Failed => "✗",
        };
        let title = match tool.title.as_str() {
            "" => "tool",
            title => title,
        };
        let mut rich = format!("{mark} **{}**", markdown::escaped(title));
        let mut plain = format!("{mark} {}", markdown::one_line(title));
        let kind = Some(&tool.kind).filter(|it| !it.is_empty() && *it != "other");
        if let Some(kind) = kind {
            rich.push_str(&format!(" · {}", markdown::escaped(kind)));
            plain.push_str(&format!(" · {kind}"));
        }
        if tool.state == ToolState::Failed {
            rich.push_str(" · failed");
            plain.push_str(" · failed");
        }
        for location in tool.locations.iter().take(8) {
            let mut place = self.shown(&location.path);
            if let Some(line) = location.line {
                place.push_str(&format!(":{line}"));
            }
            rich.push_str(&format!(" · {}", markdown::code(&place)));
            plain.push_str(&format!(" · {}", markdown::one_line(&place)));
        }
        let mut inside = String::new();
        for content in &tool.content {
            match content {
                ToolContent::Diff { path, old, new } => {
                    let diff = markdown::diff(&self.shown(path), old, new);
                    markdown::add(&mut rich, &markdown::block(&diff, "diff"));
                    plain.push('\n');
                    plain.push_str(markdown::shortened(&diff).trim_end());
                }
                ToolContent::Content(Content::Text(text)) => {
                    markdown::add(&mut inside, &markdown::block(text, ""));
                }
                ToolContent::Content(Content::Media { mime, .. }) => {
                    markdown::add(&mut inside, &markdown::escaped(mime));
                }
                ToolContent::Content(Content::Link { name, uri }) => {
                    markdown::add(&mut inside, &link(name, uri));
                }
                ToolContent::Content(Content::File { uri, text }) => {
                    markdown::add(&mut inside, &markdown::escaped(uri));
                    markdown::add(&mut inside, &markdown::block(text, ""));
                }
                ToolContent::Terminal(id) => {
                    let text = self.terminals.get(id);
                    let text = text.map_or("$ …", String::as_str);
                    markdown::add(&mut inside, &markdown::block(&plain_text(text), ""));
                }
            }
        }
        if tool.content.is_empty()
            && let Some(output) = &tool.output
        {
            let text = output.as_str().map(str::to_owned);
            let text = text.unwrap_or_else(|| format!("{output:#}"));
            markdown::add(&mut inside, &markdown::block(&text, ""));
        }
        if !inside.is_empty() {
            markdown::add(&mut rich, &markdown::folded("output", &inside));
        }
        (rich, plain)
    }

    fn shown(&self, path: &Path) -> String {
        let relative = path.strip_prefix(&self.root).unwrap_or(path);
        relative.display().to_string()
    }
}

impl Page {
    fn of(part: Part) -> Self {
        Self {
            parts: vec![part],
            is_shown: false,
            is_changed: true,
        }
    }

    /// Returns whether a page gets no more parts.
    fn is_full(&self) -> bool {
        let size = |part: &Part| match part {
            Part::Answer(text) | Part::Thought(text) | Part::Note(text) => text.len() + 64,
            // A tool's line, and some of what it shows.
            Part::Tool(_) => 512,
            Part::Plan => 1024,
            Part::Media { .. } => PAGE,
        };
        self.parts.iter().map(size).sum::<usize>() >= PAGE
    }
}

/// Returns the number of bytes that a change of a tool call adds.
fn change_size(change: &ToolChange) -> usize {
    let content = |content: &ToolContent| match content {
        ToolContent::Content(Content::Text(text) | Content::File { text, .. }) => text.len(),
        ToolContent::Content(Content::Media { data, .. }) => data.len(),
        ToolContent::Content(Content::Link { .. }) | ToolContent::Terminal(_) => 64,
        ToolContent::Diff { old, new, .. } => old.len() + new.len(),
    };
    let contents = change.content.iter().flatten().map(content).sum::<usize>();
    let title = change.title.as_ref().map_or(0, String::len);
    64 + title + contents
}

/// Returns a link in Markdown; only the name, if its address could do anything but lead somewhere.
fn link(name: &str, uri: &str) -> String {
    let name = markdown::escaped(name);
    let leads = ["http://", "https://", "file://"];
    let is_plain = |c: char| c.is_ascii_graphic() && !"<>()\"'`\\".contains(c);
    match leads.iter().any(|it| uri.starts_with(it)) && uri.chars().all(is_plain) {
        true => format!("[{name}](<{uri}>)"),
        false => format!("{name} {}", markdown::code(uri)),
    }
}

/// Returns a text for HTML.
fn html(text: &str) -> String {
    let text = markdown::one_line(text);
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// Returns a terminal's text without its colours and other commands.
fn plain_text(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '\u{1b}' => {
                if characters.next_if_eq(&'[').is_some() {
                    let is_final = |c: &char| ('@'..='~').contains(c);
                    while characters.next_if(|c| !is_final(c)).is_some() {}
                    characters.next();
                }
            }
            '\n' | '\t' => plain.push(c),
            c if c.is_control() => {}
            c => plain.push(c),
        }
    }
    plain
}

/// Returns an image, a sound or another file as a MIME bundle.
fn media(mime: &str, data: &str) -> Value {
    let bytes = data.len() / 4 * 3;
    let is_shown = mime.starts_with("image/") || mime.starts_with("audio/");
    let is_shown = is_shown && mime.len() < 100 && mime.chars().all(|c| c.is_ascii_graphic());
    let mut bundle = Map::new();
    // An SVG is a text in a bundle, and not base64.
    if is_shown && mime != "image/svg+xml" {
        bundle.insert(mime.to_owned(), data.into());
    } else {
        let note = format!("<sub>{} of {bytes} bytes</sub>", markdown::escaped(mime));
        bundle.insert("text/markdown".to_owned(), note.into());
    }
    let plain = format!("<{} of {bytes} bytes>", markdown::one_line(mime));
    bundle.insert("text/plain".to_owned(), plain.into());
    bundle.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn() -> Turn {
        Turn::new(Path::new("/project"))
    }

    fn say(turn: &mut Turn, text: &str) {
        turn.take(Update::Answer(Content::Text(text.to_owned())));
    }

    /// Takes all displays; returns what the front end shows in the end, and how many bytes it got.
    fn shown(turn: &mut Turn) -> (Vec<Value>, usize) {
        let (mut pages, mut bytes) = (Vec::new(), 0);
        while let Some(display) = turn.next_display() {
            bytes += display.data.to_string().len();
            assert_eq!(display.is_update, display.page < pages.len(), "{display:?}");
            match display.is_update {
                true => pages[display.page] = display.data,
                false => pages.push(display.data),
            }
        }
        (pages, bytes)
    }

    fn markdown_of(pages: &[Value]) -> String {
        let texts = pages
            .iter()
            .map(|page| page["text/markdown"].as_str().unwrap());
        texts.collect::<Vec<_>>().join("\n¶\n")
    }

    #[test]
    fn an_answer_grows_in_one_place() {
        let mut turn = turn();
        say(&mut turn, "one");
        let first = turn.next_display().unwrap();
        assert_eq!((first.page, first.is_update), (0, false));
        assert_eq!(turn.next_display(), None);
        say(&mut turn, " two");
        let second = turn.next_display().unwrap();
        assert_eq!((second.page, second.is_update), (0, true));
        assert_eq!(
            second.data,
            json!({ "text/markdown": "one two", "text/plain": "one two" })
        );
    }

    #[test]
    fn a_long_answer_is_complete_and_is_not_sent_again_as_a_whole() {
        let mut turn = turn();
        let piece = "A line of words that is not very long.\n\n";
        let (mut bytes, mut pages) = (0, Vec::new());
        let count = 200_000 / piece.len();
        for _ in 0..count {
            say(&mut turn, piece);
            while let Some(display) = turn.next_display() {
                let size = display.data.to_string().len();
                assert!(size < 3 * PAGE, "{size}");
                bytes += size;
                pages.resize(turn.pages.len(), Value::Null);
                pages[display.page] = display.data;
            }
        }
        assert_eq!(turn.answer(), piece.repeat(count));
        let text: String = pages
            .iter()
            .map(|page| page["text/plain"].as_str().unwrap())
            .collect();
        assert_eq!(text, piece.repeat(count));
        // Each repaint is a page at most, and not 200 kB.
        assert!(bytes < count * 3 * PAGE, "{bytes}");
    }

    #[test]
    fn ten_thousand_updates_of_all_kinds_are_few_displays_and_lose_nothing() {
        let mut turn = turn();
        for number in 0..10_000 {
            match number % 2 {
                0 => say(&mut turn, &format!("a{number} ")),
                _ => turn.take(Update::Thought(format!("t{number} "))),
            }
        }
        let (pages, bytes) = shown(&mut turn);
        let all = markdown_of(&pages);
        let words = all.split(|letter: char| !letter.is_alphanumeric());
        let words: std::collections::HashSet<_> = words.collect();
        for number in 0..10_000 {
            let kind = if number % 2 == 0 { "a" } else { "t" };
            assert!(words.contains(&*format!("{kind}{number}")), "{number}");
        }
        assert!(pages.len() < 120, "{}", pages.len());
        assert!(bytes < 3_000_000, "{bytes}");
    }

    #[test]
    fn a_tool_call_is_a_line_that_changes_where_it_is() {
        let mut turn = turn();
        say(&mut turn, "Reading.");
        turn.take(Update::Tool(ToolChange {
            id: "1".to_owned(),
            title: Some("Read <a> file".to_owned()),
            kind: Some("read".to_owned()),
            locations: Some(vec![Location {
                path: "/project/a.py".into(),
                line: Some(3),
            }]),
            ..ToolChange::default()
        }));
        say(&mut turn, "Then.");
        shown(&mut turn);
        turn.take(Update::Tool(ToolChange {
            id: "1".to_owned(),
            state: Some(ToolState::Done),
            content: Some(vec![ToolContent::Diff {
                path: "/project/a.py".into(),
                old: "1\n".to_owned(),
                new: "2\n".to_owned(),
            }]),
            ..ToolChange::default()
        }));
        let display = turn.next_display().unwrap();
        assert!(display.is_update);
        assert_eq!(
            display.data["text/markdown"],
            "Reading.\n\n✓ **Read &lt;a> file** · read · `a.py:3`\n\n```diff\n--- a.py\n+++ a.py\n\
             @@ -1 +1 @@\n-1\n+2\n```\n\nThen."
        );
        assert_eq!(
            display.data["text/plain"],
            "Reading.\n\n✓ Read <a> file · read · a.py:3\n--- a.py\n+++ a.py\n@@ -1 +1 @@\n-1\n+2\n\nThen."
        );
    }

    #[test]
    fn plan_terminal_image_link_and_end() {
        let mut turn = turn();
        let step = |text: &str, state| PlanStep {
            text: text.to_owned(),
            state,
        };
        turn.take(Update::Plan(vec![step("look", StepState::Open)]));
        turn.take(Update::Plan(vec![
            step("look", StepState::Done),
            step("act", StepState::Doing),
        ]));
        turn.take(Update::Tool(ToolChange {
            id: "t".to_owned(),
            title: Some("run".to_owned()),
            content: Some(vec![ToolContent::Terminal("1".to_owned())]),
            ..ToolChange::default()
        }));
        turn.take(Update::Terminal {
            id: "1".to_owned(),
            text: "$ make\n\u{1b}[31mred\u{1b}[0m\n".to_owned(),
        });
        turn.take(Update::Answer(Content::Link {
            name: "x".to_owned(),
            uri: "javascript:alert(1)".to_owned(),
        }));
        turn.take(Update::Answer(Content::Media {
            mime: "image/png".to_owned(),
            data: "AAAA".to_owned(),
        }));
        turn.take(Update::Usage {
            used: 5,
            size: 10,
            cost: None,
        });
        turn.end("max_tokens");
        let (pages, _) = shown(&mut turn);
        assert_eq!(
            pages[0]["text/markdown"],
            "**Plan**\n\n- ✓ <del>look</del>\n- ▸ **act**\n\n– **run**\n\n\
             <details><summary>output</summary>\n\n```\n$ make\nred\n```\n\n</details>\n\n\
             <sub>x `javascript:alert(1)`</sub>"
        );
        assert_eq!(pages[1]["image/png"], "AAAA");
        assert_eq!(
            pages[2]["text/plain"],
            "stopped: the answer is as long as it may be · context: 5 of 10 tokens"
        );
    }

    #[test]
    fn a_flood_is_cut_and_said() {
        let mut turn = turn();
        let piece = "word \n\n".repeat(100_000);
        for _ in 0..40 {
            say(&mut turn, &piece);
        }
        let (pages, _) = shown(&mut turn);
        assert!(markdown_of(&pages).ends_with("16 MiB: the rest is not shown</sub>"));
        assert!(turn.answer().len() <= TURN);
    }
}
