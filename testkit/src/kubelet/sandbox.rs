//! A bubblewrap sandbox: the root folder, the namespaces and the processes of one container.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process, kill_process_group};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;
use tokio::time::timeout;

/// The variables of a container.
pub(super) type Environment = BTreeMap<String, String>;

/// Runs bubblewrap with the output of the container in the log. Descriptor 3 is for bubblewrap, which writes the
/// process id there, and 4 for `INSIDE`.
const OUTSIDE: &str = r#"exec 3>&1 4>&1 >>"$0" 2>&1; exec /usr/bin/bwrap --info-fd 3 "$@""#;

/// Says that the sandbox stands, and becomes the program of the container.
const INSIDE: &str = r#"echo started >&4; exec 4>&-; exec "$@""#;

/// Folders of the machine that a container sees: its programs and what those need.
const SHARED: [&str; 8] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives", "/etc/ssl", "/etc/ld.so.conf.d"];

/// Files of the machine that are copied into each container.
const COPIED: [&str; 6] = [
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/localtime",
];

/// A file or folder of the machine at a path of the container.
#[derive(Debug, Clone)]
pub(super) struct Mount {
    pub(super) source: PathBuf,
    pub(super) target: PathBuf,
    pub(super) read_only: bool,
}

/// The program of a container, and what it sees.
#[derive(Debug)]
pub(super) struct Program<'a> {
    pub(super) hostname: &'a str,
    pub(super) argv: &'a [String],
    pub(super) environment: &'a Environment,
    pub(super) folder: Option<&'a str>,
    pub(super) mounts: &'a [Mount],
    /// The root folder of the container. It is made from nothing.
    pub(super) root: &'a Path,
    pub(super) log: &'a Path,
}

/// The first process of a container: process 1 in a PID namespace, whose end ends all others of it.
#[derive(Debug)]
pub(super) struct Process {
    bwrap: Child,
    pid: Pid,
}

impl Process {
    /// Starts the program; it runs when this returns. It is killed when the value is dropped, and when the thread
    /// ends that called this.
    pub(super) async fn start(program: &Program<'_>) -> Result<Self, String> {
        let system = make_root(program.root).map_err(|e| format!("{}: {e}", program.root.display()))?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", OUTSIDE]).arg(program.log);
        command.args(["--die-with-parent", "--as-pid-1", "--unshare-pid", "--unshare-uts", "--unshare-ipc"]);
        command.args(["--hostname", program.hostname]).arg("--bind").arg(program.root).arg("/");
        if !geteuid().is_root() {
            command.args(["--unshare-user", "--uid", "0", "--gid", "0"]);
        }
        for folder in &system {
            command.arg("--ro-bind").args([folder, folder]);
        }
        command.args(["--proc", "/proc", "--dev", "/dev"]);
        for mount in program.mounts {
            let bind = if mount.read_only { "--ro-bind" } else { "--bind" };
            command.arg(bind).args([&mount.source, &mount.target]);
        }
        command.args(["--chdir", program.folder.unwrap_or("/"), "/bin/sh", "-c", INSIDE, "sh"]);
        command.args(program.argv).env_clear().envs(program.environment).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut command = tokio::process::Command::from(command);
        let mut bwrap = command.kill_on_drop(true).spawn().map_err(|e| format!("cannot run bwrap: {e}"))?;

        let mut output = BufReader::new(bwrap.stdout.take().expect("it is piped"));
        let (mut info, mut line) = (String::new(), String::new());
        while output.read_line(&mut line).await.is_ok_and(|length| length > 0) {
            if line == "started\n" {
                let info: Value = serde_json::from_str(&info).expect("bwrap writes JSON");
                let pid = info["child-pid"].as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
                return Ok(Self { bwrap, pid: pid.expect("bwrap names its child") });
            }
            info += &line;
            line.clear();
        }
        let log = fs::read_to_string(program.log).unwrap_or_default();
        Err(format!("bwrap: {}", log.lines().last().unwrap_or("it is not installed")))
    }

    /// The process's id on the machine.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for the end and returns the exit code: 128 and the signal's number for a process that was killed.
    pub(super) async fn wait(&mut self) -> i32 {
        self.bwrap.wait().await.ok().and_then(|status: ExitStatus| status.code()).unwrap_or(137)
    }
}

/// Makes the root folder of a container from nothing. Returns what of the machine has to be mounted into it.
fn make_root(root: &Path) -> io::Result<Vec<PathBuf>> {
    if root.exists() {
        fs::remove_dir_all(root)?;
    }
    let inside = |path: &Path| root.join(path.strip_prefix("/").expect("it is absolute"));
    for folder in ["/etc", "/home", "/opt", "/root", "/run", "/srv", "/tmp", "/var/tmp"] {
        fs::create_dir_all(inside(folder.as_ref()))?;
    }
    symlink("../run", inside("/var/run".as_ref()))?;
    for folder in ["/tmp", "/var/tmp"] {
        fs::set_permissions(inside(folder.as_ref()), fs::Permissions::from_mode(0o1777))?;
    }
    for file in COPIED.map(Path::new).into_iter().filter(|file| file.exists()) {
        fs::copy(file, inside(file))?;
    }
    let mut mounted = Vec::new();
    for folder in SHARED.map(Path::new).into_iter().filter(|folder| folder.exists()) {
        match fs::read_link(folder) {
            Ok(target) => symlink(target, inside(folder))?,
            Err(_) => mounted.push(folder.to_owned()),
        }
    }
    Ok(mounted)
}

/// Sends a signal to a process, unless it has ended.
pub(super) fn signal(pid: Pid, signal: Signal) {
    // Without the process there is nothing to do.
    let _ = kill_process(pid, signal);
}

/// The command that runs a program in the namespaces of a container.
pub(super) fn exec(pid: Pid, environment: &Environment, argv: &[String]) -> Command {
    let mut command = Command::new("/usr/bin/nsenter");
    command.args(["--target", &pid.as_raw_nonzero().to_string(), "--mount", "--uts", "--ipc", "--pid"]);
    if !geteuid().is_root() {
        command.args(["--user", "--preserve-credentials"]);
    }
    command.args(["--root", "--wd", "--"]).args(argv).env_clear().envs(environment);
    command.process_group(0).stdin(Stdio::null());
    command
}

/// Runs a program in a container. Returns its exit code; without one after so long, it is killed.
pub(super) async fn exec_within(
    limit: Duration,
    pid: Pid,
    environment: &Environment,
    argv: &[String],
) -> Option<i32> {
    let mut command = exec(pid, environment, argv);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn().ok()?;
    let group = Group(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
    let ended = timeout(limit, child.wait()).await.ok()?.ok()?;
    // Its number may be another's from here on.
    std::mem::forget(group);
    ended.code()
}

/// A process group that is killed on drop.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
