//! A process that trains one run. It is told to stop through its standard input, which also ends when this process does,
//! however it does: so no run goes on alone and keeps its directory locked.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use halograph_graph::error::{IoContext, Result};
use rustix::process::Signal;

use crate::cli::{Invocation, interrupt, invocation};

/// Time between two looks at a running process.
const POLL: Duration = Duration::from_millis(20);
/// How much later than the other process this one may get a signal that was sent to both.
const SIGNAL_DELAY: Duration = Duration::from_millis(200);

/// A running process.
pub struct Process {
    child: Child,
    /// A byte requests the process to stop and save; the end of the input does too or, after the byte, to stop at once.
    input: ChildStdin,
    /// What it prints to standard error: a file without a name, which nothing can leave behind.
    messages: File,
}

/// A process that has ended.
pub struct Ended {
    pub status: ExitStatus,
    /// What it printed to standard error.
    pub messages: String,
}

impl Process {
    /// Starts this program with `arguments`. Its messages are kept in the file system of `folder`.
    pub fn start(arguments: &[OsString], folder: &Path) -> Result<Self> {
        let messages = tempfile::tempfile_in(folder).at(folder, "write into")?;
        let errors = messages.try_clone().at(folder, "write into")?;
        let Invocation { arguments: own, command: again } = invocation();
        let program = Path::new(&again[0]);
        let mut command = Command::new(program);
        command.args(&again[1..]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(errors);
        if again.len() == 1 {
            command.arg0(own.first().map_or("halograph".as_ref(), OsString::as_os_str));
        }
        // A group of its own: Ctrl-C reaches it through this process, once.
        let mut child = command.process_group(0).spawn().at(program, "start")?;
        let input = child.stdin.take().expect("standard input is a pipe");
        Ok(Process { child, input, messages })
    }

    /// Waits for its end. After a signal, requests it to stop.
    pub fn wait(mut self) -> Result<Ended> {
        let mut is_told = false;
        let status = loop {
            if let Some(status) = self.child.try_wait().at(Path::new(&invocation().command[0]), "wait for")? {
                break status;
            }
            if interrupt::requested() && !std::mem::replace(&mut is_told, true) {
                // It may have ended meanwhile.
                let _ = self.input.write_all(b"\n");
            }
            thread::sleep(POLL);
        };
        if status.signal().is_some() && !interrupt::requested() {
            // A signal to both processes may arrive here later.
            thread::sleep(SIGNAL_DELAY);
        }
        Ok(Ended { status, messages: self.read() })
    }

    /// Returns what it printed; nothing if that cannot be read.
    fn read(&mut self) -> String {
        let mut bytes = Vec::new();
        let _ = self.messages.rewind().and_then(|()| self.messages.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Ended {
    /// Returns the error that it printed.
    pub fn error(&self) -> Option<&str> {
        let is_start = |at: &usize| *at == 0 || self.messages.as_bytes()[at - 1] == b'\n';
        let mut starts = self.messages.match_indices("error: ").map(|(at, _)| at);
        starts.find(is_start).map(|at| self.messages[at..].trim_end())
    }

    /// Returns what the user can do about the end of a process without an error.
    pub fn help(&self) -> &'static str {
        match self.status.signal() == Some(Signal::KILL.as_raw()) {
            true => "\n  help: if memory ran out, give fewer --jobs",
            false => "",
        }
    }
}
