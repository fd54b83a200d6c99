//! The restores of the manual, line by line, after a stop and after a kill; and what else becomes of a SQLite file and
//! its log when an operator copies one of them.

use crate::journal::run;
use crate::kills::{MARKET, bid};
use crate::process::{Engine, binary, market_and_tenant, sqlite};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// How an engine ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Stop,
    Kill,
}

/// A store that was backed up as `kubebid-monday.db` after three bids and ended after six. Returns the tenant's token.
async fn lost_after(end: End, folder: &Path) -> String {
    let mut engine = Engine::start(&sqlite(folder), folder, &[]);
    let token = market_and_tenant(&engine.admin().await, MARKET, "t").await;
    place(&engine, &token, 0..3).await;
    let backup = folder.join("kubebid-monday.db");
    run(&["backup", "--store", engine.store(), backup.to_str().unwrap()]);
    place(&engine, &token, 3..6).await;
    match end {
        End::Stop => engine.stop(),
        End::Kill => engine.kill(),
    }
    token
}

async fn place(engine: &Engine, token: &str, numbers: std::ops::Range<u32>) {
    for n in numbers {
        engine
            .client(token)
            .place_bid(bid(&format!("k{n}")))
            .await
            .expect("a patient client gets its answer");
    }
}

/// Asserts that an engine on the store knows these bids of the six and no other ones.
async fn assert_has(store: &str, folder: &Path, token: &str, known: u32) {
    let engine = Engine::start(store, folder, &[]);
    for n in 0..6 {
        let again = engine.client(token).place_bid(bid(&format!("k{n}"))).await.expect("an answer");
        assert_eq!(again.repeated, n < known, "bid {n} of {store}");
    }
}

fn output(arguments: &[&str]) -> Output {
    Command::new(binary()).args(arguments).output().expect("the tool starts")
}

/// Returns the first `sh` block of a page after some words.
fn block(page: &str, after: &str) -> String {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(page)).unwrap();
    let at = page.find(after).unwrap_or_else(|| panic!("{after:?} is not in the page"));
    let block = page[at..].split("```sh\n").nth(1).expect("a block").split("```").next().expect("its end");
    block.to_owned()
}

/// Runs lines of a page in a folder, as a reader would type them.
fn shell(lines: &str, folder: &Path) -> String {
    let path = format!("{}:/usr/bin:/bin", binary().parent().unwrap().display());
    let mut shell = Command::new("bash");
    let out = shell.args(["-euc", lines]).env("PATH", path).current_dir(folder).output().expect("a shell");
    assert!(out.status.success(), "{lines}\n{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_manual_restores_a_file() {
    for end in [End::Stop, End::Kill] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let token = lost_after(end, folder).await;
        let lines = block("docs/operations.md", "### Restoring a SQLite file");
        let lines: Vec<_> = lines.lines().filter(|line| !line.starts_with("kubebid serve")).collect();
        assert!(lines.iter().any(|line| line.contains("kubebid restore kubebid-monday.db")), "{lines:?}");
        let said = shell(&lines.join("\n"), folder);
        assert!(said.contains("all of them sound") && said.contains("is called"), "{end:?}: {said}");
        assert_has(&sqlite(folder), folder, &token, 3).await;
        // What was there is a store with all bids.
        let aside = folder.join("kubebid.db.before-restore-1");
        assert_has(&format!("sqlite:{}", aside.display()), folder, &token, 6).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_restores_a_file() {
    for end in [End::Stop, End::Kill] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let token = lost_after(end, folder).await;
        // The volume is the folder, and the pod of the restore is this process.
        let lines = block("deploy/helm/kubebid/README.md", "To restore it,");
        let inside: Vec<String> = lines
            .lines()
            .filter(|line| line.contains(" exec ") && line.contains("restore -- "))
            .map(|line| line.split_once("restore -- ").unwrap().1.replace("/store/", "./"))
            .collect();
        assert!(inside.len() > 1, "{lines}");
        fs::rename(folder.join("kubebid-monday.db"), folder.join("taken.db")).unwrap();
        let lines = inside.join("\n").replace("< monday.db", "< taken.db");
        shell(&lines, folder);
        assert_has(&sqlite(folder), folder, &token, 3).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_replaces_no_store_unasked_and_none_that_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let token = lost_after(End::Kill, folder).await;
    let (store, backup) = (sqlite(folder), folder.join("kubebid-monday.db"));
    let restore = ["restore", backup.to_str().unwrap(), "--store", &store];
    let refused = output(&restore);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("is at") && said.contains("--move-aside"), "{said}");
    let all = [&restore[..], &["--move-aside"]].concat();

    // A damaged backup changes nothing.
    let damaged = folder.join("damaged.db");
    let mut bytes = fs::read(&backup).unwrap();
    // The key of the last bid, wherever it is: in the journal and in a table.
    let keys: Vec<usize> = (0..bytes.len() - 1).filter(|at| bytes[*at..].starts_with(b"k2")).collect();
    assert!(!keys.is_empty());
    keys.into_iter().for_each(|at| bytes[at + 1] = b'9');
    fs::write(&damaged, bytes).unwrap();
    let refused = output(&["restore", damaged.to_str().unwrap(), "--store", &store, "--move-aside"]);
    assert_eq!(refused.status.code(), Some(1), "{}", String::from_utf8_lossy(&refused.stderr));
    assert!(!folder.join("kubebid.db.before-restore-1").exists());

    {
        let engine = Engine::start(&store, folder, &[]);
        engine.admin().await;
        place(&engine, &token, 0..1).await;
        let refused = output(&all);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(1) && said.contains("another engine has"), "{said}");
    }
    assert_has(&store, folder, &token, 6).await;
    assert!(output(&all).status.success());
    assert_has(&store, folder, &token, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_beside_the_log_of_a_killed_engine_is_refused_and_neither_is_destroyed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let token = lost_after(End::Kill, folder).await;
    let (file, log, backup) =
        (folder.join("kubebid.db"), folder.join("kubebid.db-wal"), folder.join("kubebid-monday.db"));
    let original = (fs::read(&file).unwrap(), fs::read(&log).unwrap());
    fs::copy(&backup, &file).unwrap();
    for command in
        [&["journal", "verify"][..], &["journal", "rename"], &["projections", "rebuild"], &["serve"]]
    {
        let refused = output(&[command, &["--store", &sqlite(folder)]].concat());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            refused.status.code() == Some(1) && said.contains("does not belong to"),
            "{command:?}: {said}"
        );
    }
    assert!(fs::read(&file).unwrap() == fs::read(&backup).unwrap() && fs::read(&log).unwrap() == original.1);
    // Either way out: the backup without that log, or the log with its own file.
    fs::rename(&log, folder.join("lost-wal")).unwrap();
    assert_has(&sqlite(folder), folder, &token, 3).await;
    let _ = fs::remove_file(&log);
    fs::write(&file, &original.0).unwrap();
    fs::rename(folder.join("lost-wal"), &log).unwrap();
    assert_has(&sqlite(folder), folder, &token, 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_the_file_alone_is_complete_after_an_engine_or_a_command_has_ended_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let token = lost_after(End::Stop, folder).await;
    let alone = || {
        let copy = tempfile::tempdir().unwrap();
        fs::copy(folder.join("kubebid.db"), copy.path().join("kubebid.db")).unwrap();
        fs::copy(folder.join("admin.token"), copy.path().join("admin.token")).unwrap();
        copy
    };
    let copy = alone();
    let verified = run(&["journal", "verify", "--store", &sqlite(copy.path())]);
    assert_eq!(verified, run(&["journal", "verify", "--store", &sqlite(folder)]));
    assert_has(&sqlite(copy.path()), copy.path(), &token, 6).await;

    let renamed = run(&["journal", "rename", "--store", &sqlite(folder)]);
    let name = renamed.split_whitespace().rev().nth(1).expect("a name").to_owned();
    let verified = run(&["journal", "verify", "--store", &sqlite(alone().path())]);
    assert!(verified.contains(&name), "{renamed} but {verified}");

    run(&["projections", "rebuild", "--store", &sqlite(folder)]);
    assert_has(&sqlite(alone().path()), alone().path(), &token, 6).await;

    // An engine that was killed leaves a part in its log, and who verifies the store is told so.
    let mut engine = Engine::start(&sqlite(folder), folder, &[]);
    engine.admin().await;
    place(&engine, &token, 6..8).await;
    engine.kill();
    let verified = output(&["journal", "verify", "--store", &sqlite(folder)]);
    let note = String::from_utf8_lossy(&verified.stderr).into_owned();
    assert!(verified.status.success() && note.contains("kubebid.db-wal"), "{note}");
}
