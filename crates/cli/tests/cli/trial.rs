//! Tests of `outlast test`.
use crate::place::Place;
use expect_test::expect;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn shop(file: &str) -> String {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/shop").join(file);
    example.canonicalize().unwrap().display().to_string()
}

const AGENT: &str = r#"
name = "shop"

[[tools]]
name = "charge"
description = "Charges the card."
class = "idempotent"
command = ["./charge.sh"]
"#;

/// A tool that claims to be idempotent, but ignores its key.
const CARELESS: &str = "cat >>charges; echo >>charges; echo 1";

const ONCE: &str =
    "[ $(grep -c . charges) -eq 1 ] || { echo charged $(grep -c . charges) times >&2; exit 1; }";

/// Creates a shop whose tool charges at every run.
fn careless() -> Place {
    let place = Place::with_script("call charge {\"cents\": 450}\n---\nsay Paid.");
    place.write("agent.toml", AGENT);
    place.write_program("charge.sh", CARELESS);
    place.write_program("once.sh", ONCE);
    place
}

#[test]
fn example_shop_charges_and_ships_once_despite_crashes() {
    let place = Place::new();
    let [agent, script, invariant] = ["agent.toml", "buy.script", "paid_and_shipped_once.sh"].map(shop);
    let args = [
        "test",
        "--kill-every-effect",
        &agent,
        &script,
        "--input",
        "a cake, please",
        "--invariant",
        &invariant,
    ];
    let output = place.output(&args);
    let shown = place.show(&output);
    assert!(output.status.success(), "{shown}");
    let (writes, rest) = shown.split_once("\n\n").unwrap();
    expect![[r#"
        write  what is written                 before  after
        1      session opened, input accepted  kept    kept
        2      reply, charge claimed           kept    kept
        3      charge answered                 kept    kept
        4      reply, ship claimed             kept    kept
        5      ship answered                   kept    kept
        6      reply, turn answered            kept    kept"#]]
    .assert_eq(writes);
    // The number of waits for a program depends on the machine, but there is at least one.
    assert!(rest.contains("call-1:during      charge  kept\n"), "{rest}");
    assert!(rest.contains("call-2:during      ship    kept\n"), "{rest}");
    assert!(rest.ends_with(", 0 broken promises\n"), "{rest}");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn trial_finds_a_tool_that_ignores_its_key() {
    careless().check(
        "test agent.toml script.txt --invariant ./once.sh
         test agent.toml script.txt --invariant ./once.sh --point 3:before --point 3:after",
        &expect![[r#"
            $ test agent.toml script.txt --invariant ./once.sh
            0 crash points, 1 run, 0 broken promises
            $ test agent.toml script.txt --invariant ./once.sh --point 3:before --point 3:after
            write  what is written  before  after
            3      charge answered  BROKEN  kept

            broken at 3:before (charge answered)
              your invariant: charged 2 times
              run only this one: --point 3:before

            2 crash points, 4 runs, 1 broken promise
            exit 1
        "#]],
    );
}

#[test]
fn broken_run_is_kept_for_inspection() {
    let place = careless();
    let args = [
        "test",
        "agent.toml",
        "script.txt",
        "--invariant",
        "./once.sh",
        "--point",
        "3:before",
        "--keep",
        "kept",
    ];
    let output = place.output(&args);
    assert_eq!(output.status.code(), Some(1));
    let remaining: Vec<PathBuf> =
        std::fs::read_dir(place.path().join("kept")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [remaining] = remaining.as_slice() else { panic!("one run was broken: {remaining:?}") };
    let database = remaining.join("outlast.db").display().to_string();
    let shown = place.show(&output);
    let name = remaining.file_name().unwrap().to_string_lossy();
    let look = format!("  inspect it: outlast --data DIR/kept/{name}/outlast.db events trial\n");
    assert!(shown.contains(&look), "{shown}");
    assert!(place.output(&["--data", &database, "events", "trial"]).status.success());
    assert_eq!(std::fs::read_to_string(remaining.join("world/charges")).unwrap().lines().count(), 2);
}

#[test]
fn invariant_receives_the_run_as_json() {
    let place = careless();
    place.write_program("tell.sh", "cat > \"$OUTLAST_TEST_TOLD\"");
    let report = place.path().join("told.json");
    let mut command = place.command(&["test", "agent.toml", "script.txt", "--invariant", "./tell.sh"]);
    assert!(command.env("OUTLAST_TEST_TOLD", &report).output().unwrap().status.success());
    let mut report: Value = serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap();
    report["calls"][0]["key"] = "KEY".into();
    expect![[r#"
        {
          "calls": [
            {
              "arguments": {
                "cents": 450
              },
              "class": "idempotent",
              "key": "KEY",
              "result": {
                "ok": 1
              },
              "runs": 1,
              "tool": "charge"
            }
          ],
          "crash": null,
          "ends": [
            {
              "answered": {
                "text": "Paid."
              }
            }
          ],
          "transcript": [
            {
              "parts": [
                {
                  "text": "go",
                  "type": "text"
                }
              ],
              "role": "user"
            },
            {
              "calls": [
                {
                  "arguments": {
                    "json": {
                      "cents": 450
                    }
                  },
                  "id": "call_0",
                  "tool": "charge"
                }
              ],
              "parts": [],
              "role": "assistant"
            },
            {
              "call": "call_0",
              "result": {
                "ok": 1
              },
              "role": "tool",
              "tool": "charge"
            },
            {
              "parts": [
                {
                  "text": "Paid.",
                  "type": "text"
                }
              ],
              "role": "assistant"
            }
          ],
          "values": {}
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&report).unwrap());
}

#[test]
fn trial_report_is_valid_json() {
    let place = careless();
    let args =
        ["test", "agent.toml", "script.txt", "--invariant", "./once.sh", "--point", "3:before", "--json"];
    let output = place.output(&args);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["broken"][0]["crash"], "3:before");
    assert_eq!(report["broken"][0]["detail"], "charged 2 times");
}

#[test]
fn invalid_trial_setup_is_rejected() {
    let place = careless();
    place.write("bad.txt", "sing");
    place.write("other.txt", "call rocket {}");
    place.check(
        "test agent.toml gone.txt
         test gone.toml script.txt
         test agent.toml bad.txt
         test agent.toml other.txt
         test agent.toml script.txt --invariant ./gone.sh
         test agent.toml script.txt --invariant once.sh
         test agent.toml script.txt --point soon
         test agent.toml script.txt --twice",
        &expect![[r#"
            $ test agent.toml gone.txt
            | error[io.failed]: the script gone.txt cannot be read: No such file or directory (os error 2)
            |   read on with: outlast explain io.failed
            exit 1
            $ test gone.toml script.txt
            | error[io.failed]: the agent gone.toml cannot be read: No such file or directory (os error 2)
            |   read on with: outlast explain io.failed
            exit 1
            $ test agent.toml bad.txt
            | error[script.invalid]: bad.txt: line 1: expected window, turn, when, any, ---, say, think, call, broken, delay, error, cut, stall, refuse or length, found `sing`
            |   read on with: outlast explain script.invalid
            exit 1
            $ test agent.toml other.txt
            | error[script.mismatch]: line 1 calls `rocket`, but the session has only: charge
            |   read on with: outlast explain script.mismatch
            exit 1
            $ test agent.toml script.txt --invariant ./gone.sh
            | error[input.invalid]: `--invariant`: expected an executable program, but `./gone.sh` is missing or not executable
            |   read on with: outlast explain input.invalid
            exit 1
            $ test agent.toml script.txt --invariant once.sh
            | error[input.invalid]: `--invariant`: expected an executable program, but `once.sh` is missing or not executable; for the file next to the configuration, write `./once.sh`
            |   read on with: outlast explain input.invalid
            exit 1
            $ test agent.toml script.txt --point soon
            | error: invalid value 'soon' for '--point <POINT>': input.invalid: expected a point like `7:before`, `7:after` or `call-2:during`, counted from 1, got `soon`
            | 
            | For more information, try '--help'.
            exit 2
            $ test agent.toml script.txt --twice
            | error: the following required arguments were not provided:
            |   --kill-every-effect
            | 
            | Usage: outlast test --kill-every-effect --twice <AGENT> <SCRIPT>
            | 
            | For more information, try '--help'.
            exit 2
        "#]],
    );
}

#[test]
fn hanging_or_failing_invariant_breaks_the_trial() {
    let place = careless();
    place.write_program("silent.sh", "exit 3");
    place.write_program("hang.sh", "sleep 1000");
    place.check(
        "test agent.toml script.txt --invariant ./silent.sh
         test agent.toml script.txt --invariant ./hang.sh --patience 1",
        &expect![[r#"
            $ test agent.toml script.txt --invariant ./silent.sh
            broken without a crash
              your invariant: its command ended with exit status: 3

            0 crash points, 1 run, 1 broken promise
            exit 1
            $ test agent.toml script.txt --invariant ./hang.sh --patience 1
            broken without a crash
              your invariant: its command did not end within 1 s

            0 crash points, 1 run, 1 broken promise
            exit 1
        "#]],
    );
}
