//! Runs all examples, and checks that the program in the README is one of them.
use outlast::Error;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "../../../examples/ask_a_model.rs"]
mod ask_a_model;
#[path = "../../../examples/attachments.rs"]
mod attachments;
#[path = "../../../examples/attempts.rs"]
mod attempts;
#[path = "../../../examples/await_event.rs"]
mod await_event;
#[path = "../../../examples/cancellation.rs"]
mod cancellation;
#[path = "../../../examples/events.rs"]
mod events;
#[path = "../../../examples/first.rs"]
mod first;
#[path = "../../../examples/kill_every_effect.rs"]
mod kill_every_effect;
#[path = "../../../examples/other_tools.rs"]
mod other_tools;
#[path = "../../../examples/payments.rs"]
mod payments;
#[path = "../../../examples/pending.rs"]
mod pending;
#[path = "../../../examples/progress.rs"]
mod progress;
#[path = "../../../examples/sleep.rs"]
mod sleep;
#[path = "../../../examples/steps.rs"]
mod steps;
#[path = "../../../examples/typed.rs"]
mod typed;
#[path = "../../../examples/undo.rs"]
mod undo;
#[path = "../../../examples/values.rs"]
mod values;

/// Runs an example twice in one directory, as a reader would.
macro_rules! says {
    ($example:ident, $said:expr) => {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            assert_eq!($example::run(dir.path()).await.unwrap(), $said);
        }
        let _: fn() -> Result<(), Error> = $example::main;
    };
}

#[tokio::test]
async fn the_first_program_answers() {
    says!(first, "ship gave a parcel with tea.");
}

#[tokio::test]
async fn answered_steps_do_not_rerun_on_retry() {
    says!(steps, "number 1, paid 450 cents; 2 attempts, reserved 1 time, charged 1 time");
}

#[tokio::test]
async fn pending_call_completes_in_another_process() {
    says!(pending, "The boss says: no. First decision counted: true, second: false");
}

#[tokio::test]
async fn sleep_continues_in_another_process() {
    says!(sleep, "egg 1 is done; pots filled: 1");
}

#[tokio::test]
async fn tool_resumes_with_its_awaited_event() {
    says!(await_event, "tea was delivered to \"the neighbour\"");
}

#[tokio::test]
async fn subscribers_see_tool_progress() {
    says!(progress, "page 1 of 2, page 2 of 2; [3,2]");
}

#[tokio::test]
async fn cancelled_tool_cleans_up() {
    says!(cancellation, "open, closed; cancelled because it rains");
}

#[tokio::test]
async fn every_attempt_has_the_same_key() {
    says!(attempts, "5 euros to Ann at attempt 3 of 3; the bank saw 1 key");
}

#[tokio::test]
async fn tool_pays_from_its_reservation() {
    says!(payments, "a lemon cake is on its way");
}

#[tokio::test]
async fn tool_values_persist_to_the_next_turn() {
    says!(values, "3 teas, then 6 teas");
}

#[tokio::test]
async fn agent_killed_at_every_effect_charges_once() {
    says!(
        kill_every_effect,
        "\
write  what is written                 before  after
1      session opened, input accepted  kept    kept
2      reply, charge claimed           kept    kept
3      charge answered                 kept    kept
4      reply, turn answered            kept    kept

8 crash points, 10 runs, 0 broken promises"
    );
}

#[tokio::test]
async fn tool_gets_a_typed_answer_from_a_model() {
    says!(ask_a_model, "the boss should answer.");
}

#[tokio::test]
async fn a_tool_runs_another_tool() {
    says!(other_tools, "3 + 4 + 5 = 12");
}

#[tokio::test]
async fn trip_is_booked_completely_or_undone() {
    says!(undo, "booked: car; aborted: ");
}

#[tokio::test]
async fn tool_creates_an_attachment_from_another() {
    says!(attachments, "loud.txt: TEA AT FIVE");
}

#[tokio::test]
async fn typed_answer_has_the_requested_type() {
    says!(typed, "20 degrees, rain: false");
}

#[tokio::test]
async fn session_events_can_be_followed() {
    says!(
        events,
        "2 turn.accepted\n3 turn.started\n4 effect.interrupted\n5 effect.performed\n6 effect.asked\n7 effect.answered\n8 effect.performed\n9 turn.ended"
    );
}

#[test]
fn readme_program_is_the_first_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let (_, program) = readme.split_once("```rust\n").expect("the README has a program");
    let (program, _) = program.split_once("```").expect("the program has an end");
    assert_eq!(program, fs::read_to_string(root.join("examples/first.rs")).unwrap());
}

/// Blocks of the guide that are fragments: the page, and how the block begins.
const GUIDE_FRAGMENTS: &[(&str, &str)] = &[
    // Left-out parts, marked with `…`, or a function without its trait.
    ("built-in-tools.md", "fn main() {"),
    ("payments.md", "#[tool(idempotent)]"),
    ("plugins.md", "let outlast = Outlast::at(\"desk.db\")"),
    ("plugins.md", "impl Plugin for Tickets"),
    ("plugins.md", "impl TriggerSource for MailFolder"),
    ("plugins.md", "async fn run("),
    ("policy-reference.md", "impl PolicyEngine for Purchases"),
    ("replay.md", "let mut export"),
    ("testing-your-agent.md", "#[tokio::test]"),
    ("writing-a-tool.md", "/// Resizes a picture."),
    ("writing-a-tool.md", "/// Books a flight."),
    // They need the conformance suites, or a feature that is off by default.
    ("payments.md", "outlast_conformance::"),
    ("rates.md", "outlast_conformance::"),
    ("mcp-server.md", "use outlast::server"),
    ("server-reference.md", "let threads"),
    ("telemetry.md", "use outlast::telemetry"),
    ("telemetry.md", "let text = outlast::telemetry"),
];

/// Returns the pages in a directory and below it.
fn pages(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { pages(&path) } else { vec![path] }).collect()
}

/// Doc tests compile `src/guide.rs`. This test compares it with the guide.
#[test]
fn guide_code_is_compiled() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiled = fs::read_to_string(root.join("src/guide.rs")).unwrap();
    let lines = compiled.lines().map(|line| line.strip_prefix("//!").unwrap_or(line));
    let lines = lines.map(|line| line.strip_prefix(' ').unwrap_or(line));
    let lines: Vec<&str> = lines.filter(|line| !line.starts_with("# ")).collect();
    let compiled = lines.join("\n") + "\n";
    let mut fragments = GUIDE_FRAGMENTS.to_vec();
    for page in pages(&root.join("../../docs/guide")) {
        let name = page.file_name().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&page).unwrap();
        for block in text.split("\n```rust").skip(1) {
            let (_, block) = block.split_once('\n').unwrap();
            let (block, _) = block.split_once("\n```").unwrap();
            if let Some(at) =
                fragments.iter().position(|(page, begin)| *page == name && block.starts_with(begin))
            {
                fragments.remove(at);
                continue;
            }
            let expected = format!("```no_run\n{block}\n```\n");
            assert!(compiled.contains(&expected), "copy this block of {name} to src/guide.rs:\n{block}");
        }
    }
    assert!(fragments.is_empty(), "these fragments are not in the guide any more: {fragments:?}");
}
