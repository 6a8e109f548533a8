//! Links between the pages of the repository must be valid. Web addresses are not checked.
use super::{RepoFile, TidyFinding};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// Checks that each relative link of a Markdown page names a file or directory of the repository.
pub(super) fn links_lead_somewhere(files: &[RepoFile]) -> Vec<TidyFinding> {
    let places: BTreeSet<&Path> = files.iter().flat_map(|file| Path::new(&file.path).ancestors()).collect();
    let mut findings = Vec::new();
    for page in files.iter().filter(|file| file.is_markdown()) {
        for (line, target) in links(page) {
            if !resolve(&page.path, target).is_some_and(|place| places.contains(place.as_path())) {
                let what = format!("expected a file at `{target}`, found none; correct the link");
                findings.push(TidyFinding::new(page, line, what));
            }
        }
    }
    findings
}

/// Returns the link targets within the repository, without the part after `#`.
fn links(page: &RepoFile) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    let mut in_fence = false;
    for (number, line) in page.lines() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        }
        if in_fence {
            continue;
        }
        let inline =
            line.match_indices("](").filter(|(at, _)| !in_code(line, *at)).filter_map(|(at, opening)| {
                let target = &line[at + opening.len()..];
                target.find(')').map(|end| &target[..end])
            });
        let targets = inline.chain(definition(line)).filter_map(|target| {
            let target = target.split_whitespace().next()?.trim_matches(['<', '>']);
            let place = target.split('#').next().unwrap_or_default();
            (!place.is_empty() && !target.contains("://") && !target.starts_with("mailto:")).then_some(place)
        });
        links.extend(targets.map(|target| (number, target)));
    }
    links
}

/// Returns whether the position is between backticks.
fn in_code(line: &str, at: usize) -> bool {
    line[..at].matches('`').count() % 2 == 1
}

/// Returns the target of `[name]: target`.
fn definition(line: &str) -> Option<&str> {
    let (name, target) = line.strip_prefix('[')?.split_once("]: ")?;
    (!name.contains(']')).then_some(target)
}

/// Resolves a link relative to the root. A link out of the repository is invalid.
fn resolve(page: &str, target: &str) -> Option<PathBuf> {
    let mut place = match target.strip_prefix('/') {
        Some(_) => PathBuf::new(),
        None => Path::new(page).parent()?.to_path_buf(),
    };
    for component in Path::new(target).components() {
        match component {
            Component::ParentDir => {
                if !place.pop() {
                    return None;
                }
            }
            Component::Normal(name) => place.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Some(place)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{expect, files};
    use super::*;

    #[test]
    fn broken_link_is_found() {
        expect(
            &links_lead_somewhere(&files(&[
                ("README.md", "[a](docs/a.md) and [b](docs/b.md)\n![c](c.png)\n[up](../x.md)\n"),
                ("docs/a.md", "\n[home](../README.md#top)\n[home]: ../READ.md\n"),
            ])),
            &[
                "README.md:1: expected a file at `docs/b.md`, found none; correct the link",
                "README.md:2: expected a file at `c.png`, found none; correct the link",
                "README.md:3: expected a file at `../x.md`, found none; correct the link",
                "docs/a.md:3: expected a file at `../READ.md`, found none; correct the link",
            ],
        );
    }

    #[test]
    fn directory_anchor_web_and_code_links_are_ignored() {
        let page = "[d](docs/) [e](/docs/a.md) [f](./docs) [g](#top) [h](https://example.org/x) [i](mailto:a@b)\n\
                    `[j](nowhere.md)`\n```\n[k](nowhere.md)\n```\n[l](docs/a.md \"title\")\n";
        expect(&links_lead_somewhere(&files(&[("README.md", page), ("docs/a.md", "")])), &[]);
    }
}
