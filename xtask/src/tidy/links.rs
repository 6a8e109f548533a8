//! Links between the pages of the repository must be valid. Web addresses are not checked.
use super::{RepoFile, TidyFinding};
use crate::markdown::{self, Link, anchors, is_external, prose_lines, resolve};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Checks that each relative link of a Markdown page names a file or directory of the repository, and that the part
/// after `#` is a heading of that page.
pub(super) fn links_lead_somewhere(files: &[RepoFile]) -> Vec<TidyFinding> {
    let places: BTreeSet<&Path> = files.iter().flat_map(|file| Path::new(&file.path).ancestors()).collect();
    let pages: BTreeMap<&Path, BTreeSet<String>> = files
        .iter()
        .filter(|file| file.is_markdown())
        .map(|file| (Path::new(&file.path), anchors(&file.text)))
        .collect();
    let mut findings = Vec::new();
    for page in files.iter().filter(|file| file.is_markdown()) {
        for Target { line, path, anchor } in targets(page) {
            let place =
                if path.is_empty() { Some(page.path.clone().into()) } else { resolve(&page.path, path) };
            let Some(place) = place.filter(|place| places.contains(place.as_path())) else {
                let what = format!("expected a file at `{path}`, found none; correct the link");
                findings.push(TidyFinding::new(page, line, what));
                continue;
            };
            let headings = pages.get(place.as_path());
            if let (Some(anchor), Some(headings)) = (anchor, headings)
                && !headings.contains(anchor)
            {
                let what = format!(
                    "expected a heading `#{anchor}` in {}, found none; correct the link",
                    place.display()
                );
                findings.push(TidyFinding::new(page, line, what));
            }
        }
    }
    findings
}

/// Where a link leads, within the repository.
struct Target<'a> {
    line: usize,
    /// Empty for a link within the page.
    path: &'a str,
    anchor: Option<&'a str>,
}

fn targets(page: &RepoFile) -> Vec<Target<'_>> {
    let inline = markdown::links(&page.text);
    let inline = inline.iter().filter(|link| !link.is_external() && !link.target.is_empty());
    let mut targets: Vec<Target<'_>> = inline
        .map(|link: &Link<'_>| Target { line: link.line, path: link.path(), anchor: link.anchor() })
        .collect();
    let definitions = prose_lines(&page.text).filter_map(|(line, _, text)| Some((line, definition(text)?)));
    targets.extend(definitions.filter(|(_, target)| !is_external(target)).map(|(line, target)| {
        let (path, anchor) =
            target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
        Target { line, path, anchor }
    }));
    targets
}

/// Returns the target of `[name]: target`.
fn definition(line: &str) -> Option<&str> {
    let (name, target) = line.strip_prefix('[')?.split_once("]: ")?;
    if name.contains(']') { None } else { target.split_whitespace().next() }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{expect, files};
    use super::*;

    #[test]
    fn broken_link_is_found() {
        expect(
            &links_lead_somewhere(&files(&[
                ("README.md", "# Top\n[a](docs/a.md) and [b](docs/b.md)\n![c](c.png)\n[up](../x.md)\n"),
                ("docs/a.md", "\n[home](../README.md#top)\n[home]: ../READ.md\n"),
            ])),
            &[
                "README.md:2: expected a file at `docs/b.md`, found none; correct the link",
                "README.md:3: expected a file at `c.png`, found none; correct the link",
                "README.md:4: expected a file at `../x.md`, found none; correct the link",
                "docs/a.md:3: expected a file at `../READ.md`, found none; correct the link",
            ],
        );
    }

    #[test]
    fn link_to_missing_heading_is_found() {
        expect(
            &links_lead_somewhere(&files(&[
                ("README.md", "# Top\n[a](docs/a.md#two-words) [b](docs/a.md#one) [c](#top) [d](#bottom)\n"),
                ("docs/a.md", "# A\n## Two words\n```sh\n# one\n```\n"),
            ])),
            &[
                "README.md:2: expected a heading `#one` in docs/a.md, found none; correct the link",
                "README.md:2: expected a heading `#bottom` in README.md, found none; correct the link",
            ],
        );
    }

    #[test]
    fn directories_the_web_and_code_are_left_alone() {
        let page = "# Top\n[d](docs/) [e](/docs/a.md) [f](./docs) [g](#top) [h](https://example.org/x#y) [i](mailto:a@b)\n\
                    `[j](nowhere.md)`\n```\n[k](nowhere.md)\n```\n[l](docs/a.md \"title\")\n";
        expect(&links_lead_somewhere(&files(&[("README.md", page), ("docs/a.md", "")])), &[]);
    }
}
