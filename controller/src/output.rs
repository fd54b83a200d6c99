//! The output of a program. `println!` and `eprintln!` panic if nothing can be written.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};
use std::process;

/// Writes to standard output. A reader that goes away, as `head` does, is no error.
///
/// # Errors
/// Standard output that cannot be written, for example because the disk is full.
pub fn print(text: impl Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(fault) if fault.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(unwritten),
    }
}

/// Says something on standard error, if it can be written.
pub fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints what clap has to say, and ends the process: the help and the version on standard output, and mistakes on
/// standard error. It works like [`clap::Error::exit`], and fails if standard output cannot be written.
pub fn exit(said: &clap::Error) -> ! {
    let printed = said.print().and_then(|()| io::stdout().flush());
    match printed {
        Err(fault) if !said.use_stderr() && fault.kind() != ErrorKind::BrokenPipe => {
            note(format_args!("error: {}", unwritten(fault)));
            process::exit(1)
        }
        _ => process::exit(said.exit_code()),
    }
}

fn unwritten(fault: io::Error) -> io::Error {
    io::Error::new(fault.kind(), format!("cannot write the answer: {fault}"))
}
