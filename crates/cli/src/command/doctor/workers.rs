//! Which workers live: each holds a lock on a file of its own as long as its process does.
use super::fact;
use outlast::Error;
use outlast::sqlite::Sqlite;
use outlast::store::Backend;
use outlast::vocab::WorkerId;
use std::path::Path;

/// Reports the workers of a database; says how many live.
pub(super) async fn look(path: &Path, store: &Sqlite) -> Result<usize, Error> {
    let mut folder = path.as_os_str().to_owned();
    folder.push("-workers");
    // A database that nobody worked on has no such folder.
    let found = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let workers: Vec<WorkerId> =
        found.filter_map(|file| file.file_name().to_str().and_then(|name| name.parse().ok())).collect();
    let all = workers.len();
    // As a write: a worker that just starts makes its file and locks it under the write lock, and must not be disturbed.
    let dead =
        store.write(move |rows| Ok(workers.iter().filter(|worker| rows.is_dead(**worker)).count())).await?;
    let living = all - dead;
    fact("workers", &format!("{living} living, {dead} dead whose locks the next one removes"));
    Ok(living)
}
