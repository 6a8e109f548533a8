//! Parses a script line by line. An error names the line, what was expected and what was found.
use super::template::{ScriptTemplate, check_json};
use super::{
    FaultTimes, SCRIPT_BYTES, Script, ScriptAction, ScriptFault, ScriptLine, ScriptSection, ScriptWindow,
};
use outlast_vocab::effect::StopReason;
use outlast_vocab::message::{ToolName, shown};
use outlast_vocab::{Error, Kind};
use serde_json::Value;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

const ACTION_WORDS: &str =
    "window, turn, when, any, ---, say, think, call, broken, delay, error, cut, stall, refuse or length";

/// Parses a whole script.
pub(super) fn script(text: &str) -> Result<Script, Error> {
    if text.len() > SCRIPT_BYTES {
        return Err(invalid(format!("expected at most {SCRIPT_BYTES} bytes, found more")));
    }
    let mut parser = ScriptParser { script: Script::default(), open: None };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let begun = parser.line(number, line).map_err(|what| invalid(format!("line {number}: {what}")))?;
        if let Some(input) = begun {
            parser.close()?;
            parser.open = Some(OpenSection::at(number, input));
        }
    }
    parser.close()?;
    let Script { turns, conditional_sections: whens, default_section: any, .. } = &parser.script;
    if turns.is_empty() && whens.is_empty() && any.is_none() {
        return Err(invalid("expected at least one line, found none".into()));
    }
    Ok(parser.script)
}

fn invalid(what: String) -> Error {
    Error::new(Kind::ScriptInvalid, what)
}

struct ScriptParser {
    script: Script,
    open: Option<OpenSection>,
}

/// The section that is being parsed.
struct OpenSection {
    input: SectionInput,
    section: ScriptSection,
    /// The line that started its last reply.
    reply_line: usize,
}

/// The input that a section is for.
enum SectionInput {
    Next,
    Containing(String),
    Any,
}

impl ScriptParser {
    /// Parses a line. If it starts a section, returns the section's input.
    fn line(&mut self, number: usize, line: &str) -> Result<Option<SectionInput>, String> {
        let (word, rest) = first_word(line);
        match word {
            "window" => {
                let bytes =
                    rest.parse().map_err(|_| format!("expected `window BYTES`, found `{}`", shown(line)))?;
                self.script.window = Some(ScriptWindow::of(bytes));
                Ok(None)
            }
            "turn" => expect_nothing_after(word, rest).map(|()| Some(SectionInput::Next)),
            "any" => expect_nothing_after(word, rest).map(|()| Some(SectionInput::Any)),
            "when" if rest.is_empty() => Err("expected a text after `when`, found nothing".into()),
            "when" => Ok(Some(SectionInput::Containing(rest.to_lowercase()))),
            "---" => {
                expect_nothing_after(word, rest)?;
                let open = self.open.as_mut().filter(|open| open.section.last().is_some());
                let open = open.ok_or("expected a reply of at least one line before `---`, found none")?;
                open.section.replies.push(Vec::new());
                open.reply_line = number;
                Ok(None)
            }
            _ => {
                let acts = parse_action(number, word, rest)?;
                let open = self.open.get_or_insert_with(|| OpenSection::at(number, SectionInput::Next));
                acts.into_iter().flatten().try_for_each(|act| open.section.push(number, act))?;
                Ok(None)
            }
        }
    }

    fn close(&mut self) -> Result<(), Error> {
        let Some(OpenSection { input, section, reply_line: reply_at }) = self.open.take() else {
            return Ok(());
        };
        if section.last().is_none() {
            return Err(invalid(format!(
                "line {reply_at}: expected a reply of at least one line after it, found none"
            )));
        }
        match input {
            SectionInput::Next => self.script.turns.push(section),
            SectionInput::Containing(text) => self.script.conditional_sections.push((text, section)),
            SectionInput::Any => match &self.script.default_section {
                None => self.script.default_section = Some(section),
                Some(first) => {
                    let (line, first) = (section.line, first.line);
                    return Err(invalid(format!(
                        "line {line}: expected one `any`, found another at line {first}"
                    )));
                }
            },
        }
        Ok(())
    }
}

impl OpenSection {
    fn at(line: usize, input: SectionInput) -> Self {
        Self { input, section: ScriptSection { line, replies: vec![Vec::new()] }, reply_line: line }
    }
}

impl ScriptSection {
    fn last(&self) -> Option<&ScriptLine> {
        self.replies.last().and_then(|reply| reply.last())
    }

    fn push(&mut self, number: usize, act: ScriptAction) -> Result<(), String> {
        if let Some(ScriptLine { number, .. }) = self.last().filter(|line| line.action.is_final()) {
            return Err(format!("expected `---` or the next section, because line {number} ends the reply"));
        }
        let reply = self.replies.last_mut().expect("a section has a reply from its beginning");
        let spoke = reply.iter().any(|line| matches!(line.action, ScriptAction::Say(_)));
        let act = match act {
            ScriptAction::Say(text) if spoke => ScriptAction::Say(text.on_a_new_line()),
            act => act,
        };
        match (reply.last_mut(), act) {
            (Some(ScriptLine { action: ScriptAction::Say(said), .. }), ScriptAction::Say(more)) => {
                said.append(more);
            }
            (_, act) => reply.push(ScriptLine { number, action: act }),
        }
        Ok(())
    }
}

impl ScriptAction {
    fn is_final(&self) -> bool {
        matches!(self, Self::Stop(_) | Self::Fault { times: FaultTimes::Always, .. })
    }
}

/// Parses the action of a line: one, or two for a refusal.
fn parse_action(number: usize, word: &str, rest: &str) -> Result<[Option<ScriptAction>; 2], String> {
    let act = match word {
        "say" => ScriptAction::Say(ScriptTemplate::parse(rest)?),
        "think" => ScriptAction::Think(ScriptTemplate::parse(rest)?),
        "call" => {
            let (tool, arguments) = tool(rest)?;
            ScriptAction::Call { arguments: json(&tool, arguments)?, tool }
        }
        "broken" => {
            let (tool, arguments) = tool(rest)?;
            ScriptAction::MalformedCall { tool, arguments: arguments.to_owned() }
        }
        "delay" => ScriptAction::Delay(parse_duration(rest)?),
        "error" => {
            let (times, rest) = parse_times(rest)?;
            ScriptAction::Fault { fault: parse_error(number, rest)?, times }
        }
        "cut" | "stall" => {
            let (times, rest) = parse_times(rest)?;
            expect_nothing_after(word, rest)?;
            ScriptAction::Fault {
                fault: if word == "cut" { ScriptFault::Cut } else { ScriptFault::Stall },
                times,
            }
        }
        "refuse" => {
            return Ok([
                Some(ScriptAction::Say(ScriptTemplate::parse(rest)?)),
                Some(ScriptAction::Stop(StopReason::Refusal)),
            ]);
        }
        "length" => expect_nothing_after(word, rest).map(|()| ScriptAction::Stop(StopReason::Length))?,
        _ => return Err(format!("expected {ACTION_WORDS}, found `{}`", shown(word))),
    };
    Ok([Some(act), None])
}

fn first_word(text: &str) -> (&str, &str) {
    text.split_once(char::is_whitespace).map_or((text, ""), |(word, rest)| (word, rest.trim_start()))
}

fn expect_nothing_after(word: &str, rest: &str) -> Result<(), String> {
    if rest.is_empty() {
        return Ok(());
    }
    Err(format!("expected nothing after `{word}`, found `{}`", shown(rest)))
}

fn tool(rest: &str) -> Result<(ToolName, &str), String> {
    let (name, arguments) = first_word(rest);
    let tool = name.parse().map_err(|error: Error| error.detail().to_owned())?;
    Ok((tool, arguments))
}

fn json(tool: &ToolName, text: &str) -> Result<Value, String> {
    let expected = format!("expected arguments of `{tool}` as a JSON object, found `{}`", shown(text));
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => check_json(&value).map(|()| value),
        Ok(_) => Err(expected),
        Err(cause) => {
            // The JSON is one line of the script, so the parser's own line number would mislead.
            let (cause, column) = (cause.to_string(), cause.column());
            let what = cause.split(" at line ").next().unwrap_or_default();
            Err(format!("{expected} ({what} at column {column} of the arguments)"))
        }
    }
}

fn parse_times(rest: &str) -> Result<(FaultTimes, &str), String> {
    let (first, after) = first_word(rest);
    if first == "once" {
        return Ok((FaultTimes::Left(AtomicU32::new(1)), after));
    }
    if !first.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok((FaultTimes::Always, rest));
    }
    let (second, after) = first_word(after);
    match (first.parse(), second) {
        (Ok(times), "times") => Ok((FaultTimes::Left(AtomicU32::new(times)), after)),
        _ => Err(format!("expected `once` or `N times`, found `{}`", shown(rest))),
    }
}

fn parse_error(number: usize, rest: &str) -> Result<ScriptFault, String> {
    let (code, rest) = first_word(rest);
    let kind = code
        .parse()
        .map_err(|_| format!("expected an error code like `model.unavailable`, found `{}`", shown(code)))?;
    let (retry_after, detail) = match first_word(rest) {
        ("retry-after", rest) => {
            let (pause, detail) = first_word(rest);
            (Some(parse_duration(pause)?), detail)
        }
        _ => (None, rest),
    };
    let detail = if detail.is_empty() { format!("line {number} of the script") } else { detail.to_owned() };
    Ok(ScriptFault::Error { kind, retry_after, detail })
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => 0,
    };
    let length = number.parse::<u32>().ok().filter(|_| ms > 0);
    length
        .map(|number| Duration::from_millis(u64::from(number) * ms))
        .ok_or_else(|| format!("expected a time like `50ms`, `2s` or `1m`, found `{}`", shown(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn parse_error_names_line_expectation_and_input() {
        let wrong = [
            "",
            "# only a comment",
            "say hi\nsya ho",
            "turn now\nsay hi",
            "turn",
            "turn\nturn\nsay hi",
            "when\nsay hi",
            "---\nsay hi",
            "say hi\n---",
            "say hi\n---\n---\nsay ho",
            "any\nsay a\nany\nsay b",
            "call",
            "call read file {}",
            "call pay {to: 1}",
            "call pay [1]",
            "call pay {\"to\": [\"{{who}}\"]}",
            "say {{result}}",
            "say {{result pay amount}}",
            "say {{input",
            "delay soon",
            "delay 5",
            "delay 99999999999s",
            "error",
            "error no.such",
            "error 2 model.cut",
            "error model.cut retry-after x",
            "cut twice",
            "cut\nsay hi",
            "refuse no\nsay hi",
            "length 5",
        ];
        let log: Vec<String> = wrong
            .iter()
            .map(|text| format!("{text:?}\n  {}\n", text.parse::<Script>().unwrap_err()))
            .collect();
        expect![[r##"
            ""
              script.invalid: expected at least one line, found none
            "# only a comment"
              script.invalid: expected at least one line, found none
            "say hi\nsya ho"
              script.invalid: line 2: expected window, turn, when, any, ---, say, think, call, broken, delay, error, cut, stall, refuse or length, found `sya`
            "turn now\nsay hi"
              script.invalid: line 1: expected nothing after `turn`, found `now`
            "turn"
              script.invalid: line 1: expected a reply of at least one line after it, found none
            "turn\nturn\nsay hi"
              script.invalid: line 1: expected a reply of at least one line after it, found none
            "when\nsay hi"
              script.invalid: line 1: expected a text after `when`, found nothing
            "---\nsay hi"
              script.invalid: line 1: expected a reply of at least one line before `---`, found none
            "say hi\n---"
              script.invalid: line 2: expected a reply of at least one line after it, found none
            "say hi\n---\n---\nsay ho"
              script.invalid: line 3: expected a reply of at least one line before `---`, found none
            "any\nsay a\nany\nsay b"
              script.invalid: line 3: expected one `any`, found another at line 1
            "call"
              script.invalid: line 1: expected a tool name (letters, digits, `_`, `-`, `.`) of 1 to 64 bytes, got ``
            "call read file {}"
              script.invalid: line 1: expected arguments of `read` as a JSON object, found `file {}` (expected ident at column 2 of the arguments)
            "call pay {to: 1}"
              script.invalid: line 1: expected arguments of `pay` as a JSON object, found `{to: 1}` (key must be a string at column 2 of the arguments)
            "call pay [1]"
              script.invalid: line 1: expected arguments of `pay` as a JSON object, found `[1]`
            "call pay {\"to\": [\"{{who}}\"]}"
              script.invalid: line 1: expected `input`, `result TOOL` or `result N` between `{{` and `}}`, found `who`
            "say {{result}}"
              script.invalid: line 1: expected `input`, `result TOOL` or `result N` between `{{` and `}}`, found `result`
            "say {{result pay amount}}"
              script.invalid: line 1: expected `input`, `result TOOL` or `result N` between `{{` and `}}`, found `result pay amount`
            "say {{input"
              script.invalid: line 1: expected `}}` after `{{`, found `input`
            "delay soon"
              script.invalid: line 1: expected a time like `50ms`, `2s` or `1m`, found `soon`
            "delay 5"
              script.invalid: line 1: expected a time like `50ms`, `2s` or `1m`, found `5`
            "delay 99999999999s"
              script.invalid: line 1: expected a time like `50ms`, `2s` or `1m`, found `99999999999s`
            "error"
              script.invalid: line 1: expected an error code like `model.unavailable`, found ``
            "error no.such"
              script.invalid: line 1: expected an error code like `model.unavailable`, found `no.such`
            "error 2 model.cut"
              script.invalid: line 1: expected `once` or `N times`, found `2 model.cut`
            "error model.cut retry-after x"
              script.invalid: line 1: expected a time like `50ms`, `2s` or `1m`, found `x`
            "cut twice"
              script.invalid: line 1: expected nothing after `cut`, found `twice`
            "cut\nsay hi"
              script.invalid: line 2: expected `---` or the next section, because line 1 ends the reply
            "refuse no\nsay hi"
              script.invalid: line 2: expected `---` or the next section, because line 1 ends the reply
            "length 5"
              script.invalid: line 1: expected nothing after `length`, found `5`
        "##]].assert_eq(&log.concat());
    }
}
