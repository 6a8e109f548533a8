//! Tests of shell completions and manual pages.
use crate::place::Place;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};

/// Returns the commands that `--help` lists.
fn commands(place: &Place) -> Vec<String> {
    let help = String::from_utf8(place.output(&["--help"]).stdout).unwrap();
    let listed = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = listed.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .filter(|name| name != "help")
        .collect()
}

#[test]
fn shell_completions_know_every_command() {
    let place = Place::new();
    let commands = commands(&place);
    assert!(commands.len() > 25, "{commands:?}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = place.output(&["completions", shell]);
        assert!(output.status.success());
        let script = String::from_utf8(output.stdout).unwrap();
        for command in &commands {
            assert!(script.contains(command.as_str()), "{shell} does not know `{command}`");
        }
    }
}

#[test]
fn bash_completes_commands_and_flags() {
    let place = Place::new();
    let script = place.output(&["completions", "bash"]).stdout;
    place.write("completions.bash", &String::from_utf8(script).unwrap());
    let ask = "source completions.bash; COMP_WORDS=(outlast sessions for); COMP_CWORD=2; \
        _outlast outlast for sessions; echo \"${COMPREPLY[@]}\"";
    let output = Command::new("bash").args(["-c", ask]).current_dir(place.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "fork");
}

#[test]
fn every_command_has_a_manual_page() {
    let place = Place::new();
    let output = place.output(&["man", "--into", "man1"]);
    assert!(output.status.success());
    let files = std::fs::read_dir(place.path().join("man1")).unwrap();
    let files: BTreeSet<String> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    for name in ["outlast.1", "outlast-sessions.1", "outlast-sessions-fork.1", "outlast-approvals-deny.1"] {
        assert!(files.contains(name), "{name} is not among {files:?}");
    }
    for command in commands(&place) {
        assert!(files.contains(&format!("outlast-{command}.1")), "`{command}` has no page");
    }
    let page = std::fs::read_to_string(place.path().join("man1/outlast-sessions-fork.1")).unwrap();
    assert!(page.contains(".SH NAME") && page.contains("outlast\\-sessions\\-fork"), "{page}");
    let printed = place.command(&["man"]).stdout(Stdio::piped()).output().unwrap().stdout;
    assert_eq!(printed, std::fs::read(place.path().join("man1/outlast.1")).unwrap());
}

#[test]
fn markdown_page_describes_every_command() {
    let place = Place::new();
    let output = place.output(&["man", "--markdown"]);
    assert!(output.status.success());
    let page = String::from_utf8(output.stdout).unwrap();
    for command in commands(&place) {
        assert!(page.contains(&format!("## `outlast {command}`\n")), "`{command}` has no section");
    }
    let fork = page.split("## `outlast sessions fork`\n").nth(1).unwrap().split("\n## ").next().unwrap();
    assert!(fork.contains("```text\noutlast sessions fork ") && fork.contains("\n- `--"), "{fork}");
}
