//! Scripts for the rehearsal model, which define its reply to each model call.
//!
//! ```text
//! # A script is lines. Blank lines and lines that begin with `#` mean nothing.
//! turn
//! say I will look that up.
//! call clock {}
//! call pay {"to": "ann", "note": "{{input}}"}
//! ---
//! delay 50ms
//! say It is {{result clock}}.
//! say The receipt is {{result pay /receipt}}.
//!
//! when refund
//! error 2 times model.unavailable retry-after 2s the provider is busy
//! say Refunds take a week.
//!
//! any
//! say I have nothing to add.
//! ```
//!
//! # Sections
//!
//! A section starts with one of these lines and contains the replies to one input:
//!
//! | line | the input it is for |
//! |---|---|
//! | `turn` | the next input without a matching `when`: the first `turn` is for the first such input, and so on |
//! | `when TEXT` | every input that contains this text, ignoring case; the first match wins and precedes `turn` |
//! | `any` | every input without another section; at most one `any` is allowed |
//!
//! A line `window BYTES` gives the model a small context window: a request over this size fails with
//! `model.context_exceeded`. As for a real server, the window is known only after that.
//!
//! Lines before the first section are a `turn`. Within a section, `---` separates replies. The first reply answers the
//! input, the next one follows the tools of the first, and so on. An input that joins a running turn is an input like
//! any other: it has its own section, and the rest of the previous section is not played.
//!
//! # Lines of a reply
//!
//! | line | what the model does |
//! |---|---|
//! | `say TEXT` | emits text word by word; each further `say` of a reply starts a new line |
//! | `think TEXT` | emits reasoning |
//! | `call TOOL JSON` | calls a tool; the arguments are a JSON object |
//! | `broken TOOL TEXT` | calls a tool with arguments that are not JSON |
//! | `delay TIME` | pauses: `50ms`, `2s`, `1m` |
//! | `error [HOW OFTEN] CODE [retry-after TIME] [TEXT]` | fails with this code; as the first line, before the first
//! event |
//! | `cut [HOW OFTEN]` | ends the stream abruptly |
//! | `stall [HOW OFTEN]` | stops sending but keeps the stream open |
//! | `refuse TEXT` | emits this text and stops with a refusal |
//! | `length` | stops because it ran out of tokens |
//!
//! A reply ends after its last line. Nothing may follow `refuse`, `length`, or an unconditional `error`, `cut` or
//! `stall`.
//!
//! `HOW OFTEN` is `once` or `N times`: that many model calls of this process fail there, and later ones skip the line.
//! This is the only state of a script, because the attempts of a model call have the same messages. A new process
//! starts counting again.
//!
//! # Placeholders
//!
//! In `say`, `think`, `refuse` and inside the strings of a call's JSON:
//!
//! | placeholder | value |
//! |---|---|
//! | `{{input}}` | the text of the last input |
//! | `{{result TOOL}}` | the latest result of this tool in this turn |
//! | `{{result N}}` | the N-th result of this turn, counted from 0 |
//! | `{{result TOOL /PATH}}` | a part of a result, by JSON pointer; also after `N` |
//!
//! A result has the form that the model sees: text unchanged, anything else as JSON, a failure with its code. If a
//! string in a call consists of a single result placeholder, it becomes the result itself, so a number stays a number.
//!
//! # Which reply is next
//!
//! The next reply only depends on the messages of the request, so a turn that another process resumes continues with
//! the right reply. `turn` counts the inputs of the session, so the session has to fit into the model's window
//! ([`super::Rehearsal::with_window`]). `when` and `any` only use the last input.
//!
//! If the session lacks something that the script needs (a tool, a result, or a reply beyond the end of the section),
//! the call fails with `script.mismatch` before the first event. A script that cannot be parsed fails with
//! `script.invalid` before the first turn.
mod parse;
mod template;

use super::reply_actions::ReplyAction;
use super::reply_draft::ReplyDraft;
use outlast_ports::model::{ModelRequest, TOKEN_BYTES};
use outlast_vocab::effect::StopReason;
use outlast_vocab::message::{CallArguments, Message, ToolName, shown};
use outlast_vocab::tool::ToolContract;
use outlast_vocab::{Error, Kind};
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use template::{ScriptTemplate, ScriptView};

/// The maximum size of a script in bytes.
pub const SCRIPT_BYTES: usize = 1 << 20;

/// A script of the rehearsal model. Parse it from text, or read a file with [`Script::read`].
#[derive(Debug, Default)]
pub struct Script {
    turns: Vec<ScriptSection>,
    /// The texts are in lower case.
    conditional_sections: Vec<(String, ScriptSection)>,
    default_section: Option<ScriptSection>,
    window: Option<ScriptWindow>,
}

/// The context window of a script.
#[derive(Debug)]
struct ScriptWindow {
    bytes: usize,
    /// Whether a request was rejected.
    is_known: AtomicBool,
}

impl ScriptWindow {
    fn of(bytes: usize) -> Self {
        Self { bytes, is_known: AtomicBool::new(false) }
    }

    /// Rejects a request that is too long, in the words of llama.cpp.
    fn check(&self, request: &ModelRequest<'_>) -> Result<(), Error> {
        let bytes = request.system.len() + request.messages().map(Message::size).sum::<usize>();
        if bytes <= self.bytes {
            return Ok(());
        }
        self.is_known.store(true, Ordering::Relaxed);
        let (tokens, window) = (bytes / TOKEN_BYTES, self.bytes / TOKEN_BYTES);
        let detail = format!(
            "request ({tokens} tokens) exceeds the available context size ({window} tokens), try increasing it"
        );
        Err(Error::new(Kind::ModelContextExceeded, detail))
    }
}

/// The replies to one input.
#[derive(Debug)]
struct ScriptSection {
    /// The line where it starts.
    line: usize,
    replies: Vec<Vec<ScriptLine>>,
}

#[derive(Debug)]
struct ScriptLine {
    number: usize,
    action: ScriptAction,
}

#[derive(Debug)]
enum ScriptAction {
    Say(ScriptTemplate),
    Think(ScriptTemplate),
    Call { tool: ToolName, arguments: Value },
    MalformedCall { tool: ToolName, arguments: String },
    Delay(Duration),
    Fault { fault: ScriptFault, times: FaultTimes },
    Stop(StopReason),
}

#[derive(Debug)]
enum ScriptFault {
    Error { kind: Kind, retry_after: Option<Duration>, detail: String },
    Cut,
    Stall,
}

#[derive(Debug)]
enum FaultTimes {
    Always,
    /// The number left in this process.
    Left(AtomicU32),
}

impl FromStr for Script {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse::script(text)
    }
}

impl Script {
    /// Reads a script from a file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let place = path.display();
        let mut bytes = Vec::new();
        let most = SCRIPT_BYTES as u64 + 1;
        File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)).map_err(|cause| {
            Error::new(Kind::IoFailed, format!("the script {place} cannot be read: {cause}")).because(cause)
        })?;
        let text = String::from_utf8(bytes).map_err(|cause| {
            Error::new(Kind::ScriptInvalid, format!("{place}: expected UTF-8 text: {cause}"))
        })?;
        text.parse().map_err(|error: Error| Error::new(error.kind(), format!("{place}: {}", error.detail())))
    }

    /// Returns the context window in bytes, if a request has exceeded it.
    pub(super) fn known_window(&self) -> Option<usize> {
        self.window
            .as_ref()
            .filter(|window| window.is_known.load(Ordering::Relaxed))
            .map(|window| window.bytes)
    }

    /// Returns the reply to this request.
    pub(super) fn reply<'a>(&'a self, request: ModelRequest<'a>) -> Result<Vec<ReplyAction<'a>>, Error> {
        self.window.as_ref().map_or(Ok(()), |window| window.check(&request))?;
        let scene = ScriptView::of(&request)?;
        let section = self.section(&request, scene.input)?;
        let lines = section.replies.get(scene.replies).ok_or_else(|| {
            let (has, wants) = (section.replies.len(), scene.replies + 1);
            let input = scene.input.text();
            mismatch(
                section.line,
                &format!("has {has} replies to `{}`, but the session asks for reply {wants}", shown(&input)),
            )
        })?;
        run_action(lines, &scene, request)
    }

    fn section(&self, request: &ModelRequest<'_>, input: &Message) -> Result<&ScriptSection, Error> {
        if let Some(section) = self.when(input) {
            return Ok(section);
        }
        // Counting reads the whole conversation, so skip it for a script without `turn`.
        let counted =
            || request.messages().filter(|message| is_input(message) && self.when(message).is_none());
        let turn = match self.turns.as_slice() {
            [] => None,
            turns => turns.get(counted().count() - 1),
        };
        turn.or(self.default_section.as_ref()).ok_or_else(|| {
            let (has, number, input) = (self.turns.len(), counted().count(), input.text());
            let input = shown(&input);
            let detail =
                format!("input {number} (`{input}`) has no section: there are {has} `turn` and no `any`");
            Error::new(Kind::ScriptMismatch, detail)
        })
    }

    fn when(&self, input: &Message) -> Option<&ScriptSection> {
        if self.conditional_sections.is_empty() {
            return None;
        }
        let input = input.text().to_lowercase();
        self.conditional_sections.iter().find(|(text, _)| input.contains(text)).map(|(_, section)| section)
    }
}

fn is_input(message: &Message) -> bool {
    matches!(message, Message::User { .. })
}

fn mismatch(line: usize, what: &str) -> Error {
    Error::new(Kind::ScriptMismatch, format!("line {line} {what}"))
}

fn run_action<'a>(
    lines: &'a [ScriptLine],
    scene: &ScriptView<'a>,
    request: ModelRequest<'a>,
) -> Result<Vec<ReplyAction<'a>>, Error> {
    let mut draft = ReplyDraft::new(request);
    for ScriptLine { number, action: act } in lines {
        let missing = |what: String| mismatch(*number, &what);
        match act {
            ScriptAction::Say(text) => draft.say(text.fill(scene).map_err(missing)?),
            ScriptAction::Think(text) => draft.think(text.fill(scene).map_err(missing)?.into_owned()),
            ScriptAction::Call { tool, arguments } => {
                let arguments = template::fill_json(arguments, scene).map_err(missing)?;
                check_offered(tool, request.tools).map_err(missing)?;
                draft.call(tool.clone(), CallArguments::Json(arguments));
            }
            ScriptAction::MalformedCall { tool, arguments } => {
                check_offered(tool, request.tools).map_err(missing)?;
                draft.call(tool.clone(), CallArguments::Broken(arguments.clone()));
            }
            ScriptAction::Delay(pause) => draft.push_action(ReplyAction::Pause(*pause)),
            ScriptAction::Fault { fault, times } if times.take() => {
                match fault {
                    ScriptFault::Error { kind, retry_after, detail } => {
                        let error = Error::new(*kind, detail);
                        draft.push_action(ReplyAction::Fail(match retry_after {
                            Some(pause) => error.retry_after(*pause),
                            None => error,
                        }));
                    }
                    ScriptFault::Stall => draft.push_action(ReplyAction::Stall),
                    ScriptFault::Cut => {}
                }
                return Ok(draft.into_cut_reply());
            }
            ScriptAction::Fault { .. } => {}
            ScriptAction::Stop(reason) => return Ok(draft.into_stopped_reply(*reason)),
        }
    }
    Ok(draft.into_reply())
}

fn check_offered(tool: &ToolName, tools: &[ToolContract]) -> Result<(), String> {
    if tools.iter().any(|contract| contract.name == *tool) {
        return Ok(());
    }
    let names: Vec<&str> = tools.iter().map(|contract| contract.name.as_str()).collect();
    Err(match names.as_slice() {
        [] => format!("calls `{tool}`, but the session has no tools"),
        names => format!("calls `{tool}`, but the session has only: {}", names.join(", ")),
    })
}

impl FaultTimes {
    /// Returns whether the fault happens this time.
    fn take(&self) -> bool {
        match self {
            Self::Always => true,
            Self::Left(left) => {
                let less = |left: u32| left.checked_sub(1);
                left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rehearsal;
    use super::super::test_conversation::TestConversation;
    use super::*;
    use expect_test::{Expect, expect};
    use outlast_ports::clock::VirtualClock;
    use outlast_ports::model::ModelProvider;
    use outlast_vocab::Millis;
    use serde_json::json;
    use std::sync::Arc;

    fn scripted(script: &str) -> Rehearsal {
        Rehearsal::scripted(script.parse().unwrap(), Arc::new(VirtualClock::at(Millis(0))))
    }

    #[track_caller]
    fn check(script: &str, stage: &TestConversation, want: &Expect) {
        want.assert_eq(&stage.reply_text(&scripted(script)));
    }

    #[test]
    fn reply_parts_follow_script_line_order() {
        let script = "think hm\nsay a b\nsay c\ncall clock {\"zone\": \"utc\"}\nbroken pay {\"to\nsay d";
        check(
            script,
            &TestConversation::new().tools(&["clock", "pay"]).user("hi"),
            &expect![[r#"
                think "hm"
                text "a b\nc"
                call_0 clock {"zone":"utc"}
                call_1 pay broken "{\"to"
                text "\nd"
                usage 9 -> 9
                end ToolUse
            "#]],
        );
    }

    #[test]
    fn placeholders_insert_results_and_input() {
        let script = r#"
            call pay {}
            ---
            say {{input}}: {{result pay /amount}} of {{result 0}}, {{result log}}
            call log {"text": "paid {{result pay /amount}}", "amount": "{{result pay /amount}}", "all": ["{{result 0}}"]}
        "#;
        let results =
            [("pay", json!({}), Ok(json!({"amount": 5}))), ("log", json!({}), Err("the disk is full"))];
        check(
            script,
            &TestConversation::new().tools(&["log"]).user("pay").called(&results),
            &expect![[r#"
                text "pay: 5 of {\"amount\":5}, error tool.failed: the disk is full"
                call_2 log {"all":[{"amount":5}],"amount":5,"text":"paid 5"}
                usage 44 -> 31
                end ToolUse
            "#]],
        );
    }

    #[test]
    fn each_input_uses_its_own_script_section() {
        let script = "say one\n---\nsay one more\nturn\nsay two\nwhen HELP\nsay helped\nany\nsay whatever";
        let hear =
            |stage: &TestConversation| stage.reply_text(&scripted(script)).lines().next().unwrap().to_owned();
        let first = TestConversation::new().user("a");
        assert_eq!(hear(&first), r#"text "one""#);
        let first = first.called(&[("clock", json!({}), Ok(json!(1)))]);
        assert_eq!(hear(&first), r#"text "one more""#);
        let helped = first.end_turn().user("please help");
        assert_eq!(hear(&helped), r#"text "helped""#);
        // The first turn failed and has no reply, but its input still counts.
        let second = TestConversation::new()
            .user("a")
            .end_turn()
            .user("help")
            .assistant("helped")
            .end_turn()
            .user("b");
        assert_eq!(hear(&second), r#"text "two""#);
        // An input that joins a running turn starts its own section.
        let joined = TestConversation::new().user("a").called(&[]).user("b");
        assert_eq!(hear(&joined), r#"text "two""#);
        assert_eq!(hear(&second.assistant("two").end_turn().user("c")), r#"text "whatever""#);
    }

    #[test]
    fn script_mismatch_is_reported_before_any_output() {
        let script =
            "say a\ncall clock {}\n---\nsay {{result pay}}\n---\nsay {{result 0 /x}}\n---\nsay {{result 3}}";
        let mut log = String::new();
        let rehearsal = scripted(script);
        let mut stage = TestConversation::new().user("go");
        log += &stage.reply_text(&rehearsal);
        stage = stage.tools(&["pay", "log"]);
        log += &stage.reply_text(&rehearsal);
        for _ in 0..4 {
            stage = stage.called(&[("clock", json!({}), Ok(json!("noon")))]);
            log += &stage.reply_text(&rehearsal);
        }
        log += &stage.end_turn().user("again").reply_text(&rehearsal);
        expect![[r"
            error script.mismatch: line 2 calls `clock`, but the session has no tools
            error script.mismatch: line 2 calls `clock`, but the session has only: pay, log
            error script.mismatch: line 4 wants a result of `pay`, but the turn has only: clock
            error script.mismatch: line 6 wants `/x` of a result, but the result is `noon`
            error script.mismatch: line 8 wants result 3 of the turn, counted from 0, but the turn has 3
            error script.mismatch: line 1 has 4 replies to `go`, but the session asks for reply 5
            error script.mismatch: input 2 (`again`) has no section: there are 1 `turn` and no `any`
        "]]
        .assert_eq(&log);
    }

    #[test]
    fn counted_faults_end_and_the_reply_continues() {
        let script = "error 2 times model.unavailable retry-after 2s busy\nsay half\ncut once\nsay whole";
        let rehearsal = scripted(script);
        let stage = TestConversation::new().user("hi");
        let log: Vec<String> =
            (1..=4).map(|attempt| format!("{attempt}\n{}", stage.reply_text(&rehearsal))).collect();
        expect![[r#"
            1
            error model.unavailable: busy retry after 2s
            2
            error model.unavailable: busy retry after 2s
            3
            text "half"
            4
            text "half\nwhole"
            usage 9 -> 3
            end End
        "#]]
        .assert_eq(&log.concat());
    }

    #[test]
    fn reply_can_end_with_refusal_or_error() {
        let stage = TestConversation::new().user("hi");
        check(
            "say I\nrefuse No {{input}}.",
            &stage,
            &expect![[r#"
                text "I\nNo hi."
                usage 9 -> 2
                end Refusal
            "#]],
        );
        check(
            "say I\nlength",
            &stage,
            &expect![[r#"
                text "I"
                usage 9 -> 1
                end Length
            "#]],
        );
        check(
            "say I\ncut",
            &stage,
            &expect![[r#"
            text "I"
        "#]],
        );
        check(
            "say I\nerror model.rejected",
            &stage,
            &expect![[r#"
            text "I"
            error model.rejected: line 2 of the script
        "#]],
        );
    }

    #[test]
    fn call_ids_continue_across_the_conversation() {
        let stage = TestConversation::new().user("a").called(&[("log", json!({}), Ok(json!(1)))]).end_turn();
        let stage = stage.tools(&["log"]).user("b").called(&[("log", json!({}), Ok(json!(1)))]).user("c");
        check(
            "any\ncall log {}\ncall log {}",
            &stage,
            &expect![[r"
                call_2 log {}
                call_3 log {}
                usage 62 -> 3
                end ToolUse
            "]],
        );
    }

    #[test]
    fn longer_request_than_script_window_is_rejected() {
        let rehearsal = scripted("window 300\nany\nsay ok");
        let window = || rehearsal.info(&"rehearsal/x".parse().unwrap()).unwrap().window_bytes;
        let long = TestConversation::new().user(&"x".repeat(500));
        assert_eq!(window(), 64 << 10);
        expect![[r"
            error model.context_exceeded: request (177 tokens) exceeds the available context size (100 tokens), try increasing it
        "]]
        .assert_eq(&long.reply_text(&rehearsal));
        assert_eq!(window(), 300);
        assert!(TestConversation::new().user("hi").reply_text(&rehearsal).starts_with("text \"ok\""));
    }

    #[test]
    fn script_file_errors_name_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.script");
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Script::read(&path)
                .map(drop)
                .map_err(|error| error.to_string().replace(path.to_str().unwrap(), "FILE"))
        };
        assert_eq!(read(b"say hi"), Ok(()));
        let wrong = [&b"say hi\r\ndelay\r\n"[..], b"say \xff", &vec![b'\n'; SCRIPT_BYTES + 1]];
        let log: String = wrong.iter().map(|bytes| read(bytes).unwrap_err() + "\n").collect();
        expect![[r"
            script.invalid: FILE: line 2: expected a time like `50ms`, `2s` or `1m`, found ``
            script.invalid: FILE: expected UTF-8 text: invalid utf-8 sequence of 1 bytes from index 4
            script.invalid: FILE: expected at most 1048576 bytes, found more
        "]]
        .assert_eq(&log);
        assert_eq!(Script::read(&dir.path().join("none")).unwrap_err().kind(), Kind::IoFailed);
    }
}
