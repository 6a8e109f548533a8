//! The programs that the tests, fuzzing and the book need in addition to cargo, and how to install each.
use crate::command::{print_step, run};
use std::process::{Command, Stdio};

/// A program that must be installed before the tests start.
struct RequiredTool {
    what: &'static str,
    /// Succeeds if it is installed.
    check: &'static [&'static str],
    /// The commands that install it, run in order until one fails.
    install: &'static [&'static [&'static str]],
}

const BUILD: &[RequiredTool] = &[
    RequiredTool {
        what: "a C compiler, for the bundled SQLite",
        check: &["cc", "--version"],
        install: &[&["apt-get", "update"], &["apt-get", "install", "-y", "gcc", "libc6-dev"]],
    },
    RequiredTool {
        what: "git, for the list of files that tidy reads",
        check: &["git", "--version"],
        install: &[&["apt-get", "update"], &["apt-get", "install", "-y", "git"]],
    },
    RequiredTool {
        what: "rustfmt",
        check: &["cargo", "fmt", "--version"],
        install: &[&["rustup", "component", "add", "rustfmt"]],
    },
    RequiredTool {
        what: "clippy",
        check: &["cargo", "clippy", "--version"],
        install: &[&["rustup", "component", "add", "clippy"]],
    },
];

/// The needs of tests that call other programs.
const TEST_TOOLS: &[RequiredTool] = &[
    RequiredTool {
        what: "Python 3, for MCP servers and moto",
        check: &["python3", "-m", "venv", "--help"],
        install: &[&["apt-get", "update"], &["apt-get", "install", "-y", "python3", "python3-venv"]],
    },
    RequiredTool {
        what: "the reference MCP server",
        check: &["test", "-x", "target/needs/mcp-node/node_modules/.bin/mcp-server-everything"],
        install: &[&[
            "npm",
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--prefix",
            "target/needs/mcp-node",
            "@modelcontextprotocol/server-everything@2026.8.31",
        ]],
    },
    RequiredTool {
        what: "the conformance suite of MCP",
        check: &[
            "test",
            "-e",
            "target/needs/mcp-conformance/node_modules/@modelcontextprotocol/conformance/dist/index.js",
        ],
        install: &[&[
            "npm",
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--prefix",
            "target/needs/mcp-conformance",
            "@modelcontextprotocol/conformance@0.1.16",
        ]],
    },
    RequiredTool {
        what: "the conformance suite of MCP for the newest revision",
        check: &[
            "test",
            "-e",
            "target/needs/mcp-conformance-next/node_modules/@modelcontextprotocol/conformance/dist/index.js",
        ],
        install: &[&[
            "npm",
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--prefix",
            "target/needs/mcp-conformance-next",
            "@modelcontextprotocol/conformance@0.2.0-alpha.12",
        ]],
    },
    RequiredTool {
        what: "the Python SDK for MCP servers",
        check: &["target/needs/mcp-python/bin/python", "-c", "import mcp.server"],
        install: &[
            &["python3", "-m", "venv", "target/needs/mcp-python"],
            &["target/needs/mcp-python/bin/pip", "install", "--quiet", "mcp==2.3.0"],
        ],
    },
    RequiredTool {
        what: "schemathesis, which sends the server what its document allows and forbids",
        check: &["target/needs/schemathesis/bin/schemathesis", "--version"],
        install: &[
            &["python3", "-m", "venv", "target/needs/schemathesis"],
            &["target/needs/schemathesis/bin/pip", "install", "--quiet", "schemathesis==4.32.5"],
        ],
    },
    RequiredTool {
        what: "the Python clients of OpenAI and Anthropic's APIs (250 MB)",
        check: &[
            "cmp",
            "-s",
            "testing/clients/requirements.txt",
            "target/needs/clients-python/installed.txt",
        ],
        install: &[
            &["python3", "-m", "venv", "--clear", "target/needs/clients-python"],
            &[
                "target/needs/clients-python/bin/pip",
                "install",
                "--quiet",
                "--requirement",
                "testing/clients/requirements.txt",
            ],
            // Comes last, so that an interrupted installation is repeated.
            &["cp", "testing/clients/requirements.txt", "target/needs/clients-python/installed.txt"],
        ],
    },
    RequiredTool {
        what: "the JavaScript clients of OpenAI and Anthropic's APIs, Claude Code and Codex (1.2 GB)",
        check: &[
            "cmp",
            "-s",
            "testing/clients/package-lock.json",
            "target/needs/clients-node/installed.json",
        ],
        install: &[
            &["mkdir", "-p", "target/needs/clients-node"],
            &[
                "cp",
                "testing/clients/package.json",
                "testing/clients/package-lock.json",
                "target/needs/clients-node",
            ],
            &[
                "npm",
                "ci",
                "--silent",
                "--no-audit",
                "--no-fund",
                "--ignore-scripts",
                "--prefix",
                "target/needs/clients-node",
            ],
            &["cp", "testing/clients/package-lock.json", "target/needs/clients-node/installed.json"],
        ],
    },
    RequiredTool {
        what: "moto's server, which speaks S3",
        check: &["target/needs/moto/bin/python", "-c", "import moto.server"],
        install: &[
            &["python3", "-m", "venv", "target/needs/moto"],
            &["target/needs/moto/bin/pip", "install", "--quiet", "moto[server]==5.2.5"],
        ],
    },
];

/// The needs of the console. Other tests also use JavaScript servers and clients.
const CONSOLE: &[RequiredTool] = &[
    RequiredTool {
        what: "Node.js with npm, for the console and the reference MCP server",
        check: &["npm", "--version"],
        install: &[&["apt-get", "update"], &["apt-get", "install", "-y", "nodejs", "npm"]],
    },
    RequiredTool {
        what: "what the console is built from",
        check: &["npm", "ls", "--silent", "--prefix", "console"],
        install: &[&["npm", "ci", "--silent", "--no-audit", "--no-fund", "--prefix", "console"]],
    },
    RequiredTool {
        what: "Chromium, for the console's tests",
        check: &["chromium", "--version"],
        install: &[&["apt-get", "update"], &["apt-get", "install", "-y", "chromium"]],
    },
];

/// The additional needs of fuzzing.
const FUZZING: &[RequiredTool] = &[RequiredTool {
    what: "a C++ compiler, for libFuzzer",
    check: &["c++", "--version"],
    install: &[&["apt-get", "update"], &["apt-get", "install", "-y", "g++"]],
}];

/// The additional needs of the book.
const BOOK: &[RequiredTool] = &[RequiredTool {
    what: "mdBook, which builds the documentation (a few minutes)",
    check: &["target/needs/mdbook/bin/mdbook", "--version"],
    install: &[&[
        "cargo",
        "install",
        "mdbook@0.5.4",
        "--locked",
        "--no-default-features",
        "--features",
        "search",
        "--root",
        "target/needs/mdbook",
    ]],
}];

/// Installs what compiling and the lints need. Returns what could not be installed, each with the command that would
/// install it.
pub(crate) fn install_for_build() -> Vec<String> {
    BUILD.iter().filter_map(|need| install_tool(need).err()).collect()
}

/// Like [`install_for_build`], for all tests. Needs no cargo, so it may run while cargo compiles.
pub(crate) fn install_for_tests() -> Vec<String> {
    CONSOLE.iter().chain(TEST_TOOLS).filter_map(|need| install_tool(need).err()).collect()
}

/// Like [`install_for_build`], for the console alone.
pub(crate) fn install_for_console() -> Vec<String> {
    CONSOLE.iter().filter_map(|need| install_tool(need).err()).collect()
}

/// Like [`install_for_build`], for fuzzing.
pub(crate) fn install_for_fuzzing() -> Vec<String> {
    FUZZING.iter().filter_map(|need| install_tool(need).err()).collect()
}

/// Like [`install_for_build`], for the book.
pub(crate) fn install_for_book() -> Vec<String> {
    BOOK.iter().filter_map(|need| install_tool(need).err()).collect()
}

fn install_tool(need: &RequiredTool) -> Result<(), String> {
    if is_installed(need.check) {
        print_step(&format!("found {}", need.what));
        return Ok(());
    }
    print_step(&format!("missing {}; installing it", need.what));
    let installed = need.install.iter().all(|words| run(&mut command(words)).succeeded);
    if installed && is_installed(need.check) {
        return Ok(());
    }
    let commands: Vec<String> = need.install.iter().map(|words| words.join(" ")).collect();
    Err(format!("missing {}; as an administrator run: {}", need.what, commands.join(" && ")))
}

/// Returns whether the program starts and succeeds. Its output is ignored.
pub(crate) fn is_installed(words: &[&str]) -> bool {
    let silent = command(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    silent.is_ok_and(|status| status.success())
}

fn command(words: &[&str]) -> Command {
    let (program, arguments) = words.split_first().expect("a need names a program");
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn present_tool_is_not_installed_again() {
        let need = RequiredTool {
            what: "the shell",
            check: &["sh", "-c", "exit 0"],
            install: &[&["no-such-program"]],
        };
        assert_eq!(install_tool(&need), Ok(()));
    }

    #[test]
    fn failed_installation_names_its_command() {
        let need = RequiredTool {
            what: "a moon",
            check: &["sh", "-c", "exit 1"],
            install: &[&["sh", "-c", "exit 1"]],
        };
        assert_eq!(
            install_tool(&need),
            Err("missing a moon; as an administrator run: sh -c exit 1".to_owned())
        );
    }

    #[test]
    fn installation_without_the_tool_is_a_failure() {
        let need = RequiredTool {
            what: "a moon",
            check: &["sh", "-c", "exit 1"],
            install: &[&["sh", "-c", "exit 0"]],
        };
        assert_eq!(
            install_tool(&need),
            Err("missing a moon; as an administrator run: sh -c exit 0".to_owned())
        );
    }
}
