//! Tests of the guide: the commands print what it shows, and its configuration files are valid.
use crate::place::{Place, words};
use expect_test::expect_file;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A part of a page: prose, or a code block with its language.
enum Part {
    Prose(String),
    Block(String, String),
}

fn parts(page: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    for (index, part) in page.split("```").enumerate() {
        parts.push(if index % 2 == 0 {
            Part::Prose(part.to_owned())
        } else {
            let (language, text) = part.split_once('\n').unwrap();
            Part::Block(language.to_owned(), text.to_owned())
        });
    }
    parts
}

/// Runs the commands of a block and returns the output.
fn shown(place: &Place, block: &str) -> String {
    let mut shown = String::new();
    for command in block.lines().filter_map(|line| line.strip_prefix("$ outlast ")) {
        writeln!(shown, "$ outlast {command}").unwrap();
        // A page has one id of each kind, so the number is left out.
        let words = words(&command.replace("_…", "_1"));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        for line in place.show(&place.output(&words)).lines().filter(|line| !line.starts_with("exit ")) {
            let line = line.strip_prefix("| ").unwrap_or(line);
            let line = ["_1", "_2", "_3"].iter().fold(cut_ids(line), |line, id| line.replace(id, "_…"));
            writeln!(shown, "{}", line.replace("TIME", "2026-11-17T09:00:00Z")).unwrap();
        }
    }
    shown
}

/// Masks ids that were truncated to fit the line.
fn cut_ids(line: &str) -> String {
    let word = |word: &str| match word.strip_suffix('…').and_then(|word| word.split_once('_')) {
        Some((prefix, hex)) if hex.bytes().all(|digit| digit.is_ascii_hexdigit()) => format!("{prefix}_…"),
        _ => word.to_owned(),
    };
    line.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn first_agent_guide_matches_the_program() {
    let path = root("docs/guide/first-agent.md");
    let (agent, tool) = (root("examples/clerk/agent.toml"), root("examples/clerk/pay.sh"));
    let (agent, tool) = (fs::read_to_string(agent).unwrap(), fs::read_to_string(tool).unwrap());
    let place = Place::new();
    place.set("USER", "ann");
    place.write("agent.toml", &agent);
    place.write_program("pay.sh", tool.strip_prefix("#!/bin/sh\n").unwrap());
    let mut page = String::new();
    for part in parts(&fs::read_to_string(&path).unwrap()) {
        match part {
            Part::Prose(text) => page += &text,
            Part::Block(language, text) => {
                let text = match language.as_str() {
                    "toml" => agent.clone(),
                    "sh" => tool.clone(),
                    "console" => shown(&place, &text),
                    _ => text,
                };
                write!(page, "```{language}\n{text}```").unwrap();
            }
        }
    }
    expect_file![path].assert_eq(&page);
    assert_eq!(
        fs::read_to_string(place.path().join("payments")).unwrap(),
        "{\"euros\":500,\"to\":\"bob\"}\n"
    );
}

/// Environment variables that the guide's files use.
const VARIABLES: [(&str, &str); 9] = [
    ("OPENAI_API_KEY", "sk-x"),
    ("ANTHROPIC_API_KEY", "sk-x"),
    ("CRM_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ("CHAT_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ("CHAT_URL", "https://chat.example.com/in"),
    ("COLLECTOR_KEY", "x"),
    ("NOTES_KEY", "x"),
    ("SEARCH_TOKEN", "x"),
    ("SLACK_TOKEN", "x"),
];

/// Returns whether a block is our configuration and does not depend on a build feature.
fn is_ours(block: &str) -> bool {
    !["[dependencies]", "[cedar]"].iter().any(|other| block.starts_with(other))
}

/// Creates a place with everything that a file refers to.
fn furnished(block: &str) -> Place {
    let place = Place::new();
    for (name, value) in VARIABLES {
        place.set(name, value);
    }
    for program in block.split('"').filter_map(|word| word.strip_prefix("./")) {
        place.write_program(program, "");
    }
    // A fragment of an agent file has no `name`.
    let begins = block.lines().find(|line| !line.starts_with('#')).unwrap_or_default();
    let parts = ["[fetch]", "[shell]", "[mcp", "[[rules]]", "[[hooks]]", "files"];
    let is_part = parts.iter().any(|part| begins.starts_with(part));
    place.write("shown.toml", &format!("{}{block}", if is_part { "name = \"shown\"\n" } else { "" }));
    place
}

/// Returns the pages in a directory and below it.
fn pages(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { pages(&path) } else { vec![path] }).collect()
}

#[test]
fn config_files_of_the_guide_are_valid() {
    let mut looked = 0;
    for page in pages(&root("docs/guide")) {
        for part in parts(&fs::read_to_string(&page).unwrap()) {
            let Part::Block(language, block) = part else { continue };
            if language != "toml" || !is_ours(&block) {
                continue;
            }
            let place = furnished(&block);
            let output = place.output(&["config", "check", "shown.toml"]);
            let shown = place.show(&output);
            // Tools of an MCP server must be accepted first, and its program may be missing. The file was
            // still parsed.
            let is_read = output.status.success()
                || block.starts_with("[mcp")
                    && ["outlast mcp accept", "an executable program"].iter().any(|so| shown.contains(so));
            assert!(is_read, "{}: {shown}in\n{block}", page.display());
            looked += 1;
        }
    }
    assert!(looked >= 20, "{looked}");
}
