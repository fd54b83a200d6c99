//! Checks of what programs do if their output cannot be written.

use std::fs::File;
use std::process::{Command, Output, Stdio};

/// Runs a command that prints something, with a standard output that nobody reads and with one that is full. Neither
/// is a panic: the first ends it with success and without a message, the second with a failure and a message.
///
/// # Panics
/// If it ends in another way.
pub fn assert_copes_without_output(mut command: impl FnMut() -> Command) {
    let mut run = |output: Stdio| -> (String, Output) {
        let mut command = command();
        let ended = command.stdin(Stdio::null()).stdout(output).stderr(Stdio::piped()).output();
        (format!("{command:?}"), ended.expect("the program is there"))
    };
    let (_, unread) = std::io::pipe().expect("a pipe");
    let (command, ended) = run(unread.into());
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.is_empty(), "{command} | true: {} {said}", ended.status);
    let full = File::options().write(true).open("/dev/full").expect("a device that is always full");
    let (command, ended) = run(full.into());
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{command} > /dev/full: {said}");
    assert!(said.contains("cannot write"), "{command} > /dev/full: {said}");
}

/// Runs a command that says something on standard error, with a standard error that nobody reads and with one that is
/// full. It ends with the same exit code as with one that is read, and returns that.
///
/// # Panics
/// If it ends in another way, or says nothing.
pub fn code_without_error_output(mut command: impl FnMut() -> Command) -> Option<i32> {
    let mut run = |errors: Stdio| {
        let mut command = command();
        let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).output();
        (format!("{command:?}"), ended.expect("the program is there"))
    };
    let (command, read) = run(Stdio::piped());
    assert!(!read.stderr.is_empty(), "{command} says nothing");
    let (_, unread) = std::io::pipe().expect("a pipe");
    let full = File::options().write(true).open("/dev/full").expect("a device that is always full");
    for errors in [Stdio::from(unread), Stdio::from(full)] {
        let (command, ended) = run(errors);
        assert_eq!(ended.status.code(), read.status.code(), "{command}");
    }
    read.status.code()
}
