//! The features of the façade: how many crates its defaults need, and that all our programs are built with the same
//! features, so that no crate is compiled twice.
use super::{RepoFile, TidyFinding};
use std::collections::{BTreeMap, BTreeSet};

/// The limit for the crates of `outlast` with its default features, itself included.
const DEFAULT_CRATES: usize = 175;

/// Arguments of cargo that print one crate of the default features per line. The platform is fixed, because the number
/// depends on it.
pub(super) const DEFAULT_TREE: [&str; 9] = [
    "tree",
    "--locked",
    "--package=outlast",
    "--edges=normal",
    "--prefix=none",
    "--format={p}",
    "--target=x86_64-unknown-linux-gnu",
    "--charset=ascii",
    "--quiet",
];

/// Arguments of cargo that print each crate of a build with its features, one per line. The packages follow.
pub(super) const FEATURE_TREE: [&str; 6] =
    ["tree", "--locked", "--edges=normal,build", "--prefix=none", "--format={p}|{f}", "--quiet"];

/// Checks that the default features stay small. The manifest is that of the façade.
pub(super) fn default_crates_are_few(manifest: &RepoFile, tree: &str) -> Vec<TidyFinding> {
    let crates: BTreeSet<String> = tree.lines().map(name_and_version).collect();
    if crates.len() <= DEFAULT_CRATES {
        return Vec::new();
    }
    let line = manifest.lines().find(|(_, text)| text.starts_with("default =")).map_or(1, |(line, _)| line);
    let what = format!(
        "the default features of `outlast` may need at most {DEFAULT_CRATES} crates, found {}; put what is heavy behind a \
         feature (`cargo tree -p outlast -e normal`)",
        crates.len()
    );
    vec![TidyFinding::new(manifest, line, what)]
}

/// Checks that the binary has the same features whether it is built alone or with the programs that measure and torture
/// it. The manifest is that of the binary.
pub(super) fn programs_share_features(manifest: &RepoFile, alone: &str, together: &str) -> Vec<TidyFinding> {
    let together = features(together);
    let differs = |(name, alone): (String, BTreeSet<String>)| {
        let added: Vec<&str> = together.get(&name)?.difference(&alone).map(String::as_str).collect();
        let what = format!(
            "the programs of `testing` build `{name}` with `{}` and the binary does not, so it is compiled twice; switch that \
             on here, too",
            added.join(",")
        );
        (!added.is_empty()).then(|| TidyFinding::new(manifest, 1, what))
    };
    features(alone).into_iter().filter_map(differs).collect()
}

/// Returns the features of each crate. A crate that is also built for build scripts has a second set of them.
fn features(tree: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (package, features) in tree.lines().filter_map(|line| line.split_once('|')) {
        let features = features.trim_end_matches(" (*)").to_owned();
        all.entry(name_and_version(package)).or_default().insert(features);
    }
    all
}

/// Reads `serde v1.0.229 (proc-macro) (*)` as `serde v1.0.229`.
fn name_and_version(line: &str) -> String {
    line.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{expect, files};
    use super::*;
    use std::fmt::Write;

    #[test]
    fn too_many_default_crates_are_counted() {
        let manifest = &files(&[("crates/outlast/Cargo.toml", "[features]\ndefault = [\"all\"]\n")])[0];
        let mut tree = "outlast v0.1.0 (/somewhere)\n".to_owned();
        for number in 1..175 {
            writeln!(tree, "crate{number} v1.0.0").unwrap();
            writeln!(tree, "crate{number} v1.0.0 (proc-macro) (*)").unwrap();
        }
        expect(&default_crates_are_few(manifest, &tree), &[]);
        tree.push_str("crate1 v2.0.0\n");
        expect(
            &default_crates_are_few(manifest, &tree),
            &[
                "crates/outlast/Cargo.toml:2: the default features of `outlast` may need at most 175 crates, found 176; put \
               what is heavy behind a feature (`cargo tree -p outlast -e normal`)",
            ],
        );
    }

    #[test]
    fn features_that_only_tests_add_are_found() {
        let manifest = &files(&[("crates/cli/Cargo.toml", "")])[0];
        let alone = "serde v1.0.0|derive,std\ntokio v1.0.0|time\ntokio v1.0.0|time (*)\n";
        let same = "bench v0.1.0 (/somewhere)|\nserde v1.0.0|derive,std (*)\ntokio v1.0.0|time\n";
        expect(&programs_share_features(manifest, alone, same), &[]);
        let more = "serde v1.0.0|derive,std\ntokio v1.0.0|net,time\n";
        expect(
            &programs_share_features(manifest, alone, more),
            &[
                "crates/cli/Cargo.toml:1: the programs of `testing` build `tokio v1.0.0` with `net,time` and the binary does \
               not, so it is compiled twice; switch that on here, too",
            ],
        );
    }
}
