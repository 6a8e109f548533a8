//! A temporary directory with a database, in which tests run the binary.
//!
//! Output that differs between runs is masked in the order of its first appearance. The second session id
//! becomes `ses_2`, times become `TIME`, and the directory becomes `DIR`. In arguments, a masked id is
//! replaced by the real one.
use expect_test::Expect;
use serde_json::Value;
use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use tempfile::TempDir;

const PREFIXES: [&str; 11] =
    ["ses_", "trn_", "cal_", "cpl_", "apr_", "grt_", "dlv_", "org_", "key_", "olk_", "wrk_"];

/// The directory of a test.
pub(crate) struct Place {
    dir: TempDir,
    masks: RefCell<Vec<(String, String)>>,
    variables: RefCell<Vec<(String, String)>>,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: TempDir::new().unwrap(), masks: RefCell::default(), variables: RefCell::default() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path().join("outlast.db")
    }

    /// Creates a place with a script for the model. Pass `--script script.txt` to use it.
    pub(crate) fn with_script(script: &str) -> Self {
        let place = Self::new();
        place.set_script(script);
        place
    }

    pub(crate) fn set_script(&self, script: &str) {
        std::fs::write(self.path().join("script.txt"), script).unwrap();
    }

    /// Sets an environment variable for all commands.
    pub(crate) fn set(&self, name: &str, value: &str) {
        self.variables.borrow_mut().push((name.to_owned(), value.to_owned()));
    }

    /// Masks a text in all output.
    pub(crate) fn hide(&self, text: &str, behind: &str) {
        self.masks.borrow_mut().push((text.to_owned(), behind.to_owned()));
    }

    /// Writes a file.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    /// Writes an executable shell script.
    pub(crate) fn write_program(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        self.write(name, &format!("#!/bin/sh\n{text}\n"));
        let runs = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.path().join(name), runs).unwrap();
    }

    /// Returns the binary with these arguments, to be run in this place.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_outlast"));
        command.current_dir(self.path()).env_remove("OUTLAST_DATA").env_remove("NO_COLOR");
        command.env_remove("OUTLAST_ATTACHMENTS").env_remove("OUTLAST_ORG");
        command.env_remove("OUTLAST_SERVER").env_remove("OUTLAST_KEY").env_remove("OUTLAST_KEY_FILE");
        for name in ["OPENAI", "ANTHROPIC", "GEMINI", "LOCAL"] {
            command.env_remove(format!("{name}_API_KEY")).env_remove(format!("{name}_BASE_URL"));
        }
        command.envs(self.variables.borrow().iter().map(|(name, value)| (name, value)));
        command.args(args.iter().map(|arg| self.unmask(arg)));
        command
    }

    pub(crate) fn output(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs the binary with this standard input.
    pub(crate) fn fed(&self, args: &[&str], stdin: &[u8]) -> Output {
        let mut command = self.command(args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The binary may exit before it has read everything.
        let _ = child.stdin.take().unwrap().write_all(stdin);
        child.wait_with_output().unwrap()
    }

    /// Runs commands, one per line, and compares their output. Spaces separate words, except in single
    /// quotes.
    #[track_caller]
    pub(crate) fn check(&self, commands: &str, want: &Expect) {
        let mut shown = String::new();
        for command in commands.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words = words(command);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            writeln!(shown, "$ {command}").unwrap();
            shown.push_str(&self.show(&self.output(&words)));
        }
        want.assert_eq(&shown);
    }

    /// Returns the masked output. Lines of standard error start with a bar.
    pub(crate) fn show(&self, output: &Output) -> String {
        let mut shown = self.mask(&String::from_utf8_lossy(&output.stdout));
        for line in self.mask(&String::from_utf8_lossy(&output.stderr)).lines() {
            writeln!(shown, "| {line}").unwrap();
        }
        match output.status.code() {
            Some(0) => {}
            Some(code) => writeln!(shown, "exit {code}").unwrap(),
            None => writeln!(shown, "{}", output.status).unwrap(),
        }
        shown
    }

    /// Starts the demo's worker with inputs: session, key and text.
    pub(crate) fn worker(&self, pace: u32, orders: &[[&str; 3]]) -> Worker {
        let pace = pace.to_string();
        let mut command = self.command(&["demo", "--worker", ".", "--script", "script.txt", "--pace", &pace]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        for [session, key, text] in orders {
            let order = serde_json::json!({"session": session, "key": key, "text": text});
            writeln!(stdin, "{order}").unwrap();
        }
        let lines = BufReader::new(child.stdout.take().unwrap());
        Worker { child, lines }
    }

    fn unmask(&self, arg: &str) -> String {
        let masks = self.masks.borrow();
        masks.iter().find(|(_, mask)| mask == arg).map_or_else(|| arg.to_owned(), |(raw, _)| raw.clone())
    }

    fn mask(&self, text: &str) -> String {
        let dir = self.path().to_string_lossy().into_owned();
        let text = text.replace(&*self.path().canonicalize().unwrap().to_string_lossy(), "DIR");
        let mut text = text.replace(&dir, "DIR");
        for (raw, mask) in self.masks.borrow().iter().filter(|(raw, _)| id(raw).is_none()) {
            text = text.replace(raw, mask);
        }
        let mut shown = String::new();
        let mut rest = text.as_str();
        while let Some(c) = rest.chars().next() {
            if let Some(id) = id(rest) {
                shown.push_str(&self.name(id));
                rest = &rest[id.len()..];
            } else if is_time(rest) {
                shown.push_str("TIME");
                rest = &rest["2026-01-01 00:00:00Z".len()..];
            } else {
                shown.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
        shown
    }

    fn name(&self, id: &str) -> String {
        let mut masks = self.masks.borrow_mut();
        if let Some((_, mask)) = masks.iter().find(|(raw, _)| raw == id) {
            return mask.clone();
        }
        let prefix = &id[..4];
        let number = masks.iter().filter(|(raw, _)| raw.starts_with(prefix)).count() + 1;
        masks.push((id.to_owned(), format!("{prefix}{number}")));
        format!("{prefix}{number}")
    }
}

pub(crate) fn words(command: &str) -> Vec<String> {
    let mut words = vec![];
    for (place, part) in command.split('\'').enumerate() {
        if place % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

fn id(text: &str) -> Option<&str> {
    PREFIXES.iter().find(|prefix| text.starts_with(**prefix))?;
    let hex = text[4..].bytes().take_while(u8::is_ascii_hexdigit).count();
    (hex >= 32).then(|| &text[..4 + hex])
}

fn is_time(text: &str) -> bool {
    text.get(..20).is_some_and(|time| {
        let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        shape == "0000-00-00 00:00:00Z" || shape == "0000-00-00T00:00:00Z"
    })
}

/// A running worker of the demo.
pub(crate) struct Worker {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Worker {
    /// Reads its progress until this event, and returns it.
    pub(crate) fn until(&mut self, what: &str, of: &str) -> Value {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(
                self.lines.read_line(&mut line).unwrap() > 0,
                "the worker ended without `{what}` of `{of}`"
            );
            let progress: Value = serde_json::from_str(&line).unwrap();
            if progress.get(what).is_some() && line.contains(of) {
                return progress[what].clone();
            }
        }
    }

    /// Kills it like a crash.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until its turns have ended.
    pub(crate) fn end(mut self) {
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.lines, &mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}
