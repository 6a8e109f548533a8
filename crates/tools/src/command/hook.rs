//! Programs as hooks. They read the event as JSON on standard input and print a change as JSON on standard output.
use super::{Program, ProgramOutput, SESSION, TURN};
use outlast_ports::ResultFuture;
use outlast_ports::environment::redact_variables;
use outlast_ports::hook::{
    AfterEnd, AfterModel, AfterTool, AtCheckpoint, BeforeCompletion, BeforeContext, BeforeModel, BeforeTool,
    Hook, HookAt, HookStage, OnError,
};
use outlast_vocab::hook::{HookCall, HookPoint};
use outlast_vocab::message::shown;
use outlast_vocab::{Error, Kind};
use serde::Serialize;
use serde_json::Value;

/// Creates a hook of this point that runs a program.
pub fn hook(name: &str, point: HookPoint, program: Program) -> Result<HookAt, Error> {
    let program = ProgramHook(program);
    match point {
        HookPoint::BeforeContext => HookAt::new::<BeforeContext>(name, program),
        HookPoint::BeforeModel => HookAt::new::<BeforeModel>(name, program),
        HookPoint::AfterModel => HookAt::new::<AfterModel>(name, program),
        HookPoint::BeforeTool => HookAt::new::<BeforeTool>(name, program),
        HookPoint::AfterTool => HookAt::new::<AfterTool>(name, program),
        HookPoint::BeforeCompletion => HookAt::new::<BeforeCompletion>(name, program),
        HookPoint::AtCheckpoint => HookAt::new::<AtCheckpoint>(name, program),
        HookPoint::AfterEnd => HookAt::new::<AfterEnd>(name, program),
        HookPoint::OnError => HookAt::new::<OnError>(name, program),
    }
}

/// A program that runs as a hook.
struct ProgramHook(Program);

/// The JSON that the program reads.
#[derive(Serialize)]
struct HookInputJson<'a, S> {
    #[serde(flatten)]
    call: &'a HookCall,
    seen: &'a S,
}

impl<P: HookStage> Hook<P> for ProgramHook {
    fn run(&self, call: HookCall, seen: P::Seen) -> ResultFuture<'_, Option<P::Patch>> {
        Box::pin(async move {
            let input = serde_json::to_vec(&HookInputJson { call: &call, seen: &seen }).map_err(|cause| {
                Error::new(Kind::HookFailed, format!("its input cannot be written as JSON: {cause}"))
            })?;
            let variables = [(SESSION, call.session.to_string()), (TURN, call.turn.to_string())];
            parse_patch::<P>(&self.0.run(input, &variables).await?, &self.0.passed_env)
        })
    }
}

/// Parses the change that a program prints; `None` if it prints nothing, `null` or `{}`. Error texts redact the values
/// of the variables that it was passed.
fn parse_patch<P: HookStage>(
    finished: &ProgramOutput,
    passed_on: &[String],
) -> Result<Option<P::Patch>, Error> {
    let ProgramOutput { status, stdout: printed, stderr_tail: complained } = finished;
    let failed = |detail| Error::new(Kind::HookFailed, detail);
    if !status.success() {
        let why = if complained.is_empty() { "standard error is empty" } else { complained };
        return Err(failed(format!("{status}: {why}")));
    }
    if printed.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(printed);
    let expected = |cause: serde_json::Error| {
        let point = P::POINT;
        let text = redact_variables(text.trim(), passed_on);
        // The parser's message quotes the output too.
        let cause = redact_variables(&cause.to_string(), passed_on);
        let text = shown(&text);
        failed(format!("expected a change of {point} as JSON on standard output, got `{text}`: {cause}"))
    };
    match serde_json::from_slice::<Value>(printed).map_err(expected)? {
        Value::Null => Ok(None),
        Value::Object(members) if members.is_empty() => Ok(None),
        value => serde_json::from_value(value).map(Some).map_err(expected),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use outlast_vocab::hook::CallHookInput;
    use outlast_vocab::{ReplayKey, SessionId, TurnId};
    use serde_json::json;
    use std::time::{Duration, Instant};
    use tempfile::TempDir;

    fn script(script: &str, dir: &TempDir) -> ProgramHook {
        let args = ["-c", script].map(Into::into).to_vec();
        ProgramHook(Program {
            program: "sh".into(),
            args,
            dir: dir.path().to_owned(),
            passed_env: Vec::new(),
        })
    }

    fn call() -> HookCall {
        HookCall {
            hook: "guard".parse().unwrap(),
            point: HookPoint::BeforeTool,
            agent: "clerk".to_owned(),
            session: SessionId::from_u128(1),
            turn: TurnId::from_u128(2),
            key: ReplayKey::turn(0).tools(0).child(0, "c"),
            plugin: None,
        }
    }

    fn seen() -> CallHookInput {
        let arguments = json!({ "to": "ann" });
        CallHookInput { call: "c".parse().unwrap(), tool: "pay".parse().unwrap(), arguments }
    }

    async fn check(text: &str, want: &Expect) {
        let dir = TempDir::new().unwrap();
        let came = Hook::<BeforeTool>::run(&script(text, &dir), call(), seen()).await;
        want.assert_eq(&came.map_or_else(|error| error.to_string(), |patch| format!("{patch:?}")));
    }

    #[tokio::test]
    async fn hook_program_reads_input_and_prints_changes() {
        check(
            r#"read told; printf '{"refuse": "saw %s"}' "$(echo "$told" | tr -d '"')""#,
            &expect![[
                r#"Some(Refuse("saw {hook:guard,point:before_tool,agent:clerk,session:ses_00000000000000000000000000000001,turn:trn_00000000000000000000000000000002,key:turn/0/tools/0/child:0:c,seen:{call:c,tool:pay,arguments:{to:ann}}}"))"#
            ]],
        )
        .await;
        check(
            r#"echo '{"arguments": {"to": "joe"}}'"#,
            &expect![[r#"Some(Arguments(Object {"to": String("joe")}))"#]],
        )
        .await;
        for nothing in [":", "echo null", "echo {}"] {
            check(nothing, &expect!["None"]).await;
        }
    }

    #[tokio::test]
    async fn invalid_hook_output_fails_and_is_quoted() {
        check("echo fine", &expect!["hook.failed: expected a change of before_tool as JSON on standard output, got `fine`: expected ident at line 1 column 2"]).await;
        check(r#"echo '{"text": "hi"}'"#, &expect!["hook.failed: expected a change of before_tool as JSON on standard output, got `{\"text\": \"hi\"}`: unknown variant `text`, expected `arguments` or `refuse`"]).await;
        check("echo no key >&2; exit 3", &expect!["hook.failed: exit status: 3: no key"]).await;
        check("head -c 2000000 /dev/zero", &expect!["tool.failed: `sh` printed more than 1048576 bytes"])
            .await;
    }

    #[tokio::test]
    async fn secrets_that_a_hook_prints_are_redacted() {
        let dir = TempDir::new().unwrap();
        // Cargo sets this variable for every test; here it plays the role of a secret.
        let printed = script("echo \"{\\\"$CARGO_PKG_NAME\\\": 1}\"", &dir);
        let program = Program { passed_env: vec!["CARGO_PKG_NAME".to_owned()], ..printed.0 };
        let error = Hook::<BeforeTool>::run(&ProgramHook(program), call(), seen()).await.unwrap_err();
        expect!["hook.failed: expected a change of before_tool as JSON on standard output, got `{\"[redacted]\": 1}`: unknown variant `[redacted]`, expected `arguments` or `refuse`"]
            .assert_eq(&error.to_string());
    }

    #[tokio::test]
    async fn dropped_hook_kills_its_program() {
        let dir = TempDir::new().unwrap();
        let hangs = script("sleep 30; touch late", &dir);
        let began = Instant::now();
        let run = Hook::<BeforeTool>::run(&hangs, call(), seen());
        assert!(tokio::time::timeout(Duration::from_millis(100), run).await.is_err());
        assert!(began.elapsed() < Duration::from_secs(5));
        assert!(!dir.path().join("late").exists());
    }
}
