//! Runs real programs as tool calls.
use super::*;
use crate::tool_tester::MemoryCallScope;
use expect_test::{Expect, expect};
use outlast_conformance::ToolFixture;
use outlast_vocab::label::Labels;
use outlast_vocab::tool::EffectClass;
use outlast_vocab::{CallId, TurnId};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Returns a tool that runs this shell script.
fn tool(name: &str, script: &str, dir: &Path) -> (ToolContract, Program) {
    let contract =
        ToolContract::new(name.parse().unwrap(), "Does what its script says.", json!({"type": "object"}));
    let args = ["-c", script].map(Into::into).to_vec();
    let program = Program { program: "sh".into(), args, dir: dir.to_owned(), passed_env: Vec::new() };
    (contract, program)
}

fn commands(contract: ToolContract, program: Program) -> ProgramTools {
    let mut commands = ProgramTools::default();
    commands.add(contract, program).unwrap();
    commands
}

/// Returns a tool that runs a shell script.
fn script_commands(name: &str, script: &str, dir: &Path) -> ProgramTools {
    let (contract, program) = tool(name, script, dir);
    commands(contract, program)
}

/// Calls the only tool.
async fn call(commands: &ProgramTools, arguments: Value) -> Result<Value, Error> {
    let (id, session, turn) = (CallId::from_u128(1), SessionId::from_u128(2), TurnId::from_u128(3));
    let tool = commands.manifests()[0].name.clone();
    let model_id = "call_0".parse().unwrap();
    let prepared = PreparedCall {
        id,
        model_id,
        tool,
        class: EffectClass::AtMostOnce,
        arguments,
        payload: None,
        ruling: None,
        labels: Labels::default(),
        provenance: outlast_vocab::label::Provenance::default(),
    };
    let call = Call { id, session, turn, attempt: 2, attempts: 3, payload: None };
    let ran = commands.execute(&prepared, call, Arc::new(MemoryCallScope::default())).await?;
    let ToolRunOutcome::Completed(value) = ran else { panic!("a program does not answer later") };
    Ok(value)
}

async fn check(script: &str, want: &Expect) {
    let dir = TempDir::new().unwrap();
    let came = match call(&script_commands("script", script, dir.path()), json!({"to": "ann"})).await {
        Ok(value) => value.to_string(),
        Err(error) => error.to_string(),
    };
    want.assert_eq(&came);
}

#[tokio::test]
async fn program_reads_arguments_from_stdin_and_prints_result() {
    check("printf '{\"given\": %s}' \"$(cat)\"", &expect![[r#"{"given":{"to":"ann"}}"#]]).await;
    check("echo; echo '\"two words\"'; echo", &expect![[r#""two words""#]]).await;
    check(":", &expect!["null"]).await;
    check(
        "echo done",
        &expect![
            "tool.failed: expected JSON on standard output, got `done`: expected value at line 1 column 1"
        ],
    )
    .await;
    check("echo '{} {}'", &expect!["tool.failed: expected JSON on standard output, got `{} {}`: trailing characters at line 1 column 4"]).await;
}

#[tokio::test]
async fn failed_program_reports_the_end_of_stderr() {
    check("echo no such card >&2; exit 3", &expect!["tool.failed: exit code 3: no such card"]).await;
    check("exit 1", &expect!["tool.failed: exit code 1: standard error is empty"]).await;
    check("echo '{\"ok\": true}'; exit 1", &expect!["tool.failed: exit code 1: standard error is empty"])
        .await;
    check("echo the line is busy >&2; exit 75", &expect!["tool.unavailable: exit code 75: the line is busy"])
        .await;
    check("kill -9 $$", &expect!["tool.failed: ended by signal 9: standard error is empty"]).await;
    let dir = TempDir::new().unwrap();
    let chatty = script_commands("chatty", "seq -f 'line %g' 2000 >&2; exit 1", dir.path());
    let error = call(&chatty, json!({})).await.unwrap_err();
    assert!(error.detail().ends_with("\nline 1999\nline 2000") && error.detail().len() < 5_000, "{error}");
}

#[tokio::test]
async fn secrets_in_stderr_are_redacted() {
    let dir = TempDir::new().unwrap();
    // Cargo sets this variable for every test; here it plays the role of a secret.
    let script = "echo \"wrong key $CARGO_PKG_NAME in $PWD\" >&2; exit 1";
    let (contract, program) = tool("echoes", script, dir.path());
    let given = Program { passed_env: vec!["CARGO_PKG_NAME".to_owned()], ..program };
    let error = call(&commands(contract, given), json!({})).await.unwrap_err();
    let place = dir.path().canonicalize().unwrap();
    assert_eq!(error.detail(), format!("exit code 1: wrong key [redacted] in {}", place.display()));
}

#[tokio::test]
async fn secrets_in_stdout_are_redacted() {
    let dir = TempDir::new().unwrap();
    // Cargo sets this variable for every test; here it plays the role of a secret.
    let (contract, program) = tool("prints", "echo \"wrong key $CARGO_PKG_NAME\"", dir.path());
    let given = Program { passed_env: vec!["CARGO_PKG_NAME".to_owned()], ..program };
    let error = call(&commands(contract, given), json!({})).await.unwrap_err();
    assert_eq!(
        error.detail(),
        "expected JSON on standard output, got `wrong key [redacted]`: expected value at line 1 column 1"
    );
}

#[tokio::test]
async fn missing_program_is_reported_as_unavailable() {
    let dir = TempDir::new().unwrap();
    let (contract, program) = tool("gone", "", dir.path());
    let gone = commands(contract, Program { program: "./gone.sh".into(), ..program });
    let error = call(&gone, json!({})).await.unwrap_err();
    assert_eq!(error.kind(), Kind::ToolUnavailable);
    assert!(error.detail().starts_with("`./gone.sh` cannot be started: "), "{error}");
}

#[tokio::test]
async fn program_environment_has_only_call_and_allowed_variables() {
    let dir = TempDir::new().unwrap();
    let (contract, program) = tool(
        "env",
        "env | grep -v '^PWD=\\|^OLDPWD=\\|^SHLVL=\\|^_=' | sort | sed 's/=.*//' | tr '\\n' ' ' | sed 's/.*/\"&\"/'",
        dir.path(),
    );
    let bare = call(&commands(contract.clone(), program.clone()), json!({})).await.unwrap();
    let bare = bare.as_str().unwrap();
    let known = ["HOME", "LANG", "PATH", "TMPDIR", "TZ", KEY, ATTEMPT, SESSION, TURN];
    assert!(bare.split_whitespace().all(|name| known.contains(&name)), "{bare}");
    assert!([KEY, ATTEMPT, SESSION, TURN, "PATH"].iter().all(|name| bare.contains(name)), "{bare}");
    // Cargo sets this variable for every test. A program only gets it if it is passed on.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let given = Program { passed_env: vec!["CARGO_MANIFEST_DIR".to_owned()], ..program };
    let given = call(&commands(contract, given), json!({})).await.unwrap();
    assert!(given.as_str().unwrap().contains("CARGO_MANIFEST_DIR"), "{given}");
    check(&format!("echo \"\\\"${KEY} ${ATTEMPT} ${SESSION} ${TURN}\\\"\""), &expect![[r#""cal_00000000000000000000000000000001 2 ses_00000000000000000000000000000002 trn_00000000000000000000000000000003""#]]).await;
}

#[tokio::test]
async fn a_program_works_in_its_directory() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("price"), "5").unwrap();
    assert_eq!(call(&script_commands("cat", "cat price", dir.path()), json!({})).await.unwrap(), json!(5));
}

#[tokio::test]
async fn a_program_that_prints_too_much_is_stopped() {
    check("yes", &expect!["tool.failed: `sh` printed more than 1048576 bytes"]).await;
}

#[tokio::test]
async fn program_may_ignore_its_standard_input() {
    let dir = TempDir::new().unwrap();
    let deaf = script_commands("deaf", "exec <&-; echo 1", dir.path());
    let much = json!({"text": "x".repeat(1 << 20)});
    assert_eq!(call(&deaf, much).await.unwrap(), json!(1));
}

/// Returns whether the process that wrote its id to this file is alive.
fn is_alive(file: &Path) -> bool {
    let number = std::fs::read_to_string(file).unwrap();
    if let Ok(state) = std::fs::read_to_string(format!("/proc/{}/stat", number.trim())) {
        // A zombie is dead too.
        return !state.contains(") Z ");
    }
    std::process::Command::new("kill").args(["-0", number.trim()]).output().unwrap().status.success()
}

#[tokio::test]
async fn dropped_call_kills_program_and_its_children() {
    let dir = TempDir::new().unwrap();
    let script = "sleep 1000 & echo $! > child; echo $$ > own; mv own started; wait";
    let commands = script_commands("slow", script, dir.path());
    let started = dir.path().join("started");
    let begun = async {
        while !started.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        ran = call(&commands, json!({})) => panic!("it ended: {ran:?}"),
        () = begun => {}
    }
    let since = Instant::now();
    // The system needs a moment to remove them.
    while is_alive(&started) || is_alive(&dir.path().join("child")) {
        assert!(since.elapsed() < Duration::from_secs(20), "they are still there");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn duplicate_command_names_are_refused() {
    let dir = TempDir::new().unwrap();
    let mut commands = script_commands("pay", "true", dir.path());
    let (contract, program) = tool("pay", "true", dir.path());
    let error = commands.add(contract, program).unwrap_err();
    assert_eq!(error.to_string(), "tool.duplicate: two tools are called `pay`; names must be unique");
}

struct OneCommand(ProgramTools);

impl ToolFixture for OneCommand {
    fn tools(&self) -> &dyn ToolProvider {
        &self.0
    }
}

outlast_conformance::tool_conformance!(|| OneCommand(script_commands("pay", "true", Path::new("."))));
