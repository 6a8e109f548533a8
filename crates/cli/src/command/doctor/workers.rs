//! Reports which workers are alive. A worker locks a file as long as its process lives.
use super::fact;
use outlast::Error;
use outlast::sqlite::SqliteStore;
use outlast::store::Backend;
use outlast::vocab::WorkerId;
use std::path::Path;

/// Reports the workers of a database and returns the number of living ones.
pub(super) async fn look(path: &Path, store: &SqliteStore) -> Result<usize, Error> {
    let mut folder = path.as_os_str().to_owned();
    folder.push("-workers");
    // The directory does not exist before the first worker starts.
    let found = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let workers: Vec<WorkerId> =
        found.filter_map(|file| file.file_name().to_str().and_then(|name| name.parse().ok())).collect();
    let all = workers.len();
    // Use a write transaction: a starting worker creates and locks its file under the write lock.
    let dead = store.write(move |rows| {
        let dead: Result<Vec<bool>, Error> = workers.into_iter().map(|worker| rows.is_dead(worker)).collect();
        Ok(dead?.into_iter().filter(|is_dead| *is_dead).count())
    });
    let dead = dead.await?;
    let living = all - dead;
    fact("workers", &format!("{living} living, {dead} dead whose locks the next one removes"));
    Ok(living)
}
