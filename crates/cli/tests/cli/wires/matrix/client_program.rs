//! A running program of `testing/clients`, and the lines that it prints.
use super::super::{node_for_clients, node_modules, python_with_clients, with};
use super::clients::{Client, Language};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use tempfile::TempDir;

/// A closed port, used as the proxy of every client. It keeps them from the internet.
const NOWHERE: &str = "http://127.0.0.1:9";

/// The file with the program's standard error.
const ERRORS: &str = "errors.log";

pub(super) struct ClientProgram {
    child: Child,
    lines: BufReader<ChildStdout>,
    title: &'static str,
    /// Contains everything that the client writes.
    home: TempDir,
}

impl ClientProgram {
    pub(super) fn start(client: &Client, mode: &str, urls: &[String]) -> Self {
        let home = TempDir::new().unwrap();
        let mut command = interpreter(client.language);
        command.arg(directory().join(client.program)).arg(client.variant).arg(mode).args(urls);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", home.path()).env("TMPDIR", home.path()).current_dir(home.path());
        command.env("CLIENT_MODULES", node_modules()).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("HTTP_PROXY", NOWHERE).env("HTTPS_PROXY", NOWHERE).env("NO_PROXY", "127.0.0.1");
        // Traces would be sent to the provider's own servers.
        command.env("OPENAI_AGENTS_DISABLE_TRACING", "1");
        let errors = File::create(home.path().join(ERRORS)).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines, title: client.title, home }
    }

    /// Returns the next line, or `None` after the program's end.
    pub(super) fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        while self.lines.read_line(&mut line).unwrap() > 0 {
            // Some clients print warnings.
            if let Ok(value) = serde_json::from_str(&line) {
                return Some(value);
            }
            line.clear();
        }
        let ended = self.child.wait().unwrap();
        assert!(ended.success(), "{}: {ended}\n{}", self.title, self.errors());
        None
    }

    fn errors(&self) -> String {
        std::fs::read_to_string(self.home.path().join(ERRORS)).unwrap()
    }
}

impl Drop for ClientProgram {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/clients")
}

fn interpreter(language: Language) -> Command {
    match language {
        Language::Python => python_with_clients(),
        Language::JavaScript => {
            with(with(node_for_clients(), &["--import"]), &[directory().join("modules.mjs")])
        }
    }
}
