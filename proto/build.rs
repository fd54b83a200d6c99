//! Makes Rust from `kubebid/auction/v1/*.proto`: messages, clients and servers, their JSON, their schemas, and
//! the descriptors for reflection. No protoc: the compiler is protox.

use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorSet};
use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

const PACKAGE: &str = ".kubebid.auction.v1";

#[expect(clippy::disallowed_methods, reason = "cargo says where to build by the environment")]
fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo:rerun-if-changed=kubebid");
    let descriptors = protox::compile(protos(Path::new("kubebid/auction/v1"))?, ["."])?;
    let encoded = descriptors.encode_to_vec();
    fs::write(out.join("kubebid.auction.v1.bin"), &encoded)?;

    pbjson_build::Builder::new()
        .register_descriptors(&encoded)?
        .preserve_proto_field_names()
        .emit_fields()
        .btree_map([PACKAGE])
        .build(&[PACKAGE])?;
    fs::write(out.join("kubebid.auction.v1.schema.rs"), schemas(&descriptors)?)?;
    tonic_prost_build::configure().btree_map(PACKAGE).compile_fds(descriptors)?;
    Ok(())
}

/// In the order of their names, so that every build makes the same.
fn protos(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        files.push(entry?.path());
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "proto"));
    files.sort();
    Ok(files)
}

/// One line for each message and enum: the Rust type and the name it has on the wire.
fn schemas(descriptors: &FileDescriptorSet) -> Result<String, Box<dyn Error>> {
    let mut code = String::from("described! {\n");
    for file in &descriptors.file {
        for message in &file.message_type {
            describe_message(&mut code, "", "", message)?;
        }
        for kind in &file.enum_type {
            writeln!(code, "    {0} = {0:?},", kind.name())?;
        }
    }
    code.push_str("}\n");
    Ok(code)
}

fn describe_message(
    code: &mut String,
    path: &str,
    scope: &str,
    message: &DescriptorProto,
) -> std::fmt::Result {
    if message.options.as_ref().is_some_and(|options| options.map_entry()) {
        return Ok(());
    }
    let name = message.name();
    writeln!(code, "    {path}{name} = {:?},", format!("{scope}{name}"))?;
    let path = format!("{path}{}::", snake(name));
    let scope = format!("{scope}{name}.");
    for inner in &message.nested_type {
        describe_message(code, &path, &scope, inner)?;
    }
    for kind in &message.enum_type {
        writeln!(code, "    {path}{} = {:?},", kind.name(), format!("{scope}{}", kind.name()))?;
    }
    Ok(())
}

/// `PlaceBidRequest` as the module `place_bid_request`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}
