//! Prints to the terminal.
//!
//! Text from models, tools and users could contain terminal escape sequences. All output makes control
//! characters visible, except JSON, which escapes them.
//!
//! If the reader of standard output is gone, the program exits quietly. Accepted inputs are durable by then.
use comfy_table::Table;
use outlast::Error;
pub(crate) use outlast::vocab::terminal_text::escape_control;
use outlast::vocab::terminal_text::is_terminal_control;
use serde::Serialize;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::{LazyLock, OnceLock};

/// The width of a progress bar, in characters.
const BAR: u64 = 24;

/// The style of text on a terminal with colours.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TextStyle {
    Faint,
    Bold,
    Good,
    Bad,
    Warning,
}

impl TextStyle {
    const fn code(self) -> &'static str {
        match self {
            Self::Faint => "2",
            Self::Bold => "1",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Warning => "33",
        }
    }
}

/// Whether the output is JSON.
static JSON: OnceLock<bool> = OnceLock::new();

/// Switches all further output to JSON, one value per line.
///
/// Each row of a table becomes an object. Output without its own JSON form becomes `{"text": …}`.
pub(crate) fn speak_json() {
    // A second call sets the same value.
    let _ = JSON.set(true);
}

/// Returns whether the output is JSON.
pub(crate) fn is_json() -> bool {
    JSON.get().copied().unwrap_or_default()
}

/// Builds a line of output.
#[derive(Debug, Default)]
pub(crate) struct OutputLine(String);

impl OutputLine {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn text(mut self, text: &str) -> Self {
        self.0.push_str(&clean(text));
        self
    }

    /// Adds text with a style, if there are colours.
    pub(crate) fn ink(mut self, ink: TextStyle, text: &str) -> Self {
        if *COLOURS && !is_json() {
            // Writing to a `String` cannot fail.
            let _ = write!(self.0, "\x1b[{}m{}\x1b[0m", ink.code(), clean(text));
            return self;
        }
        self.text(text)
    }

    /// Prints the line to standard output.
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
    OutputLine::new().text(text).say();
}

/// Prints a piece of streaming text.
pub(crate) fn piece(text: &str) {
    put(&clean(text));
}

/// Prints text for another program, like a shell script or a manual page, without changes. The text must be
/// our own.
pub(crate) fn script(text: &str) {
    put(text);
}

/// Prints one line of JSON.
///
/// # Panics Never: frames are plain data.
pub(crate) fn json(value: &impl Serialize) {
    let mut line = serde_json::to_string(value).expect("what is printed as JSON is plain data");
    line.push('\n');
    put(&line);
}

/// Prints an aligned table.
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

/// Prints a note to standard error.
pub(crate) fn note(text: &str) {
    // Nothing can be reported if standard error is closed.
    let _ = writeln!(io::stderr().lock(), "{}", clean(text));
}

/// Shows a progress bar.
pub(crate) fn bar(done: u64, of: u64, what: &str) {
    progress(Some(&drawn(done, of, what)));
}

/// Formats a progress bar. If the total is zero, it is complete.
fn drawn(done: u64, of: u64, what: &str) -> String {
    let share = |of_all: u64| (done.min(of) * of_all).checked_div(of).unwrap_or(of_all);
    let full = usize::try_from(share(BAR)).unwrap_or_default();
    let empty = usize::try_from(BAR).unwrap_or_default().saturating_sub(full);
    format!("[{}{}] {:>3} %, {done} of {of} {what}", "#".repeat(full), ".".repeat(empty), share(100))
}

/// Shows progress on a line that the next call overwrites. `None` removes it. Does nothing unless standard
/// error is a terminal.
pub(crate) fn progress(text: Option<&str>) {
    let mut to = io::stderr().lock();
    if to.is_terminal() {
        let _ = write!(to, "\r\x1b[K{}", clean(text.unwrap_or_default())).and_then(|()| to.flush());
    }
}

/// Prints an error, and how to read more about it.
pub(crate) fn print_error(error: &Error) {
    let code = error.kind().code();
    let text = error.to_string();
    let what = text.strip_prefix(code).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&text);
    note(&format!("error[{code}]: {what}\n  read on with: outlast explain {code}"));
}

/// Returns the text on one line, truncated to `letters` characters.
pub(crate) fn one_line(text: &str, letters: usize) -> String {
    let mut line: String = text.trim().chars().map(|c| if c == '\n' { '⏎' } else { c }).collect();
    if let Some((end, _)) = line.char_indices().nth(letters) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// Whether standard output has colours.
static COLOURS: LazyLock<bool> = LazyLock::new(|| {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let able = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    wanted && able && io::stdout().is_terminal()
});

/// Escapes control characters and characters that change the text direction.
fn clean(text: &str) -> Cow<'_, str> {
    if !text.contains(is_terminal_control) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_terminal_control(c) {
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

/// Exits because standard output cannot be written. A closed pipe is not an error.
fn end(cause: &io::Error) -> ! {
    if cause.kind() == io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    let detail = format!("standard output cannot be written: {cause}");
    print_error(&Error::new(outlast::Kind::IoFailed, detail));
    std::process::exit(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_characters_are_escaped() {
        assert_eq!(clean("a\tb\nc"), "a\tb\nc");
        assert_eq!(clean("\x1b[2Jgone\r\x07\u{9b}1m"), r"\u{1b}[2Jgone\u{d}\u{7}\u{9b}1m");
        assert_eq!(clean("pay \u{202e}nna"), r"pay \u{202e}nna");
    }

    #[test]
    fn progress_bar_fill_matches_progress() {
        assert_eq!(drawn(0, 8, "records"), "[........................]   0 %, 0 of 8 records");
        assert_eq!(drawn(4, 8, "records"), "[############............]  50 %, 4 of 8 records");
        assert_eq!(drawn(9, 8, "bytes"), "[########################] 100 %, 9 of 8 bytes");
        assert_eq!(drawn(0, 0, "bytes"), "[########################] 100 %, 0 of 0 bytes");
    }

    #[test]
    fn long_text_is_truncated_to_one_line() {
        assert_eq!(one_line(" a\nb ", 3), "a⏎b");
        assert_eq!(one_line("äöüß", 3), "äöü…");
    }
}
