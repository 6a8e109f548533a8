//! Replays files on a fuzz target, without libFuzzer: `cargo run -p outlast-fuzz -- TARGET FILE…`.
use outlast_fuzz::TARGETS;
use std::process::ExitCode;
use std::{env, fs};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let target = args.first().and_then(|name| TARGETS.iter().find(|target| target.name == name));
    let (Some(target), Some(files @ [_, ..])) = (target, args.get(1..)) else {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("usage: outlast-fuzz TARGET FILE…\n\ntargets: {}", names.join(", "));
        return ExitCode::from(2);
    };
    for file in files {
        match fs::read(file) {
            Ok(data) => (target.run)(&data),
            Err(error) => {
                eprintln!("{file} cannot be read: {error}");
                return ExitCode::FAILURE;
            }
        }
        println!("{file}: nothing found");
    }
    ExitCode::SUCCESS
}
