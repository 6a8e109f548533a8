//! Tests of agents, harnesses and capabilities in `outlast.toml`.
use crate::place::Place;
use expect_test::expect;

const CONFIG: &str = r#"
[harnesses.house]
system = "Be kind."
model_calls = 9
network = ["*.example.com"]

[[harnesses.house.rules]]
name = "no-gold"
tool = "pay"
where = [{ path = "/to", is = "gold" }]
then = "deny"
reason = "the house does not buy gold"

[harnesses.counter]
parent = "house"
capabilities = ["sums"]

[capabilities.sums]
description = "Calculates."
system = "Use the calculator."
builtin = ["calculator"]
documents = { "rates.md" = "1 euro is 100 cents" }

[agents.clerk]
parent = "counter"
system = "Sell cakes."
model_calls = 4

[[agents.clerk.tools]]
name = "pay"
description = "Pays."
command = ["./pay.sh"]

[agents.judge]
system = "Judge."
builtin = ["clock"]
"#;

fn place(script: &str) -> Place {
    let place = Place::with_script(script);
    place.write("outlast.toml", CONFIG);
    place.write_program("pay.sh", "cat");
    place
}

#[test]
fn agent_combines_prompt_tools_and_rules_of_layers() {
    let place = place(
        "when buy\ncall pay {\"to\": \"gold\"}\ncall pay {\"to\": \"ann\"}\ncall calculator {\"expression\": \"2+3\"}\n\
         call open_document {\"path\": \"rates.md\"}\n---\nsay done\n",
    );
    // The fingerprint contains the path of the program.
    let listed = String::from_utf8(place.output(&["agents", "list"]).stdout).unwrap();
    let clerk = listed.lines().find(|line| line.starts_with("clerk")).unwrap();
    place.hide(clerk.split_whitespace().last().unwrap(), "FINGERPRINT");
    place.check(
        "run buy --session ann --agent clerk --script script.txt
         agents list
         agents show clerk
         agents validate",
        &expect![[r#"
            $ run buy --session ann --agent clerk --script script.txt
            done
            | · pay refused: policy.denied: the rule `no-gold` forbids it: the house does not buy gold
            | · pay {"to":"ann"}
            | · calculator {"expression":"2+3"}
            | · open_document {"path":"rates.md"}
            | · calculator → 5
            | · open_document → 1 euro is 100 cents
            | · pay → {"to":"ann"}
            $ agents list
            AGENT  IN            MODEL            LAYERS                                                           PACKAGE
            clerk  outlast.toml  rehearsal/agent  harness house → capability sums → harness counter → agent clerk  FINGERPRINT
            judge  outlast.toml  rehearsal/agent  agent judge                                                      abf653cd65796ec8ff849c10de2a84fb3aa8885532b85e5c9176ba711b151f07
            $ agents show clerk
            agent clerk
            package FINGERPRINT
            layers harness house → capability sums → harness counter → agent clerk
            builtin.calculator = calculator (capability sums)
            capabilities.sums = sums (capability sums → harness counter)
            documents.rates.md = 1 euro is 100 cents (capability sums)
            model_calls = 4 (harness house → agent clerk)
            network = ["*.example.com"] (harness house)
            rules.no-gold = {"id":"no-gold","tests":[{"is":{"one_of":["gold"]},"path":"/to"}],"then":{"deny":{"reason":"the hous… (harness house)
            system = ["Be kind.","Use the calculator.","Sell cakes."] (harness house → capability sums → agent clerk)
            tools.pay = {"attempts":null,"class":"at_most_once","command":["DIR/./pay.sh"],"deadline_s":null,"de… (agent clerk)
            $ agents validate
            clerk FINGERPRINT
            judge abf653cd65796ec8ff849c10de2a84fb3aa8885532b85e5c9176ba711b151f07
        "#]],
    );
}

#[test]
fn overlay_flag_applies_to_one_command() {
    let place = place("say hi");
    place.write("over.toml", "system = \"Be brief.\"\nmodel_calls = 2\nbuiltin = [\"clock\"]\n");
    place.write("named.toml", "name = \"x\"\n");
    place.check(
        "tools clock --agent clerk
         tools --agent clerk --overlay over.toml
         tools --agent clerk --overlay named.toml
         tools --overlay over.toml",
        &expect![[r#"
            $ tools clock --agent clerk
            | error[tool.unknown]: no tool is called `clock`; there are: calculator, open_document, pay
            |   read on with: outlast explain tool.unknown
            exit 1
            $ tools --agent clerk --overlay over.toml
            calculator     pure           Works out an arithmetic expression exactly: + - * / % ^, parentheses, decimals.
            clock          pure           Tells the current date and time as ISO 8601, to the second.
            open_document  pure           Opens a document that your instructions name, by its path.
            pay            at_most_once   Pays.
            $ tools --agent clerk --overlay named.toml
            | error[config.invalid]: named.toml:1: an overlay cannot set `name`; remove it
            |   read on with: outlast explain config.invalid
            exit 1
            $ tools --overlay over.toml
            | error: the following required arguments were not provided:
            |   --agent <NAME|FILE>
            | 
            | Usage: outlast tools --agent <NAME|FILE> --overlay <FILE> [NAME]
            | 
            | For more information, try '--help'.
            exit 2
        "#]],
    );
}

#[test]
fn agents_diff_compares_agents_and_versions() {
    let place = place("say hi");
    place.check(
        "run hi --session ann --agent judge --script script.txt
         agents diff judge judge
         agents diff judge clerk",
        &expect![[r#"
            $ run hi --session ann --agent judge --script script.txt
            hi
            $ agents diff judge judge
            | · the two agents are identical
            $ agents diff judge clerk
            - agent: judge
            + agent: clerk
            + capabilities: ["sums"]
            + contracts.calculator: Works out an arithmetic expression exactly: + - * / % ^, parentheses, decimals.
            - contracts.clock: Tells the current date and time as ISO 8601, to the second.
            + contracts.open_document: Opens a document that your instructions name, by its path.
            + contracts.pay: Pays.
            + documents: {"rates.md":"1 euro is 100 cents"}
            - model_calls: 50
            + model_calls: 4
            + network: ["*.example.com"]
            + policy: [{"id":"no-gold","tests":[{"is":{"one_of":["gold"]},"path":"/to"}],"then":{"deny":{"reason":"the house does not buy gold"}},"tool":"pay"}]
              system:
            - Judge.
            + Be kind.
            + 
            + Use the calculator.
            + 
            + Sell cakes.
            - tools: ["clock"]
            + tools: ["calculator","open_document","pay"]
        "#]],
    );
    let events = place.output(&["events", "ann", "--json"]);
    let events = String::from_utf8(events.stdout).unwrap();
    let at = events.find("\"package\":\"").expect("a turn names its package") + "\"package\":\"".len();
    let package = events[at..].split('"').next().unwrap().to_owned();
    place.write("outlast.toml", &CONFIG.replace("system = \"Judge.\"", "system = \"Judge.\\nBe just.\""));
    let differs = place.show(&place.output(&["agents", "diff", &package, "judge"]));
    expect![[r#"
        - model: rehearsal/script-f7022dcc
        + model: rehearsal/agent
          system:
        + Be just.
    "#]]
    .assert_eq(&differs);
}

#[test]
fn unknown_agents_and_invalid_layers_are_rejected() {
    let place = place("say hi");
    place.check(
        "run hi --agent clark
         run hi --agent nobody
         run hi --agent clerk.toml",
        &expect![[r#"
            $ run hi --agent clark
            | error[agent.not_found]: no agent is called `clark`; did you mean `clerk`?
            |   read on with: outlast explain agent.not_found
            exit 1
            $ run hi --agent nobody
            | error[agent.not_found]: no agent is called `nobody`; there are: clerk, judge
            |   read on with: outlast explain agent.not_found
            exit 1
            $ run hi --agent clerk.toml
            | error[io.failed]: the agent clerk.toml cannot be read: No such file or directory (os error 2)
            |   read on with: outlast explain io.failed
            exit 1
        "#]],
    );
    for (name, config) in [
        (
            "cycle",
            "[harnesses.a]\nparent = \"b\"\n[harnesses.b]\nparent = \"a\"\n[agents.x]\nparent = \"a\"\n",
        ),
        ("parent", "[harnesses.a]\n[agents.x]\nparent = \"c\"\n"),
        ("capability", "[capabilities.sums]\n[agents.x]\ncapabilities = [\"sum\"]\n"),
        (
            "needs",
            "[capabilities.c]\nneeds = { settings = [\"files\"] }\n[agents.x]\ncapabilities = [\"c\"]\n",
        ),
        (
            "variable",
            "[capabilities.c]\nneeds = { env = [\"OUTLAST_NO_SUCH\"] }\n[agents.x]\ncapabilities = [\"c\"]\n",
        ),
        (
            "program",
            "[capabilities.c]\nneeds = { programs = [\"no-such-program\"] }\n[agents.x]\ncapabilities = [\"c\"]\n",
        ),
        (
            "network",
            "[harnesses.a]\nnetwork = []\n[agents.x]\nparent = \"a\"\n[agents.x.mcp.web]\nurl = \"https://a.example.com\"\n",
        ),
        (
            "rule",
            "[harnesses.a]\n[[harnesses.a.rules]]\nname = \"r\"\nthen = \"allow\"\n\
             [agents.x]\nparent = \"a\"\n[[agents.x.rules]]\nname = \"r\"\nthen = \"allow\"\n",
        ),
    ] {
        place.write(&format!("{name}.toml"), config);
    }
    place.check(
        "tools --agent x --config cycle.toml
         tools --agent x --config parent.toml
         tools --agent x --config capability.toml
         tools --agent x --config needs.toml
         tools --agent x --config variable.toml
         tools --agent x --config program.toml
         tools --agent x --config network.toml
         tools --agent x --config rule.toml",
        &expect![[r#"
            $ tools --agent x --config cycle.toml
            | error[harness.cycle]: the harness `a` inherits from itself: a → b → a
            |   read on with: outlast explain harness.cycle
            exit 1
            $ tools --agent x --config parent.toml
            | error[harness.not_found]: agent x inherits from the harness `c`, which does not exist; there are: a
            |   read on with: outlast explain harness.not_found
            exit 1
            $ tools --agent x --config capability.toml
            | error[capability.unknown]: agent x enables the capability `sum`, which does not exist; there are: sums
            |   read on with: outlast explain capability.unknown
            exit 1
            $ tools --agent x --config needs.toml
            | error[port.missing]: agent x: the capability `c` needs the setting `files`, which no layer of the agent sets
            |   read on with: outlast explain port.missing
            exit 1
            $ tools --agent x --config variable.toml
            | error[port.missing]: agent x: the capability `c` needs the environment variable OUTLAST_NO_SUCH; set it
            |   read on with: outlast explain port.missing
            exit 1
            $ tools --agent x --config program.toml
            | error[port.missing]: agent x: the capability `c` needs the program `no-such-program`, which is missing or not executable
            |   read on with: outlast explain port.missing
            exit 1
            $ tools --agent x --config network.toml
            | error[config.invalid]: network.toml:5: MCP server `web`: `https://a.example.com/` is not reached: the network of the agent is restricted to: none
            |   read on with: outlast explain config.invalid
            exit 1
            $ tools --agent x --config rule.toml
            | error[config.invalid]: two rules are called `r`, in harness a and in agent x; names must be unique, and a rule of a layer below cannot be replaced
            |   read on with: outlast explain config.invalid
            exit 1
        "#]],
    );
}

#[test]
fn agent_with_missing_program_is_left_out() {
    let place = place("say hi");
    std::fs::remove_file(place.path().join("pay.sh")).unwrap();
    place.check("run hi --session ann --agent judge --script script.txt", &expect![[r#"
        $ run hi --session ann --agent judge --script script.txt
        hi
        | · the agent `clerk` is skipped: config.invalid: outlast.toml:29: tool `pay`: expected an executable program, but `./pay.sh` is missing or not executable
    "#]]);
}
