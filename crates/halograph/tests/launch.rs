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
