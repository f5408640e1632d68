//! A build without MPI under a launcher.
#![cfg(not(feature = "mpi"))]

use std::process::Command;

#[test]
fn a_build_without_mpi_refuses_to_be_one_of_several_ranks() {
    let folder = tempfile::tempdir().unwrap();
    for variable in ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_halograph"));
        let out = command.arg("train").env(variable, "2").current_dir(folder.path()).output().unwrap();
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("no MPI") && stderr.contains("--features mpi"), "{stderr}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Bug: it was refused as one of several ranks.
#[test]
fn a_build_without_mpi_is_the_only_rank_of_a_launcher() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_halograph"));
    command.args(["train", "--epochs", "1", "--hidden", "8", "--out", "r", "-q"]);
    let variables = [("OMPI_COMM_WORLD_SIZE", "1"), ("OMPI_COMM_WORLD_RANK", "0"), ("PMIX_RANK", "0")];
    let out = command.envs(variables).current_dir(folder.path()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(folder.path().join("r/run.json").exists());
}
