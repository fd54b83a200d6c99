//! A shell that runs servers in a folder of its own, and outlives nobody: it ends them and removes the folder as soon
//! as its standard input ends, which it also does when the test process dies.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};

/// A running guardian. It ends when this value is dropped or the test process has ended, however it ended.
#[derive(Debug)]
pub(crate) struct Guardian {
    shell: Child,
    /// The shell waits for its end.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    complaints: ChildStderr,
    folder: PathBuf,
}

impl Guardian {
    /// Runs the command and waits until it says `ready FOLDER`.
    ///
    /// # Panics
    /// When it says anything else; `what` is the name of what did not start.
    pub(crate) fn start(mut command: Command, what: &str) -> Self {
        let mut shell = command
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("cannot run {:?}: {e}", command.get_program()));
        let orders = shell.stdin.take();
        let answers = BufReader::new(shell.stdout.take().expect("it is piped"));
        let complaints = shell.stderr.take().expect("it is piped");
        let mut guardian = Self { shell, orders, answers, complaints, folder: PathBuf::new() };
        let ready = guardian.answer();
        let Some(folder) = ready.strip_prefix("ready ") else {
            panic!("{what} did not start:\n{}", guardian.why())
        };
        guardian.folder = folder.into();
        guardian
    }

    /// Where the servers keep their files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Gives an order and waits until it is done.
    ///
    /// # Panics
    /// When it cannot be done.
    pub(crate) fn order(&mut self, order: &str) {
        let orders = self.orders.as_mut().expect("it is taken by drop only");
        let given = writeln!(orders, "{order}");
        if given.is_err() || self.answer() != "done" {
            panic!("{order}:\n{}", self.why());
        }
    }

    /// The next line of what it says; empty when it has ended.
    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the guardian writes text");
        line.truncate(line.trim_end().len());
        line
    }

    /// Ends the servers and waits until they have ended. Does nothing the second time.
    pub(crate) fn end(&mut self) {
        self.orders = None;
        let _ = self.shell.wait();
    }

    /// Ends it, and returns what it complained of.
    fn why(&mut self) -> String {
        self.orders = None;
        let mut why = String::new();
        let _ = self.complaints.read_to_string(&mut why);
        why
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.end();
    }
}
