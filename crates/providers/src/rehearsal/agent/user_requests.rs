//! Recognises a user's requests with a handful of rules.
use super::user_text::UserText;
use outlast_vocab::message::{ToolName, shown};
use serde_json::{Value, json};

/// The maximum number of requests found in one message.
const REQUESTS_MAX: usize = 16;

/// One request of a user.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UserRequest {
    /// A request for a tool.
    Use {
        /// The tool.
        tool: String,
        /// Its arguments.
        arguments: Value,
    },
    /// A remembered value, if one has this name. Any question may mean this.
    Recall {
        /// The name.
        name: String,
        /// The question.
        question: String,
    },
    /// A greeting.
    Greeting,
    /// Thanks.
    Thanks,
    /// A request for help.
    Help,
    /// A request that no rule matches.
    Unclear(String),
}

/// Returns the requests in a message, in order.
pub(super) fn parse_requests(text: &str) -> Vec<UserRequest> {
    let low = text.to_ascii_lowercase();
    let asks: Vec<UserRequest> =
        clauses(UserText { text, low: &low }.trim()).into_iter().map(parse_request).collect();
    if asks.is_empty() { vec![UserRequest::Help] } else { asks }
}

/// Words that do not affect the meaning.
const COURTESY: [&str; 16] = [
    "please ",
    "can you ",
    "could you ",
    "would you ",
    "will you ",
    "i want you to ",
    "tell me ",
    "now ",
    "also ",
    "and ",
    "then ",
    "so ",
    "ok ",
    "ok, ",
    "okay, ",
    "just ",
];

/// The words that a request starts with. "and" separates two requests only if one of these follows, so "add 2 and 3" is
/// one.
const OPENERS: [&str; 33] = [
    "what",
    "who is",
    "who are",
    "where is",
    "how much is",
    "which files",
    "add ",
    "sum ",
    "the sum of",
    "subtract ",
    "multiply ",
    "divide ",
    "calculate ",
    "compute ",
    "evaluate ",
    "remember ",
    "forget ",
    "recall ",
    "do you ",
    "read ",
    "show ",
    "open ",
    "cat ",
    "print ",
    "write ",
    "save ",
    "put ",
    "list ",
    "call ",
    "use ",
    "help",
    "thank",
    "tell me ",
];

/// Splits a message into requests. Quoted text and braces are kept together.
fn clauses(said: UserText<'_>) -> Vec<UserText<'_>> {
    let mut clauses = Vec::new();
    let (mut start, mut quoted, mut depth) = (0, false, 0_usize);
    for (at, c) in said.low.char_indices() {
        match c {
            _ if at < start => continue,
            '"' => quoted = !quoted,
            '{' if !quoted => depth += 1,
            '}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        if quoted || depth > 0 {
            continue;
        }
        let rest = &said.low[at + c.len_utf8()..];
        let next = match c {
            '\n' | ';' => Some(rest),
            '.' | '?' | '!' if rest.is_empty() || rest.starts_with(char::is_whitespace) => Some(rest),
            ' ' | ',' => after_joining_word(&said.low[at..]),
            _ => None,
        };
        if let Some(next) = next {
            clauses.push(said.to(at).from(start));
            start = said.low.len() - next.len();
        }
    }
    clauses.push(said.from(start));
    let clauses = clauses.into_iter().map(without_courtesy).filter(|clause| !clause.low.is_empty());
    clauses.take(REQUESTS_MAX).collect()
}

/// Returns the text after a joining word, if a request follows.
fn after_joining_word(low: &str) -> Option<&str> {
    let joints = [", and then ", " and then ", ", then ", ", and ", " and ", " then ", ", "];
    let next = joints.iter().find_map(|joint| low.strip_prefix(joint))?;
    starts_request(UserText { text: next, low: next }).then_some(next)
}

fn starts_request(said: UserText<'_>) -> bool {
    let low = said.without_prefixes(&COURTESY).low;
    OPENERS.iter().any(|opener| low.starts_with(opener))
}

/// Removes courtesies and punctuation from a clause, and a greeting before a request.
fn without_courtesy(clause: UserText<'_>) -> UserText<'_> {
    let clause = clause.trim().without_suffixes(&["?", "!", ".", ",", ":", " please"]);
    let greeted = clause.strip_prefix_of(&["hi ", "hello ", "hey "]).filter(|rest| starts_request(*rest));
    greeted.unwrap_or(clause).without_prefixes(&COURTESY)
}

fn parse_request(said: UserText<'_>) -> UserRequest {
    let rules: [fn(UserText<'_>) -> Option<UserRequest>; 12] = [
        by_name, forget, remember, write_file, list_files, read_file, arithmetic, time, recall_all,
        small_talk, help, recall,
    ];
    let understood = rules.iter().find_map(|rule| rule(said));
    understood.unwrap_or_else(|| UserRequest::Unclear(shown(said.text).into_owned()))
}

#[expect(clippy::unnecessary_wraps, reason = "every rule gives an option")]
fn use_tool(tool: &str, arguments: Value) -> Option<UserRequest> {
    Some(UserRequest::Use { tool: tool.to_owned(), arguments })
}

fn by_name(said: UserText<'_>) -> Option<UserRequest> {
    let rest = said.strip_prefix_of(&["call ", "use "])?.text;
    let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, "{}"));
    let tool: ToolName = name.parse().ok()?;
    let arguments: Value = serde_json::from_str(arguments).ok()?;
    arguments.is_object().then(|| UserRequest::Use { tool: tool.into(), arguments })
}

fn forget(said: UserText<'_>) -> Option<UserRequest> {
    let what = said.strip_prefix_of(&["forget that ", "forget about ", "forget "])?;
    use_tool("value_set", json!({"name": value_name(what), "value": null}))
}

fn remember(said: UserText<'_>) -> Option<UserRequest> {
    let fact = said.strip_prefix_of(&["remember that ", "remember: ", "remember ", "note that "])?;
    match fact.split_at_first(&[" is ", " are ", " = "]) {
        Some((name, value)) => {
            use_tool("value_set", json!({"name": value_name(name), "value": value.plain()}))
        }
        None => use_tool("value_set", json!({"name": fact.plain(), "value": true})),
    }
}

fn recall(said: UserText<'_>) -> Option<UserRequest> {
    let beginnings = [
        "what is ",
        "what's ",
        "what are ",
        "what was ",
        "who is ",
        "who's ",
        "where is ",
        "do you remember ",
        "do you know ",
        "recall ",
    ];
    let name = value_name(said.strip_prefix_of(&beginnings)?);
    Some(UserRequest::Recall { name, question: shown(said.text).into_owned() })
}

fn recall_all(said: UserText<'_>) -> Option<UserRequest> {
    let phrases =
        ["what do you remember", "what do you know", "you remember so far", "list values", "list the values"];
    phrases.iter().any(|phrase| said.low.contains(phrase)).then(|| use_tool("value_list", json!({})))?
}

/// Returns the name of a remembered value. "the tea" and "tea" have the same name.
fn value_name(said: UserText<'_>) -> String {
    said.without_prefixes(&["the ", "what ", "that "]).low.trim_matches(['"', '`']).to_owned()
}

fn write_file(said: UserText<'_>) -> Option<UserRequest> {
    let (content, path) =
        said.strip_prefix_of(&["write ", "save ", "put "])?.split_at_last(&[" to ", " into ", " in "])?;
    use_tool("file_write", json!({"path": file(path)?, "content": content.plain()}))
}

fn read_file(said: UserText<'_>) -> Option<UserRequest> {
    let beginnings =
        ["read ", "show me ", "show ", "open ", "cat ", "print ", "what is in ", "what's in ", "what does "];
    let rest =
        said.strip_prefix_of(&beginnings)?.without_prefixes(&["me ", "the contents of ", "contents of "]);
    use_tool("file_read", json!({"path": file(rest.without_suffixes(&[" say", " contain"]))?}))
}

fn list_files(said: UserText<'_>) -> Option<UserRequest> {
    let beginnings = [
        "list files",
        "list the files",
        "list all files",
        "list my files",
        "show files",
        "show me the files",
        "show the files",
        "what files",
        "which files",
    ];
    let rest = said.strip_prefix_of(&beginnings)?;
    let rest = rest.without_prefixes(&[
        "are there",
        "there are",
        "are",
        "do you have",
        "have you",
        "in ",
        "the ",
        "directory ",
        "folder ",
    ]);
    let folder = rest.without_suffixes(&[" directory", " folder"]).plain();
    if folder.contains(char::is_whitespace) {
        return None;
    }
    use_tool("file_list", if folder.is_empty() { json!({}) } else { json!({"path": folder}) })
}

/// Parses a path: quoted, after the word "file", or a word that looks like a path.
fn file(said: UserText<'_>) -> Option<String> {
    let said = said.without_prefixes(&["the "]);
    let announced = said.strip_prefix_of(&["file called ", "file named ", "file "]).or_else(|| {
        let bare = said.without_suffixes(&[" file"]);
        (bare.low.len() < said.low.len()).then_some(bare)
    });
    let path = announced.unwrap_or(said);
    if let Some(path) = path.quoted() {
        return Some(path.to_owned());
    }
    let one_word = !path.low.is_empty() && !path.low.contains(char::is_whitespace);
    (one_word && (announced.is_some() || path.low.contains(['.', '/']))).then(|| path.text.to_owned())
}

fn time(said: UserText<'_>) -> Option<UserRequest> {
    let phrases = [
        "what time",
        "the time",
        "time is it",
        "current time",
        "what date",
        "the date",
        "what day",
        "today's date",
    ];
    phrases.iter().any(|phrase| said.low.contains(phrase)).then(|| use_tool("clock", json!({})))?
}

fn arithmetic(said: UserText<'_>) -> Option<UserRequest> {
    let expression = spoken_expression(said).or_else(|| written_expression(said))?;
    use_tool("calculator", json!({"expression": expression}))
}

/// "add 2 and 3", "subtract 2 from 3", "multiply 2 by 3", "divide 6 by 3".
fn spoken_expression(said: UserText<'_>) -> Option<String> {
    let pair = |beginning: &str, joint: &str| {
        let (one, other) = said.strip_prefix_of(&[beginning])?.split_at_first(&[joint])?;
        Some((operand(one.low)?, operand(other.low)?))
    };
    if let Some(rest) =
        said.strip_prefix_of(&["add up ", "add ", "sum ", "the sum of ", "what is the sum of "])
    {
        let listed = rest.low.replace(" and ", ",").replace(" to ", ",").replace(" plus ", ",");
        let operands: Option<Vec<String>> = listed.split(',').map(operand).collect();
        return operands.filter(|operands| operands.len() > 1).map(|operands| operands.join(" + "));
    }
    if let Some((less, from)) = pair("subtract ", " from ") {
        return Some(format!("{from} - {less}"));
    }
    if let Some((one, other)) = pair("multiply ", " by ").or_else(|| pair("multiply ", " and ")) {
        return Some(format!("{one} * {other}"));
    }
    pair("divide ", " by ").map(|(one, other)| format!("{one} / {other}"))
}

/// Parses a number or an expression in parentheses.
fn operand(low: &str) -> Option<String> {
    let expression = with_operators(low.trim())?;
    let bare = expression.trim_start_matches('-').chars().all(|c| c.is_ascii_digit() || c == '.');
    Some(if bare { expression } else { format!("({expression})") })
}

/// Parses "calculate …", "what is …" with an expression, or only an expression.
fn written_expression(said: UserText<'_>) -> Option<String> {
    if let Some(rest) = said.strip_prefix_of(&["calculate ", "compute ", "evaluate "]) {
        return Some(with_operators(rest.low).unwrap_or_else(|| rest.text.to_owned()));
    }
    match said.strip_prefix_of(&["what is ", "what's ", "how much is "]) {
        Some(rest) => with_operators(rest.low),
        None => {
            with_operators(said.low).filter(|expression| expression.contains(['+', '-', '*', '/', '%', '^']))
        }
    }
}

/// Replaces words with operators, if the text then consists of numbers and operators only.
fn with_operators(low: &str) -> Option<String> {
    let words = [
        (" plus ", " + "),
        (" minus ", " - "),
        (" times ", " * "),
        (" multiplied by ", " * "),
        (" x ", " * "),
        (" divided by ", " / "),
        (" modulo ", " % "),
        (" mod ", " % "),
        (" to the power of ", " ^ "),
    ];
    let signs = words.iter().fold(low.to_owned(), |signs, (word, sign)| signs.replace(word, sign));
    let signs = signs.trim_end_matches([' ', '=']).to_owned();
    let fits = |c: char| c.is_ascii_digit() || " .+-*/%^()".contains(c);
    (signs.chars().all(fits) && signs.contains(|c: char| c.is_ascii_digit())).then_some(signs)
}

fn small_talk(said: UserText<'_>) -> Option<UserRequest> {
    let begins = |words: &[&str]| {
        words.iter().any(|word| {
            let rest = said.low.strip_prefix(word);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
        })
    };
    if begins(&["hi", "hello", "hey", "good morning", "good evening", "good day"]) {
        return Some(UserRequest::Greeting);
    }
    begins(&["thanks", "thank you", "thx"]).then_some(UserRequest::Thanks)
}

fn help(said: UserText<'_>) -> Option<UserRequest> {
    let phrases = [
        "help",
        "what can you do",
        "what can i ask",
        "who are you",
        "what are you",
        "what is your name",
        "what's your name",
    ];
    phrases.iter().any(|phrase| said.low.starts_with(phrase)).then_some(UserRequest::Help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    #[track_caller]
    fn check(messages: &[&str], want: &Expect) {
        let show = |ask: UserRequest| match ask {
            UserRequest::Use { tool, arguments } => format!("  {tool} {arguments}\n"),
            UserRequest::Recall { name, .. } => format!("  recall {name}\n"),
            other => format!("  {other:?}\n"),
        };
        let message = |text: &&str| {
            format!("{text}\n{}", parse_requests(text).into_iter().map(show).collect::<String>())
        };
        want.assert_eq(&messages.iter().map(message).collect::<String>());
    }

    #[test]
    fn time_requests_are_recognised_in_many_phrasings() {
        check(
            &["What time is it?", "tell me the time please", "What's the date?", "what day is it"],
            &expect![[r"
                What time is it?
                  clock {}
                tell me the time please
                  clock {}
                What's the date?
                  clock {}
                what day is it
                  clock {}
            "]],
        );
    }

    #[test]
    fn arithmetic_is_recognised_in_words_and_symbols() {
        check(
            &[
                "add 2 and 3",
                "Add 1, 2.5 and -3",
                "please add 2 to 3",
                "subtract 2 from 5",
                "multiply 6 by 7",
                "divide 1+1 by 4",
                "what is 2*(3+4)?",
                "What's 7 times 6?",
                "how much is 2 to the power of 10",
                "calculate 1/0",
                "compute two and two",
                "12 / 4 =",
                "add salt and pepper",
            ],
            &expect![[r#"
                add 2 and 3
                  calculator {"expression":"2 + 3"}
                Add 1, 2.5 and -3
                  calculator {"expression":"1 + 2.5 + -3"}
                please add 2 to 3
                  calculator {"expression":"2 + 3"}
                subtract 2 from 5
                  calculator {"expression":"5 - 2"}
                multiply 6 by 7
                  calculator {"expression":"6 * 7"}
                divide 1+1 by 4
                  calculator {"expression":"(1+1) / 4"}
                what is 2*(3+4)?
                  calculator {"expression":"2*(3+4)"}
                What's 7 times 6?
                  calculator {"expression":"7 * 6"}
                how much is 2 to the power of 10
                  calculator {"expression":"2 ^ 10"}
                calculate 1/0
                  calculator {"expression":"1/0"}
                compute two and two
                  calculator {"expression":"two and two"}
                12 / 4 =
                  calculator {"expression":"12 / 4"}
                add salt and pepper
                  Unclear("add salt and pepper")
            "#]],
        );
    }

    #[test]
    fn facts_are_remembered_recalled_and_forgotten() {
        check(
            &[
                "Remember that my name is Ann.",
                "remember the door code is 12 34",
                "remember salt = \"salt and pepper\"",
                "remember to buy milk",
                "What is my name?",
                "what's the door code",
                "do you remember my name?",
                "what do you remember?",
                "forget my name",
            ],
            &expect![[r#"
                Remember that my name is Ann.
                  value_set {"name":"my name","value":"Ann"}
                remember the door code is 12 34
                  value_set {"name":"door code","value":"12 34"}
                remember salt = "salt and pepper"
                  value_set {"name":"salt","value":"salt and pepper"}
                remember to buy milk
                  value_set {"name":"to buy milk","value":true}
                What is my name?
                  recall my name
                what's the door code
                  recall door code
                do you remember my name?
                  recall my name
                what do you remember?
                  value_list {}
                forget my name
                  value_set {"name":"my name","value":null}
            "#]],
        );
    }

    #[test]
    fn files_are_read_written_and_listed() {
        check(
            &[
                "read file notes",
                "show me notes.txt",
                "Read the Notes.TXT file.",
                "what is in docs/a.md?",
                "read \"my notes\"",
                "read me a story",
                "write Hello, World to notes.txt",
                "write \"One. Two and read.\" to the file notes",
                "save the whales",
                "list files",
                "What files are there?",
                "list the files in docs",
            ],
            &expect![[r#"
                read file notes
                  file_read {"path":"notes"}
                show me notes.txt
                  file_read {"path":"notes.txt"}
                Read the Notes.TXT file.
                  file_read {"path":"Notes.TXT"}
                what is in docs/a.md?
                  file_read {"path":"docs/a.md"}
                read "my notes"
                  file_read {"path":"my notes"}
                read me a story
                  Unclear("read me a story")
                write Hello, World to notes.txt
                  file_write {"content":"Hello, World","path":"notes.txt"}
                write "One. Two and read." to the file notes
                  file_write {"content":"One. Two and read.","path":"notes"}
                save the whales
                  Unclear("save the whales")
                list files
                  file_list {}
                What files are there?
                  file_list {}
                list the files in docs
                  file_list {"path":"docs"}
            "#]],
        );
    }

    #[test]
    fn several_requests_in_one_message_are_separated() {
        check(
            &[
                "what time is it and add 2 and 3",
                "remember that tea is salt and pepper and then what is tea?",
                "write hi to a.txt, then read a.txt; list files",
                "Hello! What time is it? Thanks.",
                "Hello there",
                "hey can you add 2 and 3",
                "call pay {\"to\": \"Ann; and read x. And\"} and what time is it",
                "use clock",
                "call me maybe",
                "Ünïcode, and what time is it?",
            ],
            &expect![[r#"
                what time is it and add 2 and 3
                  clock {}
                  calculator {"expression":"2 + 3"}
                remember that tea is salt and pepper and then what is tea?
                  value_set {"name":"tea","value":"salt and pepper"}
                  recall tea
                write hi to a.txt, then read a.txt; list files
                  file_write {"content":"hi","path":"a.txt"}
                  file_read {"path":"a.txt"}
                  file_list {}
                Hello! What time is it? Thanks.
                  Greeting
                  clock {}
                  Thanks
                Hello there
                  Greeting
                hey can you add 2 and 3
                  calculator {"expression":"2 + 3"}
                call pay {"to": "Ann; and read x. And"} and what time is it
                  pay {"to":"Ann; and read x. And"}
                  clock {}
                use clock
                  clock {}
                call me maybe
                  Unclear("call me maybe")
                Ünïcode, and what time is it?
                  Unclear("Ünïcode")
                  clock {}
            "#]],
        );
    }

    #[test]
    fn parse_time_is_linear_in_message_length() {
        let text = format!("{}{}", "and ".repeat(1 << 17), " ".repeat(1 << 19));
        assert_eq!(parse_requests(&text).len(), 1);
    }

    #[test]
    fn requests_per_message_are_limited() {
        assert_eq!(parse_requests(&"what time is it? ".repeat(REQUESTS_MAX + 1)).len(), REQUESTS_MAX);
    }
}
