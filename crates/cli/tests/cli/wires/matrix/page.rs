//! The generated page of the guide, from the table and the versions of the lock files.
use super::clients::{CAPABILITIES, CLIENTS, Client, Column, Language, SCENARIOS};
use expect_test::expect_file;
use serde_json::Value;
use std::fmt::Write as _;

const LOCKED_JAVASCRIPT: &str = include_str!("../../../../../../testing/clients/package-lock.json");
const LOCKED_PYTHON: &str = include_str!("../../../../../../testing/clients/requirements.txt");

/// The version that the tests install.
fn version(client: &Client) -> String {
    match client.language {
        Language::Python => {
            let of_package =
                |line: &str| line.strip_prefix(client.package)?.strip_prefix("==").map(str::to_owned);
            LOCKED_PYTHON.lines().find_map(of_package)
        }
        Language::JavaScript => {
            let lock: Value = serde_json::from_str(LOCKED_JAVASCRIPT).unwrap();
            let package = &lock["packages"][format!("node_modules/{}", client.package)];
            package["version"].as_str().map(str::to_owned)
        }
    }
    .unwrap_or_else(|| panic!("{} is in no lock file of testing/clients", client.package))
}

fn heading(column: Column) -> String {
    column.name().replace('_', " ")
}

fn cell(client: &Client, column: Column) -> &'static str {
    match (client.absent(column), client.gap(column)) {
        (Some(_), _) => "—",
        (None, Some(_)) => "no",
        (None, None) => "yes",
    }
}

fn table(columns: &[Column]) -> String {
    let mut page = String::from("| client | version |");
    for &column in columns {
        write!(page, " {} |", heading(column)).unwrap();
    }
    writeln!(page, "\n|---|---|{}", "---|".repeat(columns.len())).unwrap();
    for client in CLIENTS {
        let title = client.title;
        let title = client.page.map_or_else(|| title.to_owned(), |path| format!("[{title}]({path}.md)"));
        write!(page, "| {title} | {} |", version(client)).unwrap();
        for &column in columns {
            write!(page, " {} |", cell(client, column)).unwrap();
        }
        page.push('\n');
    }
    page
}

/// Lists cells with their reasons.
fn reasons(of: impl Fn(&Client, Column) -> Option<&'static str>) -> String {
    let mut list = String::new();
    for client in CLIENTS {
        for column in CAPABILITIES.into_iter().chain(SCENARIOS) {
            if let Some(reason) = of(client, column) {
                writeln!(list, "- {}, {}: {reason}", client.title, heading(column)).unwrap();
            }
        }
    }
    list
}

fn page() -> String {
    let (capabilities, scenarios) = (table(&CAPABILITIES), table(&SCENARIOS));
    let absent = reasons(Client::absent);
    let gaps = reasons(Client::gap);
    let gaps = if gaps.is_empty() {
        String::new()
    } else {
        format!("\n## What does not work yet\n\nEach line quotes what the client reports.\n\n{gaps}")
    };
    format!(
        "\
# Clients that are tested

Will your client work with Outlast if you change only its base URL? The tests run the real packages below against a
server, with the [rehearsal model](rehearsal-scripts.md). Each client keeps its defaults: only base URL, key and model
are set. A test generates this page and fails if a cell is wrong.

`yes` works, `no` does not work yet, and `—` means that the client has no such feature.

## Capabilities

{capabilities}
| capability | what the test does |
|---|---|
| plain, streaming | asks for an answer, complete or in pieces |
| tools, parallel tools | the client runs its own functions, one call or two in one reply; coding agents run eight commands in a row |
| structured | asks for an object with the client's default way: a schema or a forced tool |
| multi turn | asks twice; both turns must be in one session |
| image | sends a picture as data, and as a URL if the client passes URLs on |
| options | sets temperature, length, stop words, effort and the like |
| forced tool | demands a call of one function |
| abort | stops reading a stream, then asks again |
| error | the model refuses its key; the client shows our code and the provider's words |

## Retries

A tool of the agent charges a card, then something happens. `yes` means that the card was charged exactly once,
whatever the client repeated, and that the client never took half an answer for a whole one.

{scenarios}
| scenario | what happens after the charge |
|---|---|
| model error | the model rejects the request |
| cancel | an operator cancels the turn |
| kill mid stream | the server is killed while the client reads the answer, and starts again |
| kill before answer | the server is killed before a complete answer was sent, and starts again; the client gets the answer |
| restart | a new process takes over from the server |
{gaps}
## What a client does not have

{absent}
Next: [the OpenAI SDK](clients/openai-sdk.md)
"
    )
}

#[test]
fn published_page_matches_table_and_lock_files() {
    expect_file!["../../../../../../docs/guide/compatible-clients.md"].assert_eq(&page());
}
