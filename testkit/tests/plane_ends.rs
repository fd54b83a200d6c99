//! A control plane leaves no process and no file when it ends.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kubebid_testkit::Plane;

#[test]
fn a_dropped_plane_is_gone() {
    let plane = Plane::start();
    let trace = Trace::of(&plane);
    drop(plane);
    trace.is_gone();
}

#[test]
fn a_leaked_plane_is_gone_when_its_end_is_dropped() {
    let (plane, end) = Plane::start().leak();
    let trace = Trace::of(plane);
    drop(end);
    trace.is_gone();
}

/// Not a test: what the next one kills.
#[test]
#[ignore = "it waits to be killed"]
fn a_plane_waits_to_be_killed() {
    let plane = Plane::start();
    println!("kubeconfig {}", plane.kubeconfig().display());
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn a_plane_whose_tests_were_killed_is_gone() {
    let mut tests = Command::new(std::env::current_exe().expect("it is there"))
        .args(["--ignored", "--exact", "--nocapture", "a_plane_waits_to_be_killed"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let output = BufReader::new(tests.stdout.take().expect("it is piped"));
    let kubeconfig = output
        .lines()
        .map_while(Result::ok)
        .find_map(|line| Some(PathBuf::from(line.split_once("kubeconfig ")?.1)))
        .expect("the plane starts");
    let trace = Trace::of_folder(kubeconfig.parent().expect("a folder"));
    tests.kill().expect("it runs");
    tests.wait().expect("it ends");
    trace.is_gone();
}

/// What a plane would leave behind.
struct Trace {
    folder: PathBuf,
    /// Of all its programs, and of the guardian that ends them.
    processes: Vec<String>,
}

impl Trace {
    fn of(plane: &Plane) -> Self {
        Self::of_folder(plane.kubeconfig().parent().expect("a folder"))
    }

    fn of_folder(folder: &Path) -> Self {
        let mut processes = Vec::new();
        for file in std::fs::read_dir(folder).expect("the plane's folder") {
            let file = file.expect("a file").path();
            if file.extension().is_some_and(|extension| extension == "pid") {
                processes.push(std::fs::read_to_string(file).expect("a process").trim().to_owned());
            }
        }
        assert_eq!(processes.len(), 5);
        processes.push(parent(&processes[0]));
        assert!(processes.iter().all(|process| runs(process)), "{processes:?}");
        Self { folder: folder.to_owned(), processes }
    }

    /// Waits for it.
    fn is_gone(&self) {
        for process in &self.processes {
            let ended =
                Command::new("timeout").args(["20", "tail", "-f", "/dev/null", "--pid", process]).status();
            assert!(ended.expect("tail runs").success(), "{process} still runs");
        }
        assert!(!self.folder.exists());
    }
}

fn runs(process: &str) -> bool {
    Path::new("/proc").join(process).exists()
}

fn parent(process: &str) -> String {
    let stat = std::fs::read_to_string(Path::new("/proc").join(process).join("stat")).expect("it runs");
    // PID (NAME) STATE PARENT ...
    let (_, after_name) = stat.rsplit_once(") ").expect("a name");
    after_name.split(' ').nth(1).expect("a parent").to_owned()
}
