//! `kubebid up` beside somebody who has its ports.

use crate::process::binary;
use std::net::TcpListener;
use std::process::{Command, Stdio};

#[test]
fn a_market_is_not_forgotten_while_its_ports_are_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let database = folder.path().join("market.db");
    std::fs::write(&database, "a market").expect("it is written");
    let other = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let listen = other.local_addr().expect("its address").to_string();
    let ended = Command::new(binary())
        .args(["up", "--fresh", "--listen", &listen, "--ops-listen", "127.0.0.1:0", "--folder"])
        .arg(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("is another engine running?"), "{said}");
    assert_eq!(std::fs::read_to_string(&database).expect("it is there"), "a market");
}
