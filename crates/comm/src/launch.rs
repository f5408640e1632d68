//! Detects launchers by environment variables. Available without the feature `mpi`, so that a build without MPI can refuse
//! to run as several independent copies.

/// Returns whether a launcher (`mpirun`, `srun`, …) started this process as a rank.
pub fn launched() -> bool {
    is_launched(variable)
}

/// Returns the number of ranks that the launcher started; `None` without a launcher, or if it does not say.
pub fn launched_ranks() -> Option<u32> {
    ranks(variable)
}

/// Returns the number of this rank, which is known before the ranks join; `None` without a launcher.
pub fn launched_rank() -> Option<u32> {
    rank(variable)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

// Open MPI; MPICH, Intel MPI and others; any PMIx launcher, which does not say how many there are.
const SIZES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];
const RANKS: [&str; 3] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", PMIX];
const PMIX: &str = "PMIX_RANK";

/// Returns the number of tasks of a step of Slurm. Slurm sets SLURM_PROCID and SLURM_NTASKS in batch scripts too, but
/// SLURM_STEP_NUM_TASKS only in tasks.
fn tasks(variable: impl Fn(&str) -> Option<String>) -> Option<u32> {
    let tasks = variable("SLURM_STEP_NUM_TASKS")?.parse().ok()?;
    variable("SLURM_PROCID").map(|_| tasks)
}

fn is_launched(variable: impl Fn(&str) -> Option<String>) -> bool {
    let is_set = SIZES.iter().chain([&PMIX]).any(|name| variable(name).is_some());
    is_set || tasks(variable).is_some_and(|tasks| tasks > 1)
}

fn ranks(variable: impl Fn(&str) -> Option<String>) -> Option<u32> {
    let size = SIZES.iter().find_map(|name| variable(name)?.parse().ok());
    // A task of Slurm may inherit the variables of another launcher.
    size.max(tasks(variable))
}

fn rank(variable: impl Fn(&str) -> Option<String>) -> Option<u32> {
    let rank = RANKS.iter().find_map(|name| variable(name)?.parse().ok());
    let is_task = tasks(&variable).is_some_and(|tasks| tasks > 1);
    rank.or_else(|| variable("SLURM_PROCID").filter(|_| is_task)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn among(variables: &[(&str, &str)], name: &str) -> Option<String> {
        variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string())
    }

    fn with(variables: &[(&str, &str)]) -> bool {
        is_launched(|name| among(variables, name))
    }

    #[test]
    fn launchers_are_recognised_and_batch_scripts_are_not_launchers() {
        assert!(!with(&[]));
        assert!(with(&[("OMPI_COMM_WORLD_SIZE", "1")]));
        assert!(with(&[("PMI_SIZE", "4")]));
        assert!(with(&[("PMIX_RANK", "0")]));
        assert!(with(&[("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_PROCID", "2")]));
        assert!(!with(&[("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0")]));
        assert!(!with(&[("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_PROCID", "0")]));
    }

    #[test]
    fn launchers_tell_the_rank_and_mostly_the_number_of_ranks() {
        let of = |variables: &[(&str, &str)]| {
            (rank(|name| among(variables, name)), ranks(|name| among(variables, name)))
        };
        assert_eq!(of(&[]), (None, None));
        assert_eq!(of(&[("OMPI_COMM_WORLD_SIZE", "1"), ("OMPI_COMM_WORLD_RANK", "0")]), (Some(0), Some(1)));
        assert_eq!(of(&[("PMI_SIZE", "4"), ("PMI_RANK", "3")]), (Some(3), Some(4)));
        assert_eq!(of(&[("PMIX_RANK", "2")]), (Some(2), None));
        assert_eq!(of(&[("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_PROCID", "2")]), (Some(2), Some(4)));
        assert_eq!(of(&[("SLURM_NTASKS", "4"), ("SLURM_PROCID", "1")]), (None, None));
        let one = [("PMIX_RANK", "0"), ("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_PROCID", "0")];
        assert_eq!(of(&one), (Some(0), Some(1)));
    }
}
