//! Replays every file of the corpus, and then mutates it at random for a moment. Fixed findings stay fixed, and every
//! test run searches a little further, without libFuzzer.
use outlast_fuzz::TARGETS;
use outlast_random::SeededRandom;
use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long to run each target on mutated inputs.
const MOMENT: Duration = Duration::from_millis(1_500);

/// The maximum size of a mutated input in bytes.
const LONGEST: usize = 16 << 10;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn names(folder: &Path) -> BTreeSet<String> {
    let found = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    found.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn corpus_inputs_cause_no_crash() {
    for target in TARGETS {
        let folder = fuzz().join("corpus").join(target.name);
        let mut files = 0;
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            // Shown if the target panics.
            println!("{}", path.display());
            (target.run)(&fs::read(&path).unwrap());
            files += 1;
        }
        assert!(files > 0, "{} is empty", folder.display());
    }
}

#[test]
fn targets_match_their_programs_and_corpora() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(names(&fuzz().join("corpus")), targets);
    assert_eq!(names(&fuzz().join("src/bin")), targets);
}

#[test]
fn planted_fault_crashes_on_its_input() {
    outlast_fuzz::run("planted", b"\xf0utl\x00st?");
    catch_unwind(|| outlast_fuzz::run("planted", b"\xf0utl\x00st! and more")).expect_err("it is a finding");
}

/// Changes inputs at random.
struct InputMutator(SeededRandom);

impl InputMutator {
    fn below(&mut self, end: usize) -> usize {
        self.0.index(end)
    }

    fn byte(&mut self) -> u8 {
        const TELLING: &[u8] = b"\0\n\r\t \"\\{}[]:,.-_/0129aefnt\x7f\x80\xc3\xe2\xff";
        let any = self.0.number().to_le_bytes()[0];
        if any & 1 == 0 { any } else { TELLING[self.below(TELLING.len())] }
    }

    /// Returns an input of the corpus with a few mutations, sometimes with a piece of another input.
    fn changed(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut input = corpus[self.below(corpus.len())].clone();
        for _ in 0..=self.below(6) {
            let at = self.below(input.len() + 1);
            match self.below(6) {
                0 => input.insert(at, self.byte()),
                1 if at < input.len() => input[at] = self.byte(),
                2 if at < input.len() => input[at] ^= 1 << self.below(8),
                3 => {
                    let end = at + self.below(input.len() - at + 1).min(64);
                    input.drain(at..end);
                }
                4 => {
                    let end = at + self.below(input.len() - at + 1).min(256);
                    let piece = input[at..end].to_vec();
                    let to = self.below(input.len() + 1);
                    input.splice(to..to, piece);
                }
                _ => {
                    let other = &corpus[self.below(corpus.len())];
                    let from = self.below(other.len() + 1);
                    let to = from + self.below(other.len() - from + 1).min(256);
                    input.splice(at..at, other[from..to].iter().copied());
                }
            }
        }
        input.truncate(LONGEST);
        input
    }
}

#[test]
fn mutated_inputs_cause_no_crash() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    let seed = u64::from(now.subsec_nanos()) ^ now.as_secs();
    let mut inputs = 0_u64;
    for target in TARGETS.iter().filter(|target| target.name != "planted") {
        let files = fs::read_dir(fuzz().join("corpus").join(target.name)).unwrap();
        let corpus: Vec<Vec<u8>> = files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect();
        let (mut mutator, begun) = (InputMutator(SeededRandom::new(seed, 0)), Instant::now());
        while begun.elapsed() < MOMENT {
            let input = mutator.changed(&corpus);
            inputs += 1;
            if catch_unwind(|| (target.run)(&input)).is_err() {
                let path = fuzz().join("crashes").join(format!("{}-{seed}", target.name));
                fs::create_dir_all(fuzz().join("crashes")).unwrap();
                fs::write(&path, &input).unwrap();
                panic!("{} found something; its input is {}", target.name, path.display());
            }
        }
    }
    assert!(inputs > 1_000, "only {inputs} inputs in all");
    println!("{inputs} inputs with seed {seed}");
}
