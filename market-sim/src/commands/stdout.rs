//! Writes to standard output, which may be full, and ends quietly if its reader has closed it.

use kubebid_report::text::{printable_json, printable_lines};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::{self, ExitCode};
use std::thread;

/// Prints a table. Names in it are those of a trace, which others wrote.
pub(crate) fn print_text(table: &impl Display) -> io::Result<()> {
    write!(Stdout, "{}", printable_lines(&table.to_string()))
}

/// Prints a value as JSON.
pub(crate) fn print_json(value: &impl Serialize) -> io::Result<()> {
    writeln!(Stdout, "{}", printable_json(&serde_json::to_string_pretty(value)?))
}

/// Standard output for a reader that may go away, as `head` does: the rest of the output is dropped without an error.
pub(crate) struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match io::stdout().write(bytes) {
            Err(fault) if fault.kind() == ErrorKind::BrokenPipe => Ok(bytes.len()),
            written => written.map_err(unwritten),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match io::stdout().flush() {
            Err(fault) if fault.kind() == ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed.map_err(unwritten),
        }
    }
}

fn unwritten(fault: io::Error) -> io::Error {
    io::Error::new(fault.kind(), format!("cannot write the result: {fault}"))
}

/// Says something on standard error, if it can be written. `eprintln!` panics if it cannot.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints what clap has to say: the help and the version as results, and mistakes on standard error. Returns the exit
/// code.
pub(crate) fn explain(said: &clap::Error) -> ExitCode {
    let printed = said.print().and_then(|()| io::stdout().flush());
    match printed {
        Err(fault) if !said.use_stderr() && fault.kind() != ErrorKind::BrokenPipe => {
            super::complain(&unwritten(fault))
        }
        _ => ExitCode::from(u8::try_from(said.exit_code()).unwrap_or(1)),
    }
}

/// Writes the rest of the results, which would be lost without an error at the end of the process. Returns the exit code.
pub(crate) fn finish(ended: ExitCode) -> ExitCode {
    match Stdout.flush() {
        Ok(()) => ended,
        Err(fault) => super::complain(&fault),
    }
}

/// Ends the process once the reader of standard output is gone, also while it waits for input.
pub(crate) fn end_with_the_reader() {
    thread::spawn(|| {
        let out = io::stdout();
        // Errors and the end of the other side are reported without being asked for.
        let mut polled = [PollFd::new(&out, PollFlags::empty())];
        while poll(&mut polled, None) == Err(Errno::INTR) {}
        if polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
            process::exit(0);
        }
    });
}
