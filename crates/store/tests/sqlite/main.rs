//! Tests of the SQLite store, on real files with real syncs.
mod commits;
mod conformance;
mod differential;
#[cfg(unix)]
mod disk;
mod files;
mod machine;
mod older;
mod place;
mod shared;
#[cfg(unix)]
mod workers;
