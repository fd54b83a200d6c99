//! The files of `kubebid.auction.v1`: services, messages and enums with their comments, as Markdown.

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const PACKAGE: &str = ".kubebid.auction.v1.";

/// A file with its comments.
pub(super) struct File<'a> {
    pub(super) proto: &'a FileDescriptorProto,
    comments: BTreeMap<&'a [i32], &'a str>,
}

impl<'a> File<'a> {
    pub(super) fn of(proto: &'a FileDescriptorProto) -> Self {
        let locations = proto.source_code_info.iter().flat_map(|info| &info.location);
        let comments = locations.map(|place| (&place.path[..], place.leading_comments())).collect();
        File { proto, comments }
    }

    /// As in `bid`.
    pub(super) fn name(&self) -> &'a str {
        let name = self.proto.name().rsplit('/').next().unwrap_or_default();
        name.strip_suffix(".proto").unwrap_or(name)
    }

    /// What stands before the thing at this path of the descriptor, in paragraphs of one line each.
    pub(super) fn comment(&self, path: &[i32]) -> String {
        let text = self.comments.get(path).copied().unwrap_or_default();
        let mut paragraphs = vec![String::new()];
        for line in text.trim().lines().map(str::trim) {
            match (line.is_empty(), paragraphs.last_mut()) {
                (false, Some(last)) if !last.is_empty() => {
                    let _ = write!(last, " {line}");
                }
                (false, Some(last)) => last.push_str(line),
                (true, _) | (_, None) => paragraphs.push(String::new()),
            }
        }
        paragraphs.join("\n\n")
    }

    /// All messages and enums, those within others after them.
    pub(super) fn types(&self, homes: &Homes) -> String {
        let mut out = String::new();
        for (at, message) in self.proto.message_type.iter().enumerate() {
            self.message(&mut out, homes, "", &[4, at as i32], message);
        }
        for (at, kind) in self.proto.enum_type.iter().enumerate() {
            self.words(&mut out, "", &[5, at as i32], kind);
        }
        out
    }

    fn message(&self, out: &mut String, homes: &Homes, scope: &str, path: &[i32], message: &DescriptorProto) {
        let name = format!("{scope}{}", message.name());
        let _ = write!(out, "\n### {name}\n\n");
        let comment = self.comment(path);
        if !comment.is_empty() {
            let _ = write!(out, "{comment}\n\n");
        }
        if message.field.is_empty() {
            out.push_str("Nothing is in it.\n");
        } else {
            out.push_str("| field | type | |\n|---|---|---|\n");
        }
        for (at, field) in message.field.iter().enumerate() {
            let comment =
                self.comment(&[path, &[2, at as i32]].concat()).replace("\n\n", " ").replace('|', "\\|");
            let kind = homes.kind(self.name(), message, field);
            let _ = writeln!(out, "| `{}` | {kind} | {comment} |", field.name());
        }
        let scope = format!("{name}.");
        for (at, inner) in message.nested_type.iter().enumerate().filter(|(_, inner)| !is_map(inner)) {
            self.message(out, homes, &scope, &[path, &[3, at as i32]].concat(), inner);
        }
        for (at, kind) in message.enum_type.iter().enumerate() {
            self.words(out, &scope, &[path, &[4, at as i32]].concat(), kind);
        }
    }

    fn words(&self, out: &mut String, scope: &str, path: &[i32], kind: &EnumDescriptorProto) {
        let _ = write!(out, "\n### {scope}{}\n\n{}\n\n", kind.name(), self.comment(path));
        out.push_str("| word | |\n|---|---|\n");
        // The first says that nothing was said; it is never sent.
        for (at, value) in kind.value.iter().enumerate().skip(1) {
            let comment =
                self.comment(&[path, &[2, at as i32]].concat()).replace("\n\n", " ").replace('|', "\\|");
            let _ = writeln!(out, "| `{}` | {comment} |", value.name());
        }
    }
}

/// In which file each message and enum is.
pub(super) struct Homes<'a>(BTreeMap<String, &'a str>);

impl<'a> Homes<'a> {
    pub(super) fn of(files: &[File<'a>]) -> Self {
        let mut homes = BTreeMap::new();
        for file in files {
            let names = file.proto.message_type.iter().map(DescriptorProto::name);
            let names = names.chain(file.proto.enum_type.iter().map(EnumDescriptorProto::name));
            homes.extend(names.map(|name| (name.to_owned(), file.name())));
        }
        Homes(homes)
    }

    /// A link to a message or an enum, by its full name, from the page of a file.
    pub(super) fn link(&self, from: &str, full: &str) -> String {
        let name = full.strip_prefix(PACKAGE).expect("all messages are of this package");
        let home = self.0[name.split('.').next().unwrap_or(name)];
        let anchor = name.to_lowercase().replace('.', "");
        let page = if home == from { String::new() } else { format!("{home}.md") };
        format!("[{name}]({page}#{anchor})")
    }

    fn kind(&self, from: &str, message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
        let entry = message.nested_type.iter().find(|inner| {
            is_map(inner) && field.type_name.as_deref().is_some_and(|full| full.ends_with(inner.name()))
        });
        if let Some(entry) = entry {
            let [key, value] = [&entry.field[0], &entry.field[1]].map(|field| self.one(from, field));
            return format!("{key} → {value}");
        }
        let one = self.one(from, field);
        match field.label() {
            Label::Repeated => format!("list of {one}"),
            Label::Optional | Label::Required if field.proto3_optional() => format!("{one}, optional"),
            Label::Optional | Label::Required => one,
        }
    }

    fn one(&self, from: &str, field: &FieldDescriptorProto) -> String {
        match (field.r#type(), field.type_name.as_deref()) {
            (_, Some(full)) => self.link(from, full),
            (Type::Uint64, None) => "uint64".to_owned(),
            (Type::Int64, None) => "int64".to_owned(),
            (Type::Uint32, None) => "uint32".to_owned(),
            (Type::Bool, None) => "bool".to_owned(),
            (Type::String, None) => "string".to_owned(),
            (Type::Bytes, None) => "bytes".to_owned(),
            (other, None) => unreachable!("{other:?} is of a kind that this API does not use"),
        }
    }
}

fn is_map(message: &DescriptorProto) -> bool {
    message.options.as_ref().is_some_and(|options| options.map_entry())
}
