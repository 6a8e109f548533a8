//! What the disk under the database can do.
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

const SYNCS: usize = 100;
const BYTES: usize = 1 << 10;

/// Room and speed.
pub(super) struct Disk {
    pub(super) free: u64,
    pub(super) total: u64,
    /// Half of the syncs were faster.
    pub(super) p50: Duration,
    /// One in a hundred was slower.
    pub(super) p99: Duration,
}

impl Disk {
    /// Measures where the database lives, with a file of its own that is removed again.
    pub(super) fn measure(folder: &Path) -> io::Result<Self> {
        let room = rustix::fs::statvfs(folder)?;
        let path = folder.join(format!(".outlast-doctor-{}", std::process::id()));
        let syncs = time_syncs(&path);
        // Whether it could be made or not: nothing of it is to stay.
        let _ = fs::remove_file(&path);
        let mut syncs = syncs?;
        syncs.sort_unstable();
        Ok(Self {
            free: room.f_bavail.saturating_mul(room.f_frsize),
            total: room.f_blocks.saturating_mul(room.f_frsize),
            p50: syncs[SYNCS / 2],
            p99: syncs[SYNCS - 1 - SYNCS / 100],
        })
    }
}

fn time_syncs(path: &Path) -> io::Result<Vec<Duration>> {
    let mut file = OpenOptions::new().append(true).create_new(true).open(path)?;
    let mut sync = || {
        let begun = Instant::now();
        file.write_all(&[0; BYTES])?;
        file.sync_data()?;
        Ok(begun.elapsed())
    };
    (0..SYNCS).map(|_| sync()).collect()
}
