//! Ranks as processes, started by `mpirun`.
#![cfg(all(feature = "mpi", target_os = "linux"))]
#![expect(clippy::print_stderr, reason = "reports skipped tests")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const DEADLINE: Duration = Duration::from_secs(3);

/// Serialises the tests: ranks of several jobs would starve each other.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the command that runs the example under `mpirun`; `None` if that is not installed.
fn mpirun(ranks: usize, options: &[&str], arguments: &[&str]) -> Option<Command> {
    if Command::new("mpirun").arg("--version").output().is_err() {
        eprintln!("skipped: there is no mpirun");
        return None;
    }
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks.to_string()]).args(options);
    command.arg(example()).args(arguments).stdin(Stdio::null());
    Some(command)
}

fn example() -> PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    let folder = test.parent().and_then(Path::parent).expect("tests are built in a folder of their own");
    folder.join("examples/ranks")
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

fn check(ranks: usize, arguments: &[&str]) {
    let _alone = alone();
    let Some(mut command) = mpirun(ranks, &[], arguments) else { return };
    let output = command.output().expect("mpirun starts");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches("all is well").count(), ranks, "{text}");
}

#[test]
fn everything_works_on_1_2_and_4_ranks() {
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
    let _alone = alone();
    let output = mpirun(3, &[], arguments)?.output().expect("mpirun starts");
    assert!(!output.status.success());
    Some(text(&output))
}

#[test]
fn a_failure_is_reported_to_all() {
    let Some(text) = failed(&["fail", "1"]) else { return };
    assert!(text.contains("failed: it was asked to"), "{text}");
}

#[test]
fn a_failure_outside_a_group_ends_waits_inside_it() {
    let Some(text) = failed(&["fail-outside", "1"]) else { return };
    let ended = text.lines().any(|line| {
        line.contains("a wait in the group ended: rank 1 on ") && line.contains("failed: it was asked to")
    });
    assert!(ended, "{text}");
}

/// Starts ranks that exchange messages for ever; returns the launcher, its output and the processes by rank.
fn at_work(ranks: usize, options: &[&str]) -> Option<(Child, BufReader<impl Read>, Vec<Pid>)> {
    let mut command = mpirun(ranks, options, &["work", &DEADLINE.as_secs().to_string()])?;
    let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("mpirun starts");
    let mut lines = BufReader::new(launcher.stdout.take().expect("it is piped"));
    let mut processes = vec![None; ranks];
    while processes.contains(&None) {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).expect("it can be read") > 0, "ranks ended early");
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["rank", rank, "is", "process", process] = words[..] else { continue };
        let (rank, process): (usize, i32) = (rank.parse().unwrap(), process.parse().unwrap());
        processes[rank] = Pid::from_raw(process);
    }
    Some((launcher, lines, processes.into_iter().flatten().collect()))
}

/// Returns whether a process is running; a zombie is not.
fn lives(process: Pid) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    state.is_ok_and(|text| !text.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
}

/// Sends `signal` to rank 1 of 3. Returns whether the launcher succeeded, and the standard error of all.
fn hit(signal: Signal, options: &[&str]) -> Option<(bool, String)> {
    let (mut launcher, lines, processes) = at_work(3, options)?;
    // Read concurrently: a full pipe would keep the ranks from ending. The standard output stays open.
    let mut errors = launcher.stderr.take().expect("it is piped");
    let said = thread::spawn(move || {
        let mut text = String::new();
        errors.read_to_string(&mut text).map(|_| text)
    });
    kill_process(processes[1], signal).expect("it is our own");
    let end = Instant::now() + DEADLINE + Duration::from_secs(5);
    while launcher.try_wait().expect("it is our own").is_none() || processes.iter().any(|&p| lives(p)) {
        if Instant::now() > end {
            let _ = launcher.kill();
            for &process in &processes {
                let _ = kill_process(process, Signal::KILL);
            }
            let said = said.join().expect("no panic");
            panic!("{signal:?}: processes are left after the deadline; they said {said:?}");
        }
        thread::sleep(Duration::from_millis(20));
    }
    drop(lines);
    let content = launcher.wait().expect("it has ended").success();
    Some((content, said.join().expect("no panic").expect("it is text")))
}

#[test]
fn a_stopped_rank_is_lost() {
    let _alone = alone();
    let Some((content, said)) = hit(Signal::STOP, &[]) else { return };
    assert!(
        !content && said.contains("rank 1 on ") && said.contains("was lost: no sign of life for 3 s"),
        "{said}"
    );
    assert!(said.contains("layer 1, forward"), "{said}");
}

#[test]
fn a_killed_rank_ends_the_job() {
    let _alone = alone();
    // The launcher detects the end of a local process itself and reports it first.
    let Some((content, said)) = hit(Signal::KILL, &[]) else { return };
    assert!(!content && said.contains("rank 1"), "{said}");
}

#[test]
fn a_killed_rank_is_noticed_if_the_launcher_ignores_it() {
    let _alone = alone();
    let Some((_, said)) = hit(Signal::KILL, &["--enable-recovery"]) else { return };
    assert!(said.contains("rank 1 on ") && said.contains("is gone"), "{said}");
}

#[test]
fn a_suspended_job_continues() {
    let _alone = alone();
    let Some((mut launcher, lines, processes)) = at_work(3, &[]) else { return };
    let all = |signal| processes.iter().for_each(|&p| kill_process(p, signal).expect("it is our own"));
    all(Signal::STOP);
    thread::sleep(DEADLINE + Duration::from_secs(1));
    all(Signal::CONT);
    // Long enough for a rank to be lost.
    thread::sleep(DEADLINE + Duration::from_secs(1));
    assert!(launcher.try_wait().expect("it is our own").is_none(), "it has ended");
    all(Signal::KILL);
    launcher.wait().expect("it is our own");
    drop(lines);
}
