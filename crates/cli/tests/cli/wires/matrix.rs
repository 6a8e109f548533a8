//! The published table of clients: each capability and each scenario of a retry, with the real packages and their
//! defaults.
//!
//! The clients are the programs of `testing/clients`. [`clients`] contains what is expected of each. A cell that does
//! not work yet is a known gap with its reason, and the test fails if it starts to work.
mod client_program;
mod client_server;
mod clients;
mod page;
mod retry_scenarios;

use client_program::ClientProgram;
use client_server::ClientServer;
use clients::{CAPABILITIES, Client, Column};
use std::collections::BTreeMap;

/// What the model says to each prompt of the programs. `when` compares with a part of the input, and the first match
/// counts.
fn script() -> String {
    let loop_of = |tool: &str, argument: &str| {
        let call = |n: u32| format!("call {tool} {{\"{argument}\": \"echo round {n}\"}}\n---\n");
        format!("when case loop {tool}\n{}say round 8\n", (1..=8).map(call).collect::<String>())
    };
    let together = |tool: &str, argument: &str, results: &str| {
        let call = |city: &str| format!("call {tool} {{\"{argument}\": \"echo mild in {city}\"}}\n");
        format!("when case together {tool}\n{}{}---\nsay {results}\n", call("Oslo"), call("Rome"))
    };
    let ticket = r#"{"title": "broken lamp", "urgent": true}"#;
    let structured_by = |tool: &str| {
        format!("when case structured by {tool}\ncall {tool} {ticket}\n---\nsay The ticket is written.\n")
    };
    let sections = [
        "when case plain\nsay A plain answer.\n".to_owned(),
        "when case streaming\nsay one two three four five\ndelay 200ms\nsay six seven eight\n".to_owned(),
        "when case tools\ncall weather {\"city\": \"Oslo\"}\n---\nsay It is {{result weather}}.\n".to_owned(),
        "when case forced\ncall weather {\"city\": \"Oslo\"}\n---\nsay It is {{result weather}}.\n"
            .to_owned(),
        "when case parallel\ncall weather {\"city\": \"Oslo\"}\ncall weather {\"city\": \"Rome\"}\n---\n\
         say {{result 0}}; {{result 1}}\n"
            .to_owned(),
        loop_of("Bash", "command"),
        loop_of("exec_command", "cmd"),
        together("Bash", "command", "{{result 0}}; {{result 1}}"),
        // Its results contain more than what the program printed.
        together("exec_command", "cmd", "mild in Oslo; mild in Rome"),
        structured_by("Ticket"),
        structured_by("final_result"),
        structured_by("json"),
        structured_by("StructuredOutput"),
        format!("when case structured\nsay {ticket}\n"),
        "when case first turn\nsay Blue.\n".to_owned(),
        "when case second turn\nsay Still blue.\n".to_owned(),
        "when case image\nsay I see it.\n".to_owned(),
        "when case options\nsay Options are set.\n".to_owned(),
        "when case abort\nsay one two three\ndelay 1m\nsay four\n".to_owned(),
        "when case error\nerror model.unauthorized the key is of no use\n".to_owned(),
    ];
    sections.concat()
}

/// What a cell showed: nothing, or the reason why it failed.
type Observed = BTreeMap<Column, Result<(), String>>;

fn observe_capabilities(client: &Client) -> Observed {
    let server = ClientServer::start(&script());
    let mut program = ClientProgram::start(client, "capabilities", &[server.url()]);
    let mut observed = Observed::new();
    while let Some(line) = program.next() {
        let column = CAPABILITIES.into_iter().find(|column| column.name() == line["capability"]);
        let column = column.unwrap_or_else(|| panic!("{line}"));
        let detail = line["detail"].as_str().unwrap_or_default().to_owned();
        observed.insert(column, if line["ok"] == true { Ok(()) } else { Err(detail) });
    }
    if observed.get(&Column::MultiTurn) == Some(&Ok(())) {
        observed.insert(Column::MultiTurn, server.has_one_session_of_both_turns());
    }
    observed
}

/// Compares what a client showed with the table.
#[track_caller]
fn is_as_published(client: &Client, columns: &[Column], observed: &Observed) {
    let difference = |&column: &Column| {
        let difference = difference(client, column, observed.get(&column)?)?;
        Some(format!("{}: {difference}", column.name()))
    };
    let missing = |column: &&Column| client.absent(**column).is_none() && !observed.contains_key(column);
    let missing = columns.iter().filter(missing).map(|column| format!("{}: nothing", column.name()));
    let differences: Vec<String> = columns.iter().filter_map(difference).chain(missing).collect();
    assert!(differences.is_empty(), "{}:\n{}", client.title, differences.join("\n"));
}

/// Returns how a cell differs from the table.
fn difference(client: &Client, column: Column, found: &Result<(), String>) -> Option<String> {
    if let Some(reason) = client.absent(column) {
        return Some(format!("the table says that {reason}"));
    }
    match (client.gap(column), found) {
        (None, Err(why)) => Some(why.clone()),
        (Some(gap), Ok(())) => Some(format!("works now; remove the gap `{gap}`")),
        (Some(gap), Err(why)) => (!why.contains(gap)).then(|| format!("the gap is `{gap}`, but now: {why}")),
        (None, Ok(())) => None,
    }
}

#[track_caller]
fn passes_its_capabilities(client: &Client) {
    is_as_published(client, &CAPABILITIES, &observe_capabilities(client));
}

#[track_caller]
fn charges_once(client: &Client) {
    is_as_published(client, &clients::SCENARIOS, &retry_scenarios::observe(client));
}

macro_rules! clients {
    ($($client:ident: $capabilities:ident, $retries:ident;)*) => {$(
        #[test]
        fn $capabilities() {
            passes_its_capabilities(&clients::$client);
        }

        #[test]
        fn $retries() {
            charges_once(&clients::$client);
        }
    )*};
}

clients! {
    OPENAI_PYTHON_RESPONSES: openai_python_responses_pass_their_capabilities, openai_python_responses_charge_once;
    OPENAI_PYTHON_CHAT: openai_python_chat_passes_its_capabilities, openai_python_chat_charges_once;
    OPENAI_JS_RESPONSES: openai_javascript_responses_pass_their_capabilities, openai_javascript_responses_charge_once;
    OPENAI_JS_CHAT: openai_javascript_chat_passes_its_capabilities, openai_javascript_chat_charges_once;
    ANTHROPIC_PYTHON: anthropic_python_passes_its_capabilities, anthropic_python_charges_once;
    ANTHROPIC_JS: anthropic_javascript_passes_its_capabilities, anthropic_javascript_charges_once;
    AI_SDK_RESPONSES: ai_sdk_responses_pass_their_capabilities, ai_sdk_responses_charge_once;
    AI_SDK_CHAT: ai_sdk_chat_passes_its_capabilities, ai_sdk_chat_charges_once;
    AI_SDK_COMPATIBLE: ai_sdk_compatible_passes_its_capabilities, ai_sdk_compatible_charges_once;
    AI_SDK_ANTHROPIC: ai_sdk_anthropic_passes_its_capabilities, ai_sdk_anthropic_charges_once;
    LANGCHAIN_PYTHON_OPENAI: langchain_python_openai_passes_its_capabilities, langchain_python_openai_charges_once;
    LANGCHAIN_PYTHON_ANTHROPIC:
        langchain_python_anthropic_passes_its_capabilities, langchain_python_anthropic_charges_once;
    LANGCHAIN_JS_OPENAI: langchain_javascript_openai_passes_its_capabilities, langchain_javascript_openai_charges_once;
    LANGCHAIN_JS_ANTHROPIC:
        langchain_javascript_anthropic_passes_its_capabilities, langchain_javascript_anthropic_charges_once;
    AGENTS_PYTHON: agents_python_passes_its_capabilities, agents_python_charges_once;
    AGENTS_JS: agents_javascript_passes_its_capabilities, agents_javascript_charges_once;
    PYDANTIC_AI_RESPONSES: pydantic_ai_responses_pass_their_capabilities, pydantic_ai_responses_charge_once;
    PYDANTIC_AI_CHAT: pydantic_ai_chat_passes_its_capabilities, pydantic_ai_chat_charges_once;
    PYDANTIC_AI_ANTHROPIC: pydantic_ai_anthropic_passes_its_capabilities, pydantic_ai_anthropic_charges_once;
    CLAUDE_CODE: claude_code_passes_its_capabilities, claude_code_charges_once;
    CODEX: codex_passes_its_capabilities, codex_charges_once;
}
