//! Writes to standard output, and ends quietly if its reader has closed it.

use std::io::{self, ErrorKind, Write};

/// Standard output for a reader that may go away, as `head` does: the rest of the output is dropped without an error.
pub(crate) struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match io::stdout().write(bytes) {
            Err(fault) if fault.kind() == ErrorKind::BrokenPipe => Ok(bytes.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match io::stdout().flush() {
            Err(fault) if fault.kind() == ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
        }
    }
}
