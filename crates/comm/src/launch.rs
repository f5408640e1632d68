//! Detects launchers.

/// Returns whether a launcher (`mpirun`, `srun`, …) started this process as a rank, according to environment variables.
///
/// Available without the feature `mpi`, so that a build without MPI can refuse to run as several independent copies.
pub fn launched() -> bool {
    is_launched(|name| std::env::var(name).ok())
}

fn is_launched(variable: impl Fn(&str) -> Option<String>) -> bool {
    // Open MPI; MPICH, Intel MPI and others; any PMIx launcher.
    let ranks = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"];
    // Slurm sets SLURM_PROCID and SLURM_NTASKS in batch scripts too, but SLURM_STEP_NUM_TASKS only in tasks.
    let tasks = variable("SLURM_STEP_NUM_TASKS").and_then(|tasks| tasks.parse::<u32>().ok());
    let in_step = tasks.is_some_and(|tasks| tasks > 1) && variable("SLURM_PROCID").is_some();
    in_step || ranks.iter().any(|name| variable(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> bool {
        is_launched(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string()))
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
}
