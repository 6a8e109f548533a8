//! Tests of the approval inbox on a terminal: its screen and its keys.
use crate::place::Place;
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long to wait for text on the screen.
const PATIENCE: Duration = Duration::from_mins(1);

const AGENT: &str = r#"
name = "clerk"

[[tools]]
name = "pay"
description = "Pays a person."
command = ["tee", "-a", "paid"]
input = { type = "object", properties = { to = { type = "string" }, euros = { type = "integer" } }, required = ["to", "euros"] }

[[rules]]
name = "large"
tool = "pay"
then = "ask"
who = ["ann", "bob"]
expires_s = 3600
"#;

/// The binary on a pseudo-terminal.
pub(crate) struct Screen {
    parser: vt100::Parser,
    bytes: Receiver<Vec<u8>>,
    keys: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    _master: Box<dyn MasterPty + Send>,
}

impl Screen {
    pub(crate) fn open(place: &Place, args: &[&str]) -> Self {
        let size = PtySize { rows: 30, cols: 120, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        let command = place.command(args);
        let mut builder = CommandBuilder::new(command.get_program());
        builder.args(command.get_args());
        builder.cwd(place.path());
        builder.env("TERM", "xterm-256color");
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => builder.env(name, value),
                None => builder.env_remove(name),
            }
        }
        let child = pair.slave.spawn_command(builder).unwrap();
        let mut reader = pair.master.try_clone_reader().unwrap();
        let (sender, bytes) = channel();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut piece) {
                if sender.send(piece[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        let keys = pair.master.take_writer().unwrap();
        let parser = vt100::Parser::new(size.rows.try_into().unwrap(), size.cols.try_into().unwrap(), 0);
        Self { parser, bytes, keys, child, _master: pair.master }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits until the text is on the screen, and returns the whole screen.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str) -> String {
        loop {
            let shown = self.parser.screen().contents();
            if flat(&shown).contains(what) {
                return shown;
            }
            match self.bytes.recv_timeout(PATIENCE) {
                Ok(bytes) => self.parser.process(&bytes),
                Err(late) => panic!("`{what}` never came up ({late}); the screen is:\n{shown}"),
            }
        }
    }

    /// Returns all bytes sent to the screen until the program exited.
    pub(crate) fn sent(mut self) -> String {
        assert!(self.child.wait().unwrap().success());
        let mut sent = Vec::new();
        while let Ok(bytes) = self.bytes.recv_timeout(Duration::from_millis(500)) {
            sent.extend(bytes);
        }
        String::from_utf8_lossy(&sent).into_owned()
    }

    pub(crate) fn leave(mut self) {
        self.press("q");
        assert!(self.child.wait().unwrap().success());
    }
}

/// Returns the text of a screen without frames and line breaks, so that wrapped text can be found.
fn flat(shown: &str) -> String {
    let lines = shown.lines().map(|line| {
        let inside = line.rsplit_once('│').map_or(line, |(inside, _)| inside);
        inside.rsplit_once('│').map_or(inside, |(_, right)| right).trim_end()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Creates a place in which this call of `pay` waits.
fn asked(arguments: &str) -> Place {
    let place = Place::with_script(&format!("call pay {arguments}\n---\nsay {{{{result pay}}}}"));
    place.write("clerk.toml", AGENT);
    ask(&place, "s");
    place
}

fn ask(place: &Place, session: &str) {
    place.output(&["run", "pay", "--session", session, "--agent", "clerk.toml", "--script", "script.txt"]);
}

fn work(place: &Place) -> String {
    place.show(&place.output(&["work", "--agent", "clerk.toml", "--script", "script.txt"]))
}

#[test]
fn inbox_shows_approval_details_and_approves_by_key() {
    let place = asked(r#"{"to": "joe", "euros": 500}"#);
    let mut screen = Screen::open(&place, &["approvals", "--by", "ann"]);
    let shown = flat(&screen.until("cost so far"));
    for line in [
        "tool: pay",
        r#"arguments: {"euros":500,"to":"joe"}"#,
        "why: rule `large` requires approval by ann or bob until",
        "policy: ",
        "cost so far: $0",
        "session: ses_",
        "turn: trn_",
    ] {
        assert!(shown.contains(line), "`{line}` is not in:\n{shown}");
    }
    screen.press("a");
    screen.until("decided: ann approved it");
    screen.until("nothing waits for an approval");
    screen.leave();
    assert!(work(&place).contains("turn.ended answered"));
}

#[test]
fn inbox_escapes_hidden_characters_in_arguments() {
    let place = asked(r#"{"to": "joe\u202eeve\u200b\u001b[2J", "euros": 500}"#);
    let mut screen = Screen::open(&place, &["approvals", "--by", "ann"]);
    let shown = flat(&screen.until("arguments: "));
    assert!(shown.contains(r#""joe\u{202e}eve\u{200b}\u001b[2J""#), "{shown}");
    screen.leave();
}

#[test]
fn inbox_denial_reason_reaches_the_model() {
    let place = asked(r#"{"to": "joe", "euros": 500}"#);
    let mut screen = Screen::open(&place, &["approvals", "--by", "bob"]);
    screen.until("tool: pay");
    screen.press("d");
    screen.until("why not?");
    screen.press("\rnot this month\r");
    screen.until("decided: bob denied it: not this month");
    screen.leave();
    assert!(work(&place).contains("approval.denied: bob said no: not this month"));
}

#[test]
fn inbox_validates_edited_arguments_against_the_schema() {
    let place = asked(r#"{"to": "joe", "euros": 500}"#);
    place.write_program("wrong.sh", r#"sed -i 's/500/"much"/' "$1""#);
    place.write_program("broken.sh", r#"echo nonsense > "$1""#);
    place.write_program("right.sh", r#"sed -i 's/500/50/' "$1""#);
    for (editor, message) in [
        ("true", "the arguments were not changed, so nothing was decided"),
        ("./broken.sh", "the edited text is not valid JSON"),
        ("./wrong.sh", "tool.args_invalid"),
        ("./right.sh", "decided: ann approved it as"),
    ] {
        place.set("EDITOR", editor);
        let mut screen = Screen::open(&place, &["approvals", "--by", "ann"]);
        screen.until("tool: pay");
        screen.press("e");
        screen.until(message);
        screen.leave();
    }
    work(&place);
    assert_eq!(std::fs::read_to_string(place.path().join("paid")).unwrap(), r#"{"euros":50,"to":"joe"}"#);
}

#[test]
fn inbox_selects_approvals_and_approves_for_session() {
    let place = asked(r#"{"to": "joe", "euros": 500}"#);
    ask(&place, "t");
    let mut screen = Screen::open(&place, &["approvals", "--by", "ann"]);
    let first = screen.until("2 calls wait for an approval; you are ann");
    screen.press("j");
    let title = |shown: &str| shown.lines().nth(1).unwrap_or_default().to_owned();
    let before = title(&first);
    screen.press("?");
    screen.until("Any key closes this.");
    screen.press("x");
    let second = screen.until("tool: pay");
    assert_ne!(title(&second), before);
    screen.press("s");
    screen.until("decided: ann approved it, and calls like it in this session");
    screen.until("1 call waits");
    // The selected question is decided. No key decides the next one unseen.
    screen.press("a");
    screen.until("no call is selected");
    screen.leave();
    assert!(place.show(&place.output(&["approvals", "grants"])).contains("given TIME by ann"));
}

#[test]
fn inbox_prints_a_list_without_a_terminal() {
    let place = asked(r#"{"to": "joe", "euros": 500}"#);
    for args in [&["approvals"][..], &["approvals", "--list"], &["approvals", "list"]] {
        assert!(place.show(&place.output(args)).contains("pay {\"euros\":500,\"to\":\"joe\"}"));
    }
    let mut screen = Screen::open(&place, &["approvals", "--list"]);
    screen.until("then: outlast approvals approve ID");
    assert!(screen.child.wait().unwrap().success());
}
