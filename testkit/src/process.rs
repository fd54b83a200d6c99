//! Processes of operators.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A process of an operator, which logs to standard error. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    folder: TempDir,
}

impl Process {
    /// Starts a command.
    ///
    /// # Panics
    /// If there is no such program.
    pub fn start(command: &mut Command) -> Process {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let log = File::create(folder.path().join("log")).expect("a file in it");
        let child = command.stdout(Stdio::null()).stderr(log).spawn().expect("the program is there");
        Process { child, folder }
    }

    /// Returns what it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Returns the file that it logs to.
    pub fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Returns its answer to GET, at the address that its log names first.
    ///
    /// # Panics
    /// If it does not answer 200.
    pub async fn page(&self, path: &str) -> String {
        let log = self.log();
        let address = log.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next());
        let address = address.expect("it logs its address").trim_matches(|it: char| !it.is_ascii_digit());
        let mut server = TcpStream::connect(address).await.expect("it listens");
        let request = format!("GET {path} HTTP/1.0\r\n\r\n");
        server.write_all(request.as_bytes()).await.expect("it reads");
        let mut answer = String::new();
        server.read_to_string(&mut answer).await.expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
        assert!(head.starts_with("HTTP/1.0 200"), "{head}");
        body.to_owned()
    }

    /// Returns its id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, as in `STOP`.
    ///
    /// # Panics
    /// If it has ended.
    pub fn signal(&self, name: &str) {
        let done = Command::new("kill").args([format!("-{name}"), self.pid().to_string()]).status();
        assert!(done.is_ok_and(|status| status.success()), "the process has ended");
    }

    /// Returns true if it has not ended.
    ///
    /// # Panics
    /// If the system does not say so.
    pub fn lives(&mut self) -> bool {
        self.child.try_wait().expect("it is a child of this process").is_none()
    }

    /// Waits until it has ended.
    pub async fn ended(&mut self) {
        while self.lives() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the operator's log\n{}", self.log());
        }
    }
}
