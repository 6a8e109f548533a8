//! Measures the free space and the sync time of the disk under the database.
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

const SYNCS: usize = 100;
const BYTES: usize = 1 << 10;

/// Free space and sync time of a disk.
pub(super) struct DiskStatus {
    pub(super) free: u64,
    pub(super) total: u64,
    /// The median time of a sync.
    pub(super) p50: Duration,
    /// The 99th percentile of the time of a sync.
    pub(super) p99: Duration,
}

impl DiskStatus {
    /// Measures the disk of this directory. Writes a temporary file and removes it.
    pub(super) fn measure(folder: &Path) -> io::Result<Self> {
        let space = rustix::fs::statvfs(folder)?;
        let path = folder.join(format!(".outlast-doctor-{}", std::process::id()));
        let syncs = time_syncs(&path);
        // Remove the file, even if the measurement failed.
        let _ = fs::remove_file(&path);
        let mut syncs = syncs?;
        syncs.sort_unstable();
        Ok(Self {
            free: space.f_bavail.saturating_mul(space.f_frsize),
            total: space.f_blocks.saturating_mul(space.f_frsize),
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
