//! Kills the real process a hundred times in every way, with an outside witness that counts.
//!
//! `cargo xtask torture` does the same with a thousand kills, in release mode. The moments of the kills
//! depend on the machine, but every promise must hold.
#![cfg(unix)]
use outlast_torture::{
    PlantedError, PromiseViolationKind, TorturePlan, TortureReport, WitnessPlacement, run,
};
use std::path::Path;

fn torture(dir: &Path, kills: u64, planted: Option<PlantedError>) -> TortureReport {
    let plan = TorturePlan {
        outlast: env!("CARGO_BIN_EXE_outlast").into(),
        witness_placement: WitnessPlacement::Thread,
        dir: dir.to_owned(),
        seed: 0x5eed,
        kills: Some(kills),
        time: None,
        round: None,
        ballast: false,
        planted,
    };
    run(&plan, |line| println!("{line}")).unwrap()
}

#[test]
fn hundred_kills_break_no_guarantee() {
    let dir = tempfile::tempdir().unwrap();
    let TortureReport { figures, broken, .. } = torture(dir.path(), 100, None);
    println!("{}", figures.table());
    assert!(broken.is_empty(), "{broken:#?}\neverything is kept in {}", dir.keep().display());
    assert!(figures.kills() >= 100);
    assert!(
        figures.stops > 0 && figures.inputs > 50 && figures.executions > 100,
        "the seed draws too little"
    );
}

#[test]
fn falsified_torture_evidence_fails() {
    for (planted, promise) in [
        (PlantedError::Lost, PromiseViolationKind::Lost),
        (PlantedError::Repeated, PromiseViolationKind::Repeated),
    ] {
        let dir = tempfile::tempdir().unwrap();
        // Enough kills that the seed draws a payment, which the planted error repeats.
        let report = torture(dir.path(), 20, Some(planted));
        assert!(report.broken.iter().any(|broken| broken.promise == promise), "{planted:?} went unnoticed");
        assert!(report.failed.is_some_and(|(_, dir)| dir.is_dir()));
    }
}
