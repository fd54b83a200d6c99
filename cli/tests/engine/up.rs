//! Markets that must not be forgotten: by `kubebid up --fresh` beside one that lives, and by a start without their file.

use crate::process::binary;
use kubebid_testkit::Port;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A market in which nobody synthetic trades.
fn up(folder: &Path, listen: &str) -> Command {
    let mut command = living(folder, listen);
    command.arg("--quiet");
    command
}

fn living(folder: &Path, listen: &str) -> Command {
    let mut command = Command::new(binary());
    command.args(["up", "--listen", listen, "--ops-listen", "127.0.0.1:0", "--folder"]);
    // The profile of whoever runs the test stays as it is.
    command.arg(folder).env("HOME", folder).env("XDG_CONFIG_HOME", folder).stdin(Stdio::null());
    command
}

/// Ends with its code for faults, and says this.
fn refuses(mut fresh: Command, what: &str) {
    let ended = fresh.arg("--fresh").output().expect("it runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains(what), "{said}");
}

#[test]
fn a_market_is_not_forgotten_while_its_ports_are_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let database = folder.path().join("market.db");
    std::fs::write(&database, "a market").expect("it is written");
    let other = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let listen = other.local_addr().expect("its address").to_string();
    refuses(up(folder.path(), &listen), "is another engine running?");
    assert_eq!(std::fs::read_to_string(&database).expect("it is there"), "a market");
}

/// Killed when dropped.
struct Living(Child);

impl Drop for Living {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_market_is_not_forgotten_while_it_lives_at_other_ports() {
    let folder = tempfile::tempdir().expect("a folder");
    let (port, other) = (Port::hold(), Port::hold());
    let market = up(folder.path(), &port.address().to_string()).stdout(Stdio::piped()).spawn();
    let mut market = Living(market.expect("it runs"));
    // Kept: who writes to a pipe that nobody reads ends.
    let mut said = BufReader::new(market.0.stdout.take().expect("it is piped"));
    let mut first = String::new();
    said.read_line(&mut first).expect("it says that it is up");
    refuses(up(folder.path(), &other.address().to_string()), "another engine has");
    assert!(folder.path().join("market.db").exists(), "{first}");
    assert!(folder.path().join("admin.token").exists(), "{first}");
}

#[test]
fn it_prints_links_to_the_page_and_opens_the_one_of_the_tenant() {
    let folder = tempfile::tempdir().expect("a folder");
    let opened = folder.path().join("opened");
    let browser = folder.path().join("xdg-open");
    std::fs::write(
        &browser,
        format!("#!/bin/sh\nprintf '%s' \"$1\" > {0}.part && mv {0}.part {0}\n", opened.display()),
    )
    .expect("it is written");
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let port = Port::hold();
    let mut market = up(folder.path(), &port.address().to_string());
    market.arg("--open").env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()));
    let mut market = Living(market.stdout(Stdio::piped()).spawn().expect("it runs"));
    let said = BufReader::new(market.0.stdout.take().expect("it is piped"));
    let begins = format!("http://{}/#token=kb_", port.address());
    // Read to the end of the test: a program whose reader is gone ends.
    let mut lines = said.lines().map(|line| line.expect("text"));
    let link = lines.by_ref().find(|line| line.starts_with("  tenant-a"));
    let link = link.expect("it prints a link for each person");
    assert!(link.contains(&begins), "{link}");
    while !opened.exists() {
        assert!(market.0.try_wait().expect("it is our child").is_none(), "it goes on");
        std::thread::yield_now();
    }
    let opened = std::fs::read_to_string(&opened).expect("it is there");
    assert!(link.ends_with(&opened) && opened.starts_with(&begins), "{opened}");
    drop(lines);
}

/// Ends with its code for faults, and says this.
fn does_not_start(mut command: Command, what: &str) {
    let ended = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains(what), "{said}");
}

#[test]
fn no_market_is_begun_where_the_token_of_another_one_lies() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("admin.token");
    std::fs::write(&token, "kb_token").expect("it is written");
    let port = Port::hold();
    does_not_start(up(folder.path(), &port.address().to_string()), "--fresh");
    assert!(!folder.path().join("market.db").exists());

    let store = folder.path().join("kubebid.db");
    let mut serve = Command::new(binary());
    serve.args(["serve", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--store"]);
    serve.arg(format!("sqlite:{}", store.display())).arg("--admin-token-file").arg(&token);
    does_not_start(serve, "--new-store");
    assert!(!store.exists());
}

/// Starts a market whose synthetic people trade, reads the link of the tenant, and lists the live tokens of a synthetic one.
fn link_and_tokens(folder: &Path, listen: &str) -> (String, usize) {
    let mut market = Living(living(folder, listen).stdout(Stdio::piped()).spawn().expect("it runs"));
    let said = BufReader::new(market.0.stdout.take().expect("it is piped"));
    let mut lines = said.lines().map(|line| line.expect("text"));
    let link = lines.by_ref().find(|line| line.starts_with("  tenant-a")).expect("a link");
    let mut list = Command::new(binary());
    list.args(["token", "list", "--account", "sim-tenant-1", "-o", "name", "--as", "admin"]);
    let listed = list.env("HOME", folder).env("XDG_CONFIG_HOME", folder).output().expect("it runs");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    drop(lines);
    (link, String::from_utf8_lossy(&listed.stdout).lines().count())
}

#[test]
fn the_next_start_keeps_the_tokens_of_people_and_revokes_those_of_synthetic_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = Port::hold();
    let listen = port.address().to_string();
    let first = link_and_tokens(folder.path(), &listen);
    assert_eq!(first.1, 1);
    assert_eq!(link_and_tokens(folder.path(), &listen), first);
}
