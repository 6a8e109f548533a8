//! `cargo xtask book`: builds the documentation as a web site with search, in `target/book`.
//!
//! Copies the pages into `target/book-source`, adds the generated reference ([`reference`]), and runs mdBook. The pages
//! keep their paths, so their links work unchanged. Links to files that are not in the book become text.
mod reference;

use crate::command::{self, run};
use crate::{markdown, required_tools};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

const SOURCE: &str = "target/book-source";
const OUTPUT: &str = "target/book";
const SUMMARY: &str = "docs/SUMMARY.md";
/// In the summary, the place of the generated reference.
const REFERENCE_MARKER: &str = "<!-- cargo xtask book";
const ROOT_PAGES: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];
const DIRECTORIES: [&str; 2] = ["docs", "changes/unreleased"];
const SETTINGS: &str = r#"[book]
title = "Outlast"
language = "en"
src = "."

[build]
build-dir = "../book"
create-missing = false

[output.html]
no-section-label = true
smart-punctuation = false
additional-css = ["book.css"]
fold = { enable = true, level = 0 }
playground = { runnable = false }
search = { limit-results = 30, boost-title = 3, boost-hierarchy = 2 }
"#;

/// Code of the guide has up to 120 columns.
const STYLE: &str = ":root { --content-max-width: 1000px; }\n";

/// Pages by their path, either from the root of the repository or generated.
type Pages = BTreeMap<String, String>;

pub(crate) fn run_command(root: &Path) -> ExitCode {
    match build(root) {
        Ok(()) => {
            println!("book: open {OUTPUT}/index.html");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("book: {error}");
            ExitCode::FAILURE
        }
    }
}

fn build(root: &Path) -> Result<(), String> {
    if let Some(missing) = required_tools::install_for_book().into_iter().next() {
        return Err(missing);
    }
    let source = root.join(SOURCE);
    for directory in [&source, &root.join(OUTPUT)] {
        if directory.exists() {
            fs::remove_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        }
    }
    let mut pages = Pages::new();
    for path in files(root)? {
        if Path::new(&path).extension().is_some_and(|extension| extension == "md") {
            let text = fs::read_to_string(root.join(&path)).map_err(|error| format!("{path}: {error}"))?;
            pages.insert(path, text);
        } else {
            let target = source.join(&path);
            make_parent(&target)?;
            fs::copy(root.join(&path), &target).map_err(|error| format!("{path}: {error}"))?;
        }
    }
    command::print_step("cargo run -p outlast-cli -- man --markdown");
    let commands = command::output(command::program(root, "outlast-cli", "dev").args(["man", "--markdown"]))?;
    pages.insert("reference/commands.md".to_owned(), reference::commands(&commands));
    pages.insert("reference/errors.md".to_owned(), reference::errors(&pages));
    pages.extend(reference::configuration(&read_json(root, "docs/outlast.schema.json")?));
    pages.extend(reference::http(&read_json(root, "docs/openapi.json")?));
    let exists = |path: &Path| pages.contains_key(&*path.to_string_lossy()) || source.join(path).is_file();
    let mut finished: Pages =
        pages.iter().map(|(path, text)| (path.clone(), adapt_links(path, text, exists))).collect();
    finished.remove(SUMMARY);
    finished.insert("SUMMARY.md".to_owned(), summary(&pages)?);
    for (path, text) in finished {
        let path = source.join(path);
        make_parent(&path)?;
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    fs::write(source.join("book.toml"), SETTINGS).map_err(|error| format!("book.toml: {error}"))?;
    fs::write(source.join("book.css"), STYLE).map_err(|error| format!("book.css: {error}"))?;
    let mdbook = root.join("target/needs/mdbook/bin/mdbook");
    if !run(Command::new(mdbook).arg("build").arg(&source)).succeeded {
        return Err("mdbook failed".to_owned());
    }
    let broken = broken_links(&root.join(OUTPUT))?;
    if broken.is_empty() { Ok(()) } else { Err(format!("links to nothing:\n{}", broken.join("\n"))) }
}

/// Returns the paths of the files that belong to the book.
fn files(root: &Path) -> Result<Vec<String>, String> {
    let mut files: Vec<String> = ROOT_PAGES.map(String::from).to_vec();
    let mut directories: Vec<PathBuf> = DIRECTORIES.map(|directory| root.join(directory)).to_vec();
    while let Some(directory) = directories.pop() {
        let fail = |error| format!("{}: {error}", directory.display());
        for entry in fs::read_dir(&directory).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            if path.is_dir() {
                directories.push(path);
            } else if let Ok(path) = path.strip_prefix(root) {
                files.push(path.to_string_lossy().into_owned());
            }
        }
    }
    Ok(files)
}

fn make_parent(path: &Path) -> Result<(), String> {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))
}

fn read_json(root: &Path, path: &str) -> Result<Value, String> {
    let text = fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))
}

/// Adapts the links of a page to the book. Replaces links to files outside the book by their text. If the text does not
/// name the file, its path follows.
fn adapt_links(path: &str, page: &str, exists: impl Fn(&Path) -> bool) -> String {
    let mut text = page.to_owned();
    for link in markdown::links(page).into_iter().rev() {
        if link.is_external() || link.path().is_empty() {
            continue;
        }
        let Some(place) = markdown::resolve(path, link.path()) else { continue };
        if exists(&place) {
            // mdBook makes `index.html` of a README.md, but does not change links to it.
            if place.ends_with("README.md") {
                let target = link.target.replace("README.md", "index.md");
                text.replace_range(link.span, &format!("[{}]({target})", link.text));
            }
            continue;
        }
        let names =
            [place.file_name(), place.file_stem()].map(|name| name.unwrap_or_default().to_string_lossy());
        let is_named = names.iter().any(|name| link.text.trim_end_matches('`').ends_with(&**name));
        let place = place.display();
        let plain = if is_named { link.text.to_owned() } else { format!("{} (`{place}`)", link.text) };
        text.replace_range(link.span, &plain);
    }
    text
}

/// Returns the summary of the book: `docs/SUMMARY.md` with the generated pages, the decisions and the changes.
fn summary(pages: &Pages) -> Result<String, String> {
    let text = pages.get(SUMMARY).ok_or_else(|| format!("expected {SUMMARY}; found none"))?;
    let mut summary = String::new();
    for line in text.lines() {
        if line.starts_with(REFERENCE_MARKER) {
            write_reference(pages, &mut summary);
            continue;
        }
        let mut line = line.to_owned();
        let mut listed = "";
        if let Some(link) = markdown::links(&line.clone()).first() {
            let place = markdown::resolve(SUMMARY, link.path()).unwrap_or_default();
            line = line.replace(link.target, &place.to_string_lossy());
            listed = match place.to_str() {
                Some("docs/adr/README.md") => "docs/adr/0",
                Some("CHANGELOG.md") => "changes/unreleased/",
                _ => "",
            };
        }
        summary.push_str(&line);
        summary.push('\n');
        if !listed.is_empty() {
            write_items(pages, listed, &mut summary);
        }
    }
    Ok(summary)
}

fn write_reference(pages: &Pages, summary: &mut String) {
    summary.push_str("# Reference\n\n- [Commands](reference/commands.md)\n");
    summary
        .push_str("- [Keys of outlast.toml](reference/configuration.md)\n- [HTTP API](reference/http.md)\n");
    write_items(pages, "reference/http/", summary);
    summary.push_str("- [Error codes](reference/errors.md)\n");
    write_items(pages, "docs/errors/", summary);
}

/// Appends the pages of a directory as items of the second level.
fn write_items(pages: &Pages, prefix: &str, summary: &mut String) {
    for (path, text) in pages.iter().filter(|(path, _)| path.starts_with(prefix)) {
        let title = markdown::title(text).unwrap_or(path);
        writeln!(summary, "  - [{title}]({path})").expect("writing to a string succeeds");
    }
}

/// Returns the links of the finished pages that lead to no file or to no heading.
fn broken_links(book: &Path) -> Result<Vec<String>, String> {
    let mut pages = BTreeMap::new();
    let mut directories = vec![book.to_path_buf()];
    while let Some(directory) = directories.pop() {
        let fail = |error| format!("{}: {error}", directory.display());
        for entry in fs::read_dir(&directory).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "html") {
                let text =
                    fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                let page = path.strip_prefix(book).unwrap_or(&path).to_string_lossy().into_owned();
                pages.insert(page, text);
            }
        }
    }
    // The page of all pages moves every link, and the error page belongs to no directory.
    pages.retain(|page, _| !["print.html", "404.html", "toc.html"].contains(&page.as_str()));
    let mut broken = Vec::new();
    for (page, text) in &pages {
        for target in attributes(text, "href").chain(attributes(text, "src")) {
            if target.is_empty() || markdown::is_external(target) {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let place = if path.is_empty() { Some(page.into()) } else { markdown::resolve(page, path) };
            let place = place.unwrap_or_default();
            let found = match pages.get(&*place.to_string_lossy()) {
                Some(text) => anchor.is_empty() || text.contains(&format!("id=\"{anchor}\"")),
                None => book.join(&place).is_file(),
            };
            if !found {
                broken.push(format!("{page}: {target}"));
            }
        }
    }
    Ok(broken)
}

/// Returns the values of an attribute, in order.
fn attributes<'a>(html: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let opening = format!(" {name}=\"");
    let length = opening.len();
    let found: Vec<usize> = html.match_indices(&opening).map(|(at, _)| at + length).collect();
    found.into_iter().filter_map(move |at| html[at..].split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(texts: &[(&str, &str)]) -> Pages {
        texts.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn links_out_of_the_book_become_text() {
        let page = "[`first.rs`](../../examples/first.rs), [a\ntable](../../t.json), [b](b.md#x), [c](#c), [d](http://d), \
                    [e](../README.md#e)";
        let exists = |path: &Path| ["docs/guide/b.md", "docs/README.md"].map(Path::new).contains(&path);
        assert_eq!(
            adapt_links("docs/guide/a.md", page, exists),
            "`first.rs`, a\ntable (`t.json`), [b](b.md#x), [c](#c), [d](http://d), [e](../index.md#e)"
        );
    }

    #[test]
    fn generated_pages_are_added_to_the_summary() {
        let pages = pages(&[
            (SUMMARY, "[Home](../README.md)\n<!-- cargo xtask book … -->\n- [Decisions](adr/README.md)\n"),
            ("docs/adr/0001-one.md", "# One\n"),
            ("docs/errors/a.b.md", "# a.b\n"),
            ("reference/http/turns.md", "# Turns\n"),
        ]);
        assert_eq!(
            summary(&pages).unwrap(),
            "[Home](README.md)\n\
             # Reference\n\n\
             - [Commands](reference/commands.md)\n\
             - [Keys of outlast.toml](reference/configuration.md)\n\
             - [HTTP API](reference/http.md)\n  - [Turns](reference/http/turns.md)\n\
             - [Error codes](reference/errors.md)\n  - [a.b](docs/errors/a.b.md)\n\
             - [Decisions](docs/adr/README.md)\n  - [One](docs/adr/0001-one.md)\n"
        );
    }

    #[test]
    fn attributes_of_html_are_read() {
        let html = r#"<a class="x" href="a.html#b">a</a><img src="c.png"><a href="">"#;
        assert_eq!(attributes(html, "href").collect::<Vec<_>>(), ["a.html#b", ""]);
    }
}
