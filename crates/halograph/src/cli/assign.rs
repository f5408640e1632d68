//! Partitioning the nodes of a dataset: refused if memory is short; a signal ends the process at once.

use halograph::train::memory;
use halograph_graph::partition::{Assignment, Recipe, cache};
use halograph_graph::{Dataset, Error, Progress};

use super::interrupt;

/// Returns the assignment that `recipe` makes, and whether it is new: then [`cache::keep`] may write it to disk. `less`:
/// the flag to suggest if there is not enough memory.
pub fn find(
    dataset: &Dataset,
    recipe: &Recipe,
    less: &str,
    force: bool,
    progress: &dyn Progress,
) -> Result<(Assignment, bool), Error> {
    if let Some(kept) = cache::kept(dataset, recipe) {
        return Ok((kept, false));
    }
    admit(recipe.peak_bytes(dataset), less, force)?;
    // METIS cannot be asked to stop, and nothing is on disk yet.
    let _at_once = interrupt::at_once();
    let made = recipe.make(dataset, progress);
    if let Err(Error::Cancelled) = made {
        interrupt::wait_for_handler();
    }
    Ok((made?, true))
}

/// Refuses what needs more memory than is free, unless forced.
fn admit(needed: u64, less: &str, force: bool) -> Result<(), Error> {
    match memory::available() {
        Some(free) if needed > free && !force => {
            let problem =
                format!("partitioning needs about {} MiB and {} MiB are free", needed >> 20, free >> 20);
            let help = format!("{less} needs far less; --force tries all the same");
            Err(Error::input("memory", problem).help(help))
        }
        _ => Ok(()),
    }
}
