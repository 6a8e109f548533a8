//! Every file of the corpus, replayed: what was found once stays mended, without libFuzzer.
use outlast_fuzz::TARGETS;
use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn names(folder: &Path) -> BTreeSet<String> {
    let found = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    found.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn nothing_in_the_corpus_is_a_finding() {
    for target in TARGETS {
        let folder = fuzz().join("corpus").join(target.name);
        let mut files = 0;
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            // Shown when the target panics.
            println!("{}", path.display());
            (target.run)(&fs::read(&path).unwrap());
            files += 1;
        }
        assert!(files > 0, "{} is empty", folder.display());
    }
}

#[test]
fn every_target_has_its_program_and_its_corpus_and_there_are_no_others() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(names(&fuzz().join("corpus")), targets);
    assert_eq!(names(&fuzz().join("src/bin")), targets);
}

#[test]
fn the_planted_fault_is_there_to_be_found() {
    outlast_fuzz::run("planted", b"\xf0utl\x00st?");
    catch_unwind(|| outlast_fuzz::run("planted", b"\xf0utl\x00st! and more")).expect_err("it is a finding");
}
