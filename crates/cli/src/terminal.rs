//! How text gets out. Text from models, tools and users is shown, never obeyed: control characters are made visible
//! (threat S34), and there is no way around that except JSON, which escapes by itself.
//!
//! When nobody listens any more, the program ends quietly; what it had accepted is durable.
use comfy_table::Table;
use outlast::Error;
use outlast::vocab::visible::is_obeyed;
pub(crate) use outlast::vocab::visible::visible;
use serde::Serialize;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::{LazyLock, OnceLock};

/// Letters of a bar.
const BAR: u64 = 24;

/// How a piece of a line looks on a terminal that has colours.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ink {
    Faint,
    Bold,
    Good,
    Bad,
    Odd,
}

impl Ink {
    const fn code(self) -> &'static str {
        match self {
            Self::Faint => "2",
            Self::Bold => "1",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Odd => "33",
        }
    }
}

/// Whether what is said is JSON.
static JSON: OnceLock<bool> = OnceLock::new();

/// Says everything as JSON from here on, a line for each thing. A table becomes an object for each row; what has no form of its
/// own becomes `{"text": …}`.
pub(crate) fn speak_json() {
    // Whoever said so first said the same.
    let _ = JSON.set(true);
}

/// Whether what is said is JSON.
pub(crate) fn is_json() -> bool {
    JSON.get().copied().unwrap_or_default()
}

/// A line while it is put together.
#[derive(Debug, Default)]
pub(crate) struct Line(String);

impl Line {
    /// An empty line.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds text.
    pub(crate) fn text(mut self, text: &str) -> Self {
        self.0.push_str(&clean(text));
        self
    }

    /// Adds text that looks different where there are colours.
    pub(crate) fn ink(mut self, ink: Ink, text: &str) -> Self {
        if *COLOURS && !is_json() {
            // A `String` takes every write.
            let _ = write!(self.0, "\x1b[{}m{}\x1b[0m", ink.code(), clean(text));
            return self;
        }
        self.text(text)
    }

    /// Prints it to standard output.
    pub(crate) fn say(mut self) {
        if is_json() {
            return json(&serde_json::json!({ "text": self.0 }));
        }
        self.0.push('\n');
        put(&self.0);
    }
}

/// Prints a line to standard output.
pub(crate) fn say(text: &str) {
    Line::new().text(text).say();
}

/// Prints a piece of a text that is still being spoken.
pub(crate) fn piece(text: &str) {
    put(&clean(text));
}

/// Prints what another program reads: a script for a shell, a page for `man`. It is our own text and has its own line ends.
pub(crate) fn script(text: &str) {
    put(text);
}

/// Prints one line of JSON, which escapes control characters by itself.
///
/// # Panics
/// Never: frames are plain data.
pub(crate) fn json(value: &impl Serialize) {
    let mut line = serde_json::to_string(value).expect("what is printed as JSON is plain data");
    line.push('\n');
    put(&line);
}

/// Prints rows under a head, aligned.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) {
    if is_json() {
        let named = |row: &Vec<String>| {
            let names = head.iter().map(|name| name.to_lowercase().replace(' ', "_"));
            names.zip(row).map(|(name, cell)| (name, cell.as_str().into())).collect::<Map<String, Value>>()
        };
        return rows.iter().for_each(|row| json(&named(row)));
    }
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(head);
    for row in rows {
        table.add_row(row.iter().map(|cell| clean(&one_line(cell, usize::MAX)).into_owned()));
    }
    for line in table.lines() {
        put(line.trim());
        put("\n");
    }
}

/// Tells a person something beside the output.
pub(crate) fn note(text: &str) {
    // Whoever closed standard error does not want to know.
    let _ = writeln!(io::stderr().lock(), "{}", clean(text));
}

/// Shows how much of something is done, as a bar.
pub(crate) fn bar(done: u64, of: u64, what: &str) {
    progress(Some(&drawn(done, of, what)));
}

/// A bar and what it says. Of nothing, all is done.
fn drawn(done: u64, of: u64, what: &str) -> String {
    let share = |of_all: u64| (done.min(of) * of_all).checked_div(of).unwrap_or(of_all);
    let full = usize::try_from(share(BAR)).unwrap_or_default();
    let empty = usize::try_from(BAR).unwrap_or_default().saturating_sub(full);
    format!("[{}{}] {:>3} %, {done} of {of} {what}", "#".repeat(full), ".".repeat(empty), share(100))
}

/// Shows how far something is, on a line that is written over by the next; none removes it. Only people want to see it.
pub(crate) fn progress(text: Option<&str>) {
    let mut to = io::stderr().lock();
    if to.is_terminal() {
        let _ = write!(to, "\r\x1b[K{}", clean(text.unwrap_or_default())).and_then(|()| to.flush());
    }
}

/// Says why the command failed and where to read on.
pub(crate) fn complain(error: &Error) {
    let code = error.kind().code();
    let told = error.to_string();
    let what = told.strip_prefix(code).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&told);
    note(&format!("error[{code}]: {what}\n  read on with: outlast explain {code}"));
}

/// The text on one line, cut after so many letters.
pub(crate) fn one_line(text: &str, letters: usize) -> String {
    let mut line: String = text.trim().chars().map(|c| if c == '\n' { '⏎' } else { c }).collect();
    if let Some((end, _)) = line.char_indices().nth(letters) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// Whether standard output shows colours.
static COLOURS: LazyLock<bool> = LazyLock::new(|| {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let able = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    wanted && able && io::stdout().is_terminal()
});

/// Everything that a terminal would obey, or that turns the reading direction, is written out.
fn clean(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_obeyed(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

fn put(text: &str) {
    let mut out = io::stdout().lock();
    if let Err(cause) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        drop(out);
        end(&cause);
    }
}

/// Ends the program because its output cannot be written. A reader that went away has seen enough.
fn end(cause: &io::Error) -> ! {
    if cause.kind() == io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    let detail = format!("standard output cannot be written: {cause}");
    complain(&Error::new(outlast::Kind::IoFailed, detail));
    std::process::exit(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_instead() {
        assert_eq!(clean("a\tb\nc"), "a\tb\nc");
        assert_eq!(clean("\x1b[2Jgone\r\x07\u{9b}1m"), r"\u{1b}[2Jgone\u{d}\u{7}\u{9b}1m");
        assert_eq!(clean("pay \u{202e}nna"), r"pay \u{202e}nna");
    }

    #[test]
    fn a_bar_is_as_full_as_what_it_shows() {
        assert_eq!(drawn(0, 8, "records"), "[........................]   0 %, 0 of 8 records");
        assert_eq!(drawn(4, 8, "records"), "[############............]  50 %, 4 of 8 records");
        assert_eq!(drawn(9, 8, "bytes"), "[########################] 100 %, 9 of 8 bytes");
        assert_eq!(drawn(0, 0, "bytes"), "[########################] 100 %, 0 of 0 bytes");
    }

    #[test]
    fn a_long_text_fits_one_line() {
        assert_eq!(one_line(" a\nb ", 3), "a⏎b");
        assert_eq!(one_line("äöüß", 3), "äöü…");
    }
}
