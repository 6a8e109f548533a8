//! The allowed dependencies between crates, compared with `cargo metadata`.
//!
//! The table is a deliberate copy of the one in `ARCHITECTURE.md`. A new edge is a decision, and having to change two
//! places makes it one.
use super::{RepoFile, TidyFinding};
use serde_json::Value;

/// The allowed dependencies of a crate, without those of its tests.
struct CrateRule {
    name: &'static str,
    may_use: &'static [&'static str],
    outside: OutsideCrates,
}

/// The dependencies from outside the workspace that a crate may use.
enum OutsideCrates {
    Any,
    /// Only these. The tests of such a crate are limited to the same crates of the workspace.
    Only(&'static [&'static str]),
}

impl CrateRule {
    const fn open(name: &'static str, may_use: &'static [&'static str]) -> Self {
        Self { name, may_use, outside: OutsideCrates::Any }
    }

    const fn closed(
        name: &'static str,
        may_use: &'static [&'static str],
        outside: &'static [&'static str],
    ) -> Self {
        Self { name, may_use, outside: OutsideCrates::Only(outside) }
    }
}

const TABLE: &[CrateRule] = &[
    CrateRule::closed("outlast-vocab", &[], &["blake3", "serde", "serde_json"]),
    CrateRule::closed("outlast-kernel", &["outlast-vocab"], &["serde", "serde_json"]),
    CrateRule::closed("outlast-validation", &["outlast-vocab"], &["jsonschema", "regex", "serde_json"]),
    CrateRule::closed("outlast-views", &["outlast-vocab"], &["serde", "serde_json"]),
    CrateRule::open("outlast-ports", &["outlast-views", "outlast-vocab"]),
    CrateRule::open("outlast-ledger", &["outlast-ports", "outlast-views", "outlast-vocab"]),
    CrateRule::open(
        "outlast-runtime",
        &["outlast-kernel", "outlast-ports", "outlast-validation", "outlast-views", "outlast-vocab"],
    ),
    CrateRule::open("outlast-store", &["outlast-ledger", "outlast-ports", "outlast-views", "outlast-vocab"]),
    CrateRule::open("outlast-providers", &["outlast-ports", "outlast-vocab"]),
    CrateRule::open(
        "outlast-tools",
        &["outlast-ports", "outlast-validation", "outlast-views", "outlast-vocab"],
    ),
    CrateRule::open("outlast-mcp", &["outlast-ports", "outlast-validation", "outlast-vocab"]),
    CrateRule::open("outlast-sinks", &["outlast-ports", "outlast-tools", "outlast-vocab"]),
    CrateRule::open("outlast-telemetry", &["outlast-ports", "outlast-tools", "outlast-vocab"]),
    CrateRule::open("outlast-objects", &["outlast-ports", "outlast-vocab"]),
    CrateRule::open("outlast-cedar", &["outlast-ports", "outlast-vocab"]),
    CrateRule::open("outlast-restate", &["outlast-runtime", "outlast-ports", "outlast-vocab"]),
    CrateRule::open(
        "outlast-mcp-server",
        &["outlast-runtime", "outlast-ports", "outlast-views", "outlast-vocab"],
    ),
    CrateRule::closed("outlast-api", &["outlast-views", "outlast-vocab"], &["serde", "serde_json", "utoipa"]),
    CrateRule::open("outlast-http", &["outlast-api", "outlast-runtime", "outlast-ports", "outlast-vocab"]),
    CrateRule::open(
        "outlast-compat",
        &["outlast-http", "outlast-runtime", "outlast-ports", "outlast-views", "outlast-vocab"],
    ),
    CrateRule::open(
        "outlast-server",
        &[
            "outlast-api",
            "outlast-compat",
            "outlast-http",
            "outlast-mcp-server",
            "outlast-runtime",
            "outlast-ports",
            "outlast-views",
            "outlast-vocab",
        ],
    ),
    CrateRule::open("outlast-client", &["outlast-api", "outlast-views", "outlast-vocab"]),
    CrateRule::open("outlast-macros", &[]),
    CrateRule::open(
        "outlast-trial",
        &[
            "outlast-kernel",
            "outlast-ledger",
            "outlast-ports",
            "outlast-providers",
            "outlast-runtime",
            "outlast-store",
            "outlast-views",
            "outlast-vocab",
        ],
    ),
    CrateRule::open("outlast", BELOW_FACADE),
    CrateRule::open("outlast-cli", FACADE_AND_BELOW),
    CrateRule::open("outlast-bench", BENCH),
    CrateRule::open("outlast-torture", &["outlast", "outlast-random"]),
    CrateRule::open(
        "outlast-conformance",
        &["outlast-ledger", "outlast-ports", "outlast-random", "outlast-views", "outlast-vocab"],
    ),
    CrateRule::closed("outlast-disk", &["outlast-random"], &["rusqlite"]),
    CrateRule::closed("outlast-playback", &[], &[]),
    CrateRule::closed("outlast-random", &[], &["rand_chacha"]),
    CrateRule::open(
        "outlast-sim",
        &[
            "outlast-conformance",
            "outlast-disk",
            "outlast-random",
            "outlast-store",
            "outlast-mcp",
            "outlast-runtime",
            "outlast-kernel",
            "outlast-ports",
            "outlast-views",
            "outlast-vocab",
        ],
    ),
    CrateRule::open(
        "outlast-fuzz",
        &[
            "outlast-conformance",
            "outlast-vocab",
            "outlast-kernel",
            "outlast-ports",
            "outlast-providers",
            "outlast-tools",
            "outlast-mcp",
            "outlast-validation",
        ],
    ),
    CrateRule::closed("example-tickets", &["outlast"], &["tokio"]),
    CrateRule::closed("xtask", &[], &["serde_json"]),
];

const FACADE_AND_BELOW: &[&str] = &[
    "outlast",
    "outlast-vocab",
    "outlast-kernel",
    "outlast-views",
    "outlast-ports",
    "outlast-ledger",
    "outlast-validation",
    "outlast-runtime",
    "outlast-store",
    "outlast-providers",
    "outlast-tools",
    "outlast-mcp",
    "outlast-mcp-server",
    "outlast-objects",
    "outlast-cedar",
    "outlast-sinks",
    "outlast-telemetry",
    "outlast-trial",
    "outlast-restate",
    "outlast-api",
    "outlast-http",
    "outlast-compat",
    "outlast-server",
    "outlast-client",
    "outlast-macros",
];

const BENCH: &[&str] = &["outlast", "outlast-kernel", "outlast-playback"];

const BELOW_FACADE: &[&str] = FACADE_AND_BELOW.split_at(1).1;

/// Crates that call C. They repeat the lints of the workspace, but deny `unsafe_code` instead of forbidding it, so that
/// one module can allow it.
const CALLS_C: &[&str] = &["outlast-disk"];

/// A crate of the workspace according to cargo.
pub(super) struct WorkspacePackage {
    name: String,
    manifest: RepoFile,
    dependencies: Vec<Dependency>,
}

struct Dependency {
    name: String,
    used: DependencyUse,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DependencyUse {
    Shipped,
    InTests,
}

/// Parses the output of `cargo metadata`.
pub(super) fn packages(
    metadata: &Value,
    read_manifest: impl Fn(&str) -> Result<RepoFile, String>,
) -> Result<Vec<WorkspacePackage>, String> {
    let text = |value: &Value, key: &str| {
        value[key]
            .as_str()
            .map(str::to_owned)
            .ok_or_else(|| format!("cargo metadata: expected a text at `{key}`"))
    };
    let list = |value: &Value, key: &str| {
        value[key].as_array().cloned().ok_or_else(|| format!("cargo metadata: expected a list at `{key}`"))
    };
    let mut packages = Vec::new();
    for package in list(metadata, "packages")? {
        let mut dependencies = Vec::new();
        for dependency in list(&package, "dependencies")? {
            let used =
                if dependency["kind"] == "dev" { DependencyUse::InTests } else { DependencyUse::Shipped };
            dependencies.push(Dependency { name: text(&dependency, "name")?, used });
        }
        let manifest = read_manifest(&text(&package, "manifest_path")?)?;
        packages.push(WorkspacePackage { name: text(&package, "name")?, manifest, dependencies });
    }
    Ok(packages)
}

/// Checks that the dependencies between crates of the workspace are those of the table.
pub(super) fn dependencies_are_allowed(packages: &[WorkspacePackage]) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for package in packages {
        let Some(row) = row(package) else {
            let what = format!(
                "expected a crate of the table in xtask/src/tidy/crates.rs, found `{}`; add it there and in \
                 ARCHITECTURE.md with what it may use",
                package.name
            );
            findings.push(TidyFinding::new(&package.manifest, 1, what));
            continue;
        };
        for dependency in package.bound_by(row) {
            let inside = packages.iter().any(|other| other.name == dependency.name);
            if inside && !row.may_use.contains(&dependency.name.as_str()) {
                let what = format!(
                    "`{}` may use {}, found `{}`; move what it needs down, or call it from above",
                    package.name,
                    listed(row.may_use),
                    dependency.name
                );
                findings.push(TidyFinding::new(&package.manifest, package.line_of(dependency), what));
            }
        }
    }
    findings
}

/// Checks that restricted crates use only the listed outside crates. Their tests may use more.
pub(super) fn outside_crates_are_listed(packages: &[WorkspacePackage]) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for package in packages {
        let Some(CrateRule { outside: OutsideCrates::Only(allowed), .. }) = row(package) else { continue };
        for dependency in
            package.dependencies.iter().filter(|dependency| dependency.used == DependencyUse::Shipped)
        {
            let inside = packages.iter().any(|other| other.name == dependency.name);
            if !inside && !allowed.contains(&dependency.name.as_str()) {
                let what = format!(
                    "from outside `{}` may use {}, found `{}`; do without, or do it in a crate above",
                    package.name,
                    listed(allowed),
                    dependency.name
                );
                findings.push(TidyFinding::new(&package.manifest, package.line_of(dependency), what));
            }
        }
    }
    findings
}

/// Checks that every crate uses the lints of the workspace, whose manifest is given.
pub(super) fn lints_are_shared(packages: &[WorkspacePackage], workspace: &str) -> Vec<TidyFinding> {
    packages
        .iter()
        .flat_map(|package| {
            let missing = if CALLS_C.contains(&package.name.as_str()) {
                lints_not_repeated(&package.manifest.text, workspace)
            } else if inherits_lints(&package.manifest.text) {
                Vec::new()
            } else {
                vec!["expected the lints of the workspace; add `[lints]` with `workspace = true`".to_owned()]
            };
            missing.into_iter().map(|what| TidyFinding::new(&package.manifest, 1, what))
        })
        .collect()
}

impl WorkspacePackage {
    /// Returns the dependencies that the row restricts.
    fn bound_by(&self, row: &CrateRule) -> impl Iterator<Item = &Dependency> {
        let tests_too = matches!(row.outside, OutsideCrates::Only(_));
        self.dependencies
            .iter()
            .filter(move |dependency| tests_too || dependency.used == DependencyUse::Shipped)
    }

    /// Returns the line of the dependency in the manifest, or the first line if it has another name there.
    fn line_of(&self, dependency: &Dependency) -> usize {
        let names_it = |line: &str| {
            line.trim_start()
                .strip_prefix(&dependency.name)
                .is_some_and(|rest| rest.starts_with([' ', '.', '=']))
        };
        self.manifest.lines().find(|(_, line)| names_it(line)).map_or(1, |(number, _)| number)
    }
}

fn row(package: &WorkspacePackage) -> Option<&'static CrateRule> {
    TABLE.iter().find(|row| row.name == package.name)
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { format!("only {}", names.join(", ")) }
}

fn inherits_lints(manifest: &str) -> bool {
    settings(manifest).contains(&("[lints]", "workspace=true".to_owned()))
}

/// Returns the lints of the workspace that a manifest does not repeat.
fn lints_not_repeated(manifest: &str, workspace: &str) -> Vec<String> {
    let own = settings(manifest);
    let of_workspace = settings(workspace).into_iter().filter_map(|(section, setting)| {
        let tool = section.strip_prefix("[workspace.lints.")?;
        Some((format!("[lints.{tool}"), setting.replace("unsafe_code=\"forbid\"", "unsafe_code=\"deny\"")))
    });
    of_workspace
        .filter(|(section, setting)| !own.contains(&(section.as_str(), setting.clone())))
        .map(|(section, setting)| {
            format!("expected the lint `{setting}` of the workspace; add it under `{section}`")
        })
        .collect()
}

/// Returns the settings of a manifest with their sections, without blanks and comments.
fn settings(manifest: &str) -> Vec<(&str, String)> {
    let mut section = "";
    let mut settings = Vec::new();
    for line in manifest.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        if line.starts_with('[') {
            section = line;
        } else if !line.is_empty() {
            settings.push((section, line.replace(' ', "")));
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::super::tests::expect;
    use super::*;
    use serde_json::json;

    struct Member {
        name: &'static str,
        manifest: &'static str,
        /// The kind and name of each dependency.
        uses: &'static [(&'static str, &'static str)],
    }

    const fn member(name: &'static str, uses: &'static [(&'static str, &'static str)]) -> Member {
        Member { name, manifest: "", uses }
    }

    /// Creates packages in the format of `cargo metadata`.
    fn workspace(members: &[Member]) -> Vec<WorkspacePackage> {
        let dependency = |(kind, name): &(&str, &str)| match *kind {
            "normal" => json!({ "kind": null, "name": name }),
            kind => json!({ "kind": kind, "name": name }),
        };
        let package = |member: &Member| {
            let dependencies: Vec<Value> = member.uses.iter().map(dependency).collect();
            json!({ "name": member.name, "manifest_path": member.name, "dependencies": dependencies })
        };
        let metadata = json!({ "packages": members.iter().map(package).collect::<Vec<_>>() });
        let read_manifest = |path: &str| {
            let member = members.iter().find(|member| member.name == path).expect("a package is a member");
            Ok(RepoFile { path: format!("{path}/Cargo.toml"), text: member.manifest.to_owned() })
        };
        packages(&metadata, read_manifest).unwrap()
    }

    #[test]
    fn dependency_on_a_higher_layer_is_found() {
        let workspace = workspace(&[
            member("outlast-ports", &[]),
            Member {
                name: "outlast-kernel",
                manifest: "[dependencies]\noutlast-ports.workspace = true",
                uses: &[("normal", "outlast-ports")],
            },
        ]);
        expect(
            &dependencies_are_allowed(&workspace),
            &[
                "outlast-kernel/Cargo.toml:2: `outlast-kernel` may use only outlast-vocab, found `outlast-ports`; \
               move what it needs down, or call it from above",
            ],
        );
    }

    #[test]
    fn build_dependency_counts_as_an_edge() {
        let workspace = workspace(&[
            member("outlast-store", &[]),
            member("outlast-tools", &[("build", "outlast-store")]),
        ]);
        assert_eq!(dependencies_are_allowed(&workspace).len(), 1);
    }

    #[test]
    fn dev_dependencies_may_point_up_except_pure_crates() {
        let wide = workspace(&[
            member("outlast-store", &[]),
            member("outlast-runtime", &[("dev", "outlast-store")]),
        ]);
        expect(&dependencies_are_allowed(&wide), &[]);
        let pure =
            workspace(&[member("outlast-ports", &[]), member("outlast-kernel", &[("dev", "outlast-ports")])]);
        assert_eq!(dependencies_are_allowed(&pure).len(), 1);
    }

    #[test]
    fn crate_missing_from_the_table_is_found() {
        expect(
            &dependencies_are_allowed(&workspace(&[member("outlast-utils", &[])])),
            &[
                "outlast-utils/Cargo.toml:1: expected a crate of the table in xtask/src/tidy/crates.rs, found \
               `outlast-utils`; add it there and in ARCHITECTURE.md with what it may use",
            ],
        );
    }

    #[test]
    fn external_dependency_of_a_pure_crate_is_found() {
        const USES: &[(&str, &str)] = &[("normal", "serde"), ("normal", "tokio"), ("dev", "proptest")];
        let vocab = Member { name: "outlast-vocab", manifest: "a\nb\ntokio = \"1\"", uses: USES };
        expect(
            &outside_crates_are_listed(&workspace(&[vocab])),
            &[
                "outlast-vocab/Cargo.toml:3: from outside `outlast-vocab` may use only blake3, serde, serde_json, found \
               `tokio`; do without, or do it in a crate above",
            ],
        );
        expect(&outside_crates_are_listed(&workspace(&[member("outlast-server", USES)])), &[]);
    }

    #[test]
    fn crate_without_workspace_lints_is_found() {
        let shared = workspace(&[Member {
            name: "xtask",
            manifest: "[package]\nname = \"xtask\"\n[lints]\nworkspace = true\n",
            uses: &[],
        }]);
        expect(&lints_are_shared(&shared, ""), &[]);
        let own = workspace(&[Member {
            name: "xtask",
            manifest: "[lints.rust]\nworkspace = true\n[dependencies]\n",
            uses: &[],
        }]);
        expect(
            &lints_are_shared(&own, ""),
            &[
                "xtask/Cargo.toml:1: expected the lints of the workspace; add `[lints]` with `workspace = true`",
            ],
        );
    }

    #[test]
    fn ffi_crate_must_repeat_the_workspace_lints() {
        const WORKSPACE: &str = "[workspace.lints.rust]\nunsafe_code = \"forbid\"\n[workspace.lints.clippy]\npedantic = \"warn\"\n";
        let disk = |manifest| workspace(&[Member { name: "outlast-disk", manifest, uses: &[] }]);
        let whole = disk("[lints.rust]\nunsafe_code = \"deny\"\n[lints.clippy]\npedantic = \"warn\"");
        expect(&lints_are_shared(&whole, WORKSPACE), &[]);
        let lax = disk("[lints.rust]\nunsafe_code = \"allow\"\n[lints.clippy]\npedantic = \"warn\"");
        expect(
            &lints_are_shared(&lax, WORKSPACE),
            &[
                "outlast-disk/Cargo.toml:1: expected the lint `unsafe_code=\"deny\"` of the workspace; add it under \
               `[lints.rust]`",
            ],
        );
    }

    #[test]
    fn crate_table_has_no_cycle() {
        // Each round removes the crates that use only removed ones; a cycle would remain.
        let mut left: Vec<&CrateRule> = TABLE.iter().collect();
        while !left.is_empty() {
            let names: Vec<&str> = left.iter().map(|row| row.name).collect();
            let before = left.len();
            left.retain(|row| row.may_use.iter().any(|used| names.contains(used)));
            assert!(left.len() < before, "a cycle among {names:?}");
        }
    }
}
