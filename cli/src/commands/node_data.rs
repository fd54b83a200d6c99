//! Reads files with data to set up nodes and to reach them.

use crate::failure::Failure;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

/// Returns the content of a file, or of standard input for `-`. Reads one byte more than `most`, so that a larger file
/// is noticed, and no endless one is read to its end.
pub(crate) fn file(path: &Path, most: usize) -> Result<Vec<u8>, Failure> {
    let mut content = Vec::new();
    let limit = most as u64 + 1;
    let read = match path.as_os_str() == "-" {
        true => io::stdin().lock().take(limit).read_to_end(&mut content),
        false => fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut content)),
    };
    read.map_err(|error| {
        Failure::usage(format!("{}: {error}", path.display())).next("name a file that can be read, or -")
    })?;
    if content.len() > most {
        return Err(Failure::usage(format!("{} has more than {most} bytes", path.display())));
    }
    Ok(content)
}
