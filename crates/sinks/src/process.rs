//! Passes outputs to a program: the message on standard input. Exit code 0 means accepted.
//!
//! The environment variable [`DELIVERY_ID`] contains the id of the delivery, which is the same on every attempt. A
//! program that runs too long is killed with all its child processes.
use crate::message;
use outlast_ports::ResultFuture;
use outlast_ports::sink::{Sink, SinkOutput};
use outlast_tools::command::{Program, ProgramOutput, SESSION, TURN};
use outlast_vocab::{Error, Kind};
use std::os::unix::process::ExitStatusExt;

/// The variable with the id of the delivery.
pub const DELIVERY_ID: &str = "OUTLAST_DELIVERY_ID";
/// The variable with the number of the attempt, counted from 1.
pub const ATTEMPT: &str = outlast_tools::command::ATTEMPT;
/// The variable with the organisation. Outlast's own commands read it too.
const ORG: &str = "OUTLAST_ORG";

/// A sink that runs a program for each output.
pub struct ProcessSink {
    program: Program,
}

impl ProcessSink {
    /// Creates a sink for this program.
    pub fn new(program: Program) -> Self {
        Self { program }
    }
}

impl Sink for ProcessSink {
    fn place(&self) -> String {
        self.program.program.to_string_lossy().into_owned()
    }

    fn deliver<'a>(&'a self, output: &'a SinkOutput) -> ResultFuture<'a, ()> {
        Box::pin(async move {
            let variables = [
                (DELIVERY_ID, output.id.to_string()),
                (ATTEMPT, output.attempt.to_string()),
                (ORG, output.org.to_string()),
                (SESSION, output.session.to_string()),
                (TURN, output.turn.to_string()),
            ];
            let finished = self.program.run(message::encode(output)?, &variables).await;
            check_exit(&finished.map_err(|error| Error::new(Kind::DeliveryFailed, error.detail()))?)
        })
    }
}

fn check_exit(ProgramOutput { status, stderr_tail: complained, .. }: &ProgramOutput) -> Result<(), Error> {
    let why = if complained.is_empty() { "standard error is empty" } else { complained };
    let how = match status.code() {
        Some(0) => return Ok(()),
        Some(code) => format!("exit code {code}"),
        None => format!("ended by signal {}", status.signal().unwrap_or(0)),
    };
    Err(Error::new(Kind::DeliveryFailed, format!("{how}: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::tests::output;
    use outlast_vocab::record::TurnEnd;

    fn shell(script: &str, folder: &std::path::Path) -> ProcessSink {
        ProcessSink::new(Program {
            program: "sh".into(),
            args: vec!["-c".into(), script.into()],
            dir: folder.to_owned(),
            passed_env: Vec::new(),
        })
    }

    #[tokio::test]
    async fn program_receives_message_and_acknowledges_by_exit_code() {
        let folder = tempfile::tempdir().unwrap();
        let output = output(TurnEnd::Answered { text: "hello".to_owned() });
        let takes = shell("cat > got; echo $OUTLAST_DELIVERY_ID $OUTLAST_ATTEMPT > id", folder.path());
        takes.deliver(&output).await.unwrap();
        let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
        assert_eq!(read("got"), message::encode(&output).unwrap());
        assert_eq!(read("id"), format!("{} 1\n", output.id).as_bytes());
        for (script, expected) in [
            ("echo no >&2; exit 3", "delivery.failed: exit code 3: no"),
            ("kill -9 $$", "delivery.failed: ended by signal 9: standard error is empty"),
        ] {
            let error = shell(script, folder.path()).deliver(&output).await.unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        // Cargo sets this variable for every test; here it plays the role of a secret.
        let mut echoes = shell("echo key $CARGO_PKG_NAME >&2; exit 1", folder.path());
        echoes.program.passed_env.push("CARGO_PKG_NAME".to_owned());
        let error = echoes.deliver(&output).await.unwrap_err();
        assert_eq!(error.to_string(), "delivery.failed: exit code 1: key [redacted]");
        let nowhere = ProcessSink::new(Program { program: "/no/such".into(), ..takes.program });
        assert_eq!(nowhere.deliver(&output).await.unwrap_err().kind(), Kind::DeliveryFailed);
    }
}
