//! The disk under the real SQLite, in WAL mode.
mod corruption;
mod crash;
mod failure;
mod life;
mod workload;
