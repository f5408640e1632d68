//! Ranks as processes, started by `mpirun`.
#![cfg(all(feature = "mpi", target_os = "linux"))]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const DEADLINE: Duration = Duration::from_secs(3);

/// Serialises the tests: ranks of several jobs would starve each other.
fn exclusive() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the command that runs the example under `mpirun`; `None` if that is not installed.
fn mpirun(ranks: usize, options: &[&str], arguments: &[&str]) -> Option<Command> {
    if !halograph_testing::has_mpirun() {
        return None;
    }
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks.to_string()]).args(options);
    command.arg(example()).args(arguments).stdin(Stdio::null());
    Some(command)
}

/// Returns the path of the example `ranks`.
fn example() -> PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    let folder = test.parent().and_then(Path::parent).expect("tests are built in a subdirectory");
    folder.join("examples/ranks")
}

/// Returns standard output and standard error.
fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

/// Runs the example on `ranks` ranks, all of which must succeed.
fn check(ranks: usize, arguments: &[&str]) {
    let _exclusive = exclusive();
    let Some(mut command) = mpirun(ranks, &[], arguments) else { return };
    let output = command.output().expect("mpirun starts");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches("all checks passed").count(), ranks, "{text}");
}

#[test]
fn all_checks_pass_on_1_2_and_4_ranks() {
    for ranks in [1, 2, 4] {
        check(ranks, &["check"]);
    }
}

#[test]
fn long_messages_are_sent_in_pieces() {
    check(3, &["check", "4096"]);
}

/// Runs a mode of the example that fails; returns the output of all ranks.
fn failed(arguments: &[&str]) -> Option<String> {
    let _exclusive = exclusive();
    let output = mpirun(3, &[], arguments)?.output().expect("mpirun starts");
    assert!(!output.status.success());
    Some(text(&output))
}

#[test]
fn a_failure_is_reported_to_all() {
    let Some(text) = failed(&["fail", "1"]) else { return };
    assert!(text.contains("failed: failure requested"), "{text}");
}

#[test]
fn a_failure_outside_a_group_ends_waits_inside_it() {
    let Some(text) = failed(&["fail-outside", "1"]) else { return };
    let ended = text.lines().any(|line| {
        line.contains("a wait in the group ended: rank 1 on ") && line.contains("failed: failure requested")
    });
    assert!(ended, "{text}");
}

/// Starts ranks that exchange messages until one fails. Returns the launcher, its output and the processes by rank.
fn start_work(ranks: usize, options: &[&str]) -> Option<(Child, BufReader<impl Read>, Vec<Pid>)> {
    let mut command = mpirun(ranks, options, &["work", &DEADLINE.as_secs().to_string()])?;
    let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("mpirun starts");
    let mut lines = BufReader::new(launcher.stdout.take().expect("stdout is piped"));
    let mut processes = vec![None; ranks];
    while processes.contains(&None) {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).expect("the output can be read") > 0, "ranks ended early");
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["rank", rank, "is", "process", process] = words[..] else { continue };
        let (rank, process): (usize, i32) = (rank.parse().unwrap(), process.parse().unwrap());
        processes[rank] = Pid::from_raw(process);
    }
    Some((launcher, lines, processes.into_iter().flatten().collect()))
}

/// Returns whether a process is running; a zombie is not.
fn is_running(process: Pid) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    state.is_ok_and(|text| !text.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
}

/// Starts 3 ranks, calls `first` with their processes, sends `signal` to rank 1 and waits until all processes have ended.
/// Returns whether the launcher succeeded, and the standard error of launcher and ranks.
fn signal_rank_1(signal: Signal, options: &[&str], first: impl FnOnce(&[Pid])) -> Option<(bool, String)> {
    let (mut launcher, lines, processes) = start_work(3, options)?;
    // Read concurrently: a full pipe would keep the ranks from ending. The standard output stays open.
    let mut pipe = launcher.stderr.take().expect("stderr is piped");
    let stderr = thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).map(|_| text)
    });
    first(&processes);
    kill_process(processes[1], signal).expect("rank 1 is running");
    let end = Instant::now() + DEADLINE + Duration::from_secs(5);
    let ended = |launcher: &mut Child| launcher.try_wait().expect("a child process").is_some();
    while !ended(&mut launcher) || processes.iter().any(|&p| is_running(p)) {
        if Instant::now() > end {
            let _ = launcher.kill();
            for &process in &processes {
                let _ = kill_process(process, Signal::KILL);
            }
            let stderr = stderr.join().expect("no panic");
            panic!("{signal:?}: processes are still running after the deadline; stderr: {stderr:?}");
        }
        thread::sleep(Duration::from_millis(20));
    }
    drop(lines);
    let success = launcher.wait().expect("a child process").success();
    Some((success, stderr.join().expect("no panic").expect("stderr is text")))
}

#[test]
fn a_stopped_rank_is_lost() {
    let _exclusive = exclusive();
    let Some((success, stderr)) = signal_rank_1(Signal::STOP, &[], |_| ()) else { return };
    assert!(!success && stderr.contains("rank 1 on "), "{stderr}");
    assert!(stderr.contains("sent nothing for 3 s (timeout); last known position: epoch "), "{stderr}");
}

#[test]
fn a_suspended_job_continues_and_a_killed_rank_ends_it() {
    let _exclusive = exclusive();
    let suspend = |processes: &[Pid]| {
        let all =
            |signal| processes.iter().for_each(|&p| kill_process(p, signal).expect("a running process"));
        all(Signal::STOP);
        thread::sleep(DEADLINE + Duration::from_secs(1));
        all(Signal::CONT);
        // Long enough for a rank to be lost.
        thread::sleep(DEADLINE + Duration::from_secs(1));
        assert!(processes.iter().all(|&process| is_running(process)), "the job has ended");
    };
    // The launcher detects the end of a local process itself and reports it first.
    let Some((success, stderr)) = signal_rank_1(Signal::KILL, &[], suspend) else { return };
    assert!(!success && stderr.contains("rank 1"), "{stderr}");
}

#[test]
fn a_killed_rank_is_detected_if_the_launcher_ignores_it() {
    let _exclusive = exclusive();
    let Some((_, stderr)) = signal_rank_1(Signal::KILL, &["--enable-recovery"], |_| ()) else { return };
    assert!(
        stderr.contains("rank 1 on ") && stderr.contains("exited without reporting an error"),
        "{stderr}"
    );
}
