//! Nothing in the repository depends on the machine of a developer or on its package mirrors.
use super::{RepoFile, TidyFinding};

// Written in two halves, so that this file does not violate its own rule.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/fa", "rm/")];

const REGISTRY_HOSTS: &[&str] = &[
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("registry.", "npmjs.org"),
    concat!("registry.", "yarnpkg.com"),
    concat!("py", "pi.org"),
    concat!("files.", "pythonhosted.org"),
];

/// The default source in a lock file, independent of mirrors.
const PUBLIC_INDEX: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

/// Checks that no file contains a path of a developer's machine or a host of a package registry.
pub(super) fn no_machine_is_named(files: &[RepoFile]) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for file in files {
        for (number, line) in file.lines() {
            for path in MACHINE_PATHS.iter().filter(|path| has_absolute(line, path)) {
                let what = format!(
                    "expected no path of one machine, found `{path}`; write it from the root of the repository"
                );
                findings.push(TidyFinding::new(file, number, what));
            }
            for host in REGISTRY_HOSTS.iter().filter(|host| line.contains(**host)) {
                let what = format!(
                    "expected no package registry, found `{host}`; name the package, not where it is kept"
                );
                findings.push(TidyFinding::new(file, number, what));
            }
        }
    }
    findings
}

/// Checks that lock files and cargo's settings name no registry except the public index.
pub(super) fn crates_come_from_the_public_index(files: &[RepoFile]) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for lock in files.iter().filter(|file| file.path == "Cargo.lock") {
        for (number, line) in
            lock.lines().filter(|(_, line)| line.starts_with("source = ") && *line != PUBLIC_INDEX)
        {
            let what =
                format!("expected `{PUBLIC_INDEX}`, found `{line}`; use a published crate and lock again");
            findings.push(TidyFinding::new(lock, number, what));
        }
    }
    for settings in files.iter().filter(|file| file.path.starts_with(".cargo/")) {
        let names_one =
            |line: &str| ["[source", "[registr"].iter().any(|section| line.trim_start().starts_with(section));
        for (number, line) in settings.lines().filter(|(_, line)| names_one(line)) {
            let what =
                format!("expected no registry in the settings, found `{line}`; keep it in your own home");
            findings.push(TidyFinding::new(settings, number, what));
        }
    }
    findings
}

/// Returns whether the line contains the path as an absolute path, not as the end of a longer path or address.
fn has_absolute(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_-.~}".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{expect, files};
    use super::*;

    #[test]
    fn each_machine_path_and_registry_is_found() {
        for path in MACHINE_PATHS {
            expect(
                &no_machine_is_named(&files(&[("a.md", &format!("\nsee `{path}x`"))])),
                &[&format!(
                    "a.md:2: expected no path of one machine, found `{path}`; write it from the root of the repository"
                )],
            );
        }
        for host in REGISTRY_HOSTS {
            expect(
                &no_machine_is_named(&files(&[("a.toml", &format!("url = \"https://{host}/x\""))])),
                &[&format!(
                    "a.toml:1: expected no package registry, found `{host}`; name the package, not where it is kept"
                )],
            );
        }
    }

    #[test]
    fn similar_path_inside_another_is_allowed() {
        let text =
            MACHINE_PATHS.iter().map(|path| format!("https://example.org{path}x ../a{path}y .{path}z\n"));
        expect(&no_machine_is_named(&files(&[("a.md", &text.collect::<String>())])), &[]);
    }

    #[test]
    fn crate_from_another_registry_is_found() {
        let lock =
            format!("[[package]]\n{PUBLIC_INDEX}\n[[package]]\nsource = \"git+https://example.org/x\"\n");
        expect(
            &crates_come_from_the_public_index(&files(&[
                ("Cargo.lock", &lock),
                (".cargo/config.toml", "[alias]\nx = \"y\"\n[source.mirror]\n"),
            ])),
            &[
                &format!(
                    "Cargo.lock:4: expected `{PUBLIC_INDEX}`, found `source = \"git+https://example.org/x\"`; use a \
                     published crate and lock again"
                ),
                ".cargo/config.toml:3: expected no registry in the settings, found `[source.mirror]`; keep it in your own \
                 home",
            ],
        );
    }
}
