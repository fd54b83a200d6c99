//! A page as one bash script: its blocks in order, in one shell, as somebody pastes them; and several pages as one, in the order of the book.
//!
//! Changed is only what a reader's machine has otherwise: `cargo run -p X --` is the program of this build, the ports of
//! the engine are free ones, and `postgres://kubebid@db.internal/kubebid` is an empty database. A block that ends in
//! `kubebid up` or `kubebid serve` has a terminal of its own: the next block begins when it serves, and the next server
//! when it was stopped.

use crate::pages::{Block, root};
use kubebid_testkit::{Cluster, Port};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The longest time for a page; most of it is for machines on which others work too.
const SECONDS: u32 = 480;
/// The longest time for all pages one after another.
const SECONDS_IN_ORDER: u32 = 900;
/// How `timeout` says that it ended something.
const TIMED_OUT: i32 = 124;
/// What stands before each block in the output.
const MARK: &str = "=== ";
const DATABASE: &str = "postgres://kubebid@db.internal/kubebid";

/// What became of the blocks of a page.
pub(crate) struct Outcome {
    pub(crate) worked: bool,
    /// All that was printed, with a mark before each block.
    pub(crate) said: String,
    pub(crate) took: Duration,
}

impl Outcome {
    /// The mark of the last block that was begun, and what came after it.
    pub(crate) fn last(&self) -> &str {
        let at = self.said.rfind(MARK).unwrap_or(0);
        &self.said[at..]
    }

    /// Returns what the block that begins in this line of a page printed, if it was run.
    pub(crate) fn of(&self, page: &str, line: usize) -> Option<&str> {
        let (_, after) = self.said.split_once(&format!("{MARK}{page}:{line} after "))?;
        Some(after.split(MARK).next().unwrap_or(after))
    }
}

/// A page and its blocks.
pub(crate) type Commands = (String, Vec<Block>);

/// Prints what a page that cleans up leaves as it was: the folder and what is in it, the home, variables, processes.
const STATE: &str = r#"state() {
  pwd; ls -A . "$HOME" "$HOME"/.config/* "$HOME"/.local/share/*/* 2>/dev/null || true
  compgen -v KUBEBID_ || true; compgen -v XDG_ || true; jobs -rp; umask
}
"#;

/// Runs the blocks of a page in an empty home, in a folder that looks like the project's.
pub(crate) fn run(page: &Commands) -> Outcome {
    follow(std::slice::from_ref(page), SECONDS)
}

/// Runs pages one after another in one shell, as a reader does who follows the book in one terminal. A page must leave everything as it was;
/// one that starts the market of the quick start may leave that.
pub(crate) fn run_in_order(pages: &[Commands]) -> Outcome {
    follow(pages, SECONDS_IN_ORDER)
}

/// Returns true if a block of the page is a server in a terminal of its own.
pub(crate) fn starts_a_server((_, blocks): &Commands) -> bool {
    blocks.iter().any(|block| serves(&built(&block.text)))
}

fn follow(pages: &[Commands], seconds: u32) -> Outcome {
    let programs = Path::new(env!("CARGO_BIN_EXE_kubebid")).parent().expect("a folder of programs");
    assert!(
        programs.join("market-sim").exists(),
        "the pages need `market-sim` beside `kubebid`, which a build of the workspace has: cargo build -p market-sim"
    );
    let folder = tempfile::tempdir().expect("a folder");
    let (home, project) = (folder.path().join("home"), folder.path().join("project"));
    fs::create_dir_all(&home).expect("a home");
    lookalike(&project, programs);
    let mut text = format!(
        "exec 2>&1\nset -euo pipefail\nunset ${{!KUBEBID_@}} ${{!XDG_@}}\nexport HOME={} PATH={}:$PATH\n",
        home.display(),
        programs.display(),
    );
    let ports = Ports::of(pages.iter().flat_map(|(_, blocks)| blocks));
    let asks = pages.iter().flat_map(|(_, blocks)| blocks).any(|block| block.text.contains(DATABASE));
    let database = if asks { Cluster::shared().database() } else { String::new() };
    let _ = writeln!(text, "export KUBEBID_LISTEN={} KUBEBID_OPS_LISTEN={}", ports.of_up(0), ports.of_up(1));
    text.push_str(STATE);
    for page in pages {
        let (path, blocks) = page;
        text.push_str("before=$(state)\n");
        for block in blocks {
            let body = ports.moved(&built(&block.text)).replace(DATABASE, &database);
            let _ = writeln!(text, "echo \"{MARK}{path}:{} after ${{SECONDS}}s\"", block.line);
            text.push_str(&if serves(&body) { in_its_own_terminal(&body) } else { body });
        }
        if pages.len() > 1 && !starts_a_server(page) {
            let _ = writeln!(
                text,
                "echo \"{MARK}{path}: what it leaves\"\ndiff <(echo \"$before\") <(state) || {{ echo 'the page does not clean up'; exit 1; }}"
            );
        }
    }
    let script = folder.path().join("page.sh");
    fs::write(&script, text).expect("a script");
    let started = Instant::now();
    // A group of processes: what the page leaves running ends with it.
    let mut running = Command::new("timeout")
        .args(["--kill-after=5", &seconds.to_string(), "bash"])
        .arg(&script)
        .current_dir(&project)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(fs::File::create(folder.path().join("said")).expect("a file"))
        .spawn()
        .expect("timeout and bash are there");
    let group = rustix::process::Pid::from_child(&running);
    let status = running.wait().expect("it ends");
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    let said = fs::read(folder.path().join("said")).expect("what it said");
    let mut said = String::from_utf8_lossy(&said).into_owned();
    if status.code() == Some(TIMED_OUT) {
        let _ = writeln!(said, "\nand went on for longer than {seconds} s");
    }
    Outcome { worked: status.success(), said, took: started.elapsed() }
}

/// Ports of our own in the place of a page's: others may have an engine on this machine, and other pages run beside it.
struct Ports(BTreeMap<String, (String, Port)>);

/// Returns the addresses `127.0.0.1:74NN` in a block.
pub(crate) fn ports(block: &Block) -> BTreeSet<String> {
    let after = block.text.split("127.0.0.1:74").skip(1);
    after.map(|after| format!("127.0.0.1:74{}", after.chars().take(2).collect::<String>())).collect()
}

/// Where `kubebid up` and `kubebid serve` listen if nothing else is said.
pub(crate) const DEFAULTS: [&str; 2] = ["127.0.0.1:7440", "127.0.0.1:7441"];

impl Ports {
    /// One for each `127.0.0.1:74NN` in these blocks.
    fn of<'a>(blocks: impl Iterator<Item = &'a Block>) -> Self {
        let mut named: BTreeSet<String> = DEFAULTS.map(str::to_owned).into();
        named.extend(blocks.flat_map(ports));
        let hold = |name| {
            let port = Port::hold();
            (name, (port.address().to_string(), port))
        };
        Ports(named.into_iter().map(hold).collect())
    }

    fn of_up(&self, which: usize) -> &str {
        &self.0[DEFAULTS[which]].0
    }

    fn moved(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (from, (to, _))| text.replace(from, to))
    }
}

/// A folder with all that is in the project's, and the programs of this build where cargo would put them.
fn lookalike(folder: &Path, programs: &Path) {
    fs::create_dir_all(folder.join("target")).expect("a folder");
    for profile in ["debug", "release"] {
        symlink(programs, folder.join("target").join(profile)).expect("a link");
    }
    for entry in fs::read_dir(root()).expect("the project") {
        let entry = entry.expect("an entry of the project");
        let name = entry.file_name();
        if name != "target" && !name.to_string_lossy().starts_with('.') {
            symlink(entry.path(), folder.join(name)).expect("a link");
        }
    }
}

/// `cargo run … -p X -- …` as `X …`.
fn built(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let run = line.strip_prefix("cargo run ").and_then(|rest| rest.split_once(" -- "));
        let program = run.and_then(|(flags, rest)| Some((flags.split_once("-p ")?.1, rest)));
        match program {
            Some((package, rest)) => {
                let _ = writeln!(out, "{} {rest}", package.split(' ').next().unwrap_or(package));
            }
            None => {
                let _ = writeln!(out, "{line}");
            }
        }
    }
    out
}

/// Whether it goes on for as long as its reader lets it.
fn serves(body: &str) -> bool {
    let last = body.trim_end().lines().next_back().unwrap_or_default();
    let last = last.strip_prefix("target/release/").unwrap_or(last);
    (last.starts_with("kubebid up") || last.starts_with("kubebid serve")) && !last.contains('&')
}

fn in_its_own_terminal(body: &str) -> String {
    let (before, server) = body.trim_end().rsplit_once('\n').unwrap_or(("", body.trim_end()));
    format!(
        "if [ -n \"${{terminal-}}\" ]; then kill $terminal; wait $terminal; fi\n\
         (\n{before}\nexec {server}\n) > terminal.log 2>&1 &\nterminal=$!\n\
         until grep -qE 'KubeBid is up|serving' terminal.log; do\n\
         kill -0 $terminal || {{ cat terminal.log; exit 1; }}\nsleep 0.1\ndone\ncat terminal.log\n"
    )
}

#[test]
fn a_block_is_run_as_it_is_but_for_the_programs_and_the_terminal() {
    assert_eq!(built("cargo run --release -p kubebid -- bench place\n"), "kubebid bench place\n");
    assert_eq!(built("cargo build -p kubebid\n"), "cargo build -p kubebid\n");
    assert!(serves("export A=1\nkubebid up --quiet\n"));
    assert!(!serves("kubebid serve &\nkubebid price\n") && !serves("kubebid upload\nls\n"));
}
