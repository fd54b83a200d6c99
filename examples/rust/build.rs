//! Makes the messages and the clients from the published `.proto` files.

use std::error::Error;
use std::fs;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new("../../proto");
    println!("cargo:rerun-if-changed={}", root.join("kubebid").display());
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join("kubebid/auction/v1"))? {
        files.push(entry?.path());
    }
    let descriptors = protox::compile(files, [root])?;
    tonic_prost_build::configure().build_server(false).compile_fds(descriptors)?;
    Ok(())
}
