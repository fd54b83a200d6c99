//! The API: a page of all calls and refusals, and one for each `.proto`.

use super::messages::{File, Homes};
use kubebid_engine::auth::policy::{self, Need};
use kubebid_engine::wire::status::Code;
use prost::Message as _;
use prost_types::{FileDescriptorSet, MethodDescriptorProto};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const INTRODUCTION: &str = "# The API

Made by `just reference` from the files in `proto/kubebid/auction/v1` and the table of refusals. [Writing a client](../clients.md) says how to begin.
R1 to R18 are the [rules of the market](../mechanism.md).

One port speaks gRPC (with reflection) and REST; the messages, checks and codes are the same. A running engine has the
OpenAPI 3.1 document at `/openapi.json`. What both have in common:

- `authorization: Bearer TOKEN` says who calls; the account is that of the token, never a field. *Needs* below is the role
  that the token must have; an administrator may call everything.
- Prices are micro-dollars per node-hour, instants microseconds since the epoch (UTC).
- JSON has the field names of the `.proto`. 64-bit integers are strings; numbers are read too. Unknown fields are refused.
- A command has a `client_key` (REST also: the header `Idempotency-Key`): repeated with the same key it is done once and
  gets its first answer, also after a crash.
- A refusal has a stable code from the table below: in gRPC as the reason of a `google.rpc.ErrorInfo`, in REST as an
  RFC 9457 problem.
- Reads take a `min_seq`: they wait until they know of that command. What a command answers is durable.
- Watches never end by themselves; each frame has a cursor to go on from without a gap.

";

/// What most want first; a file that is not named comes before all.
const ORDER: [&str; 9] =
    ["bid", "allocation", "offer", "market", "event", "billing", "admin", "inject", "common"];

/// Names below docs/reference/, and texts.
pub(super) fn pages() -> Vec<(String, String)> {
    let set = FileDescriptorSet::decode(kubebid_proto::FILE_DESCRIPTOR_SET).expect("the build made it");
    let mut files: Vec<File<'_>> = set.file.iter().map(File::of).collect();
    files.sort_by_key(|file| ORDER.iter().position(|name| *name == file.name()));
    let (homes, verbs) = (Homes::of(&files), verbs());
    let mut overview = INTRODUCTION.to_owned();
    overview.push_str("## Calls\n\n| call | REST | needs |\n|---|---|---|\n");
    let mut pages = Vec::new();
    for file in &files {
        let mut page = page_head(file);
        for (at, service) in file.proto.service.iter().enumerate() {
            let _ = write!(page, "\n## {}\n\n{}\n", service.name(), file.comment(&[6, at as i32]));
            for (index, method) in service.method.iter().enumerate() {
                let comment = file.comment(&[6, at as i32, 2, index as i32]);
                let call = Call {
                    method,
                    verbs: verbs.get(&compared(&comment)).cloned().unwrap_or_default(),
                    needs: needs(service.name(), method.name()),
                };
                call.line(&mut overview, file.name());
                call.section(&mut page, &comment, file.name(), &homes);
            }
        }
        page.push_str("\n## Messages\n");
        page.push_str(&file.types(&homes));
        pages.push((format!("api/{}.md", file.name()), page));
    }
    overview.push_str(&refusals());
    pages.push(("api.md".to_owned(), overview));
    pages
}

/// `Bids: a tenant's standing orders for nodes.` as a title and a sentence.
fn page_head(file: &File<'_>) -> String {
    let comment = file.comment(&[12]);
    let (first, more) = comment.split_once("\n\n").unwrap_or((&comment, ""));
    let (title, rest) = first.split_once(": ").unwrap_or((first.trim_end_matches('.'), ""));
    let mut text = format!("# {title}\n\n");
    for paragraph in [rest, more] {
        let mut letters = paragraph.chars();
        if let Some(first) = letters.next() {
            let _ = write!(text, "{}{}\n\n", first.to_uppercase(), letters.as_str());
        }
    }
    let path = file.proto.name();
    let _ = writeln!(text, "From `proto/{path}`; what all calls have in common is in [the API](../api.md).");
    text
}

struct Call<'a> {
    method: &'a MethodDescriptorProto,
    /// As in `POST /v1/bids`.
    verbs: Vec<String>,
    needs: &'static str,
}

impl Call<'_> {
    fn line(&self, out: &mut String, file: &str) {
        let (name, verbs) = (self.method.name(), self.rest(" <br> "));
        let _ =
            writeln!(out, "| [{name}](api/{file}.md#{}) | {verbs} | {} |", name.to_lowercase(), self.needs);
    }

    fn section(&self, out: &mut String, comment: &str, file: &str, homes: &Homes<'_>) {
        let stream = |streams: bool| if streams { "a stream of " } else { "" };
        let _ = write!(
            out,
            "\n### {}\n\n{comment}\n\n- REST: {}\n- needs: {}\n- takes {}{}, answers {}{}\n",
            self.method.name(),
            self.rest(", "),
            self.needs,
            stream(self.method.client_streaming()),
            homes.link(file, self.method.input_type()),
            stream(self.method.server_streaming()),
            homes.link(file, self.method.output_type()),
        );
    }

    fn rest(&self, between: &str) -> String {
        let verbs: Vec<_> = self.verbs.iter().map(|verb| format!("`{verb}`")).collect();
        if verbs.is_empty() { "none".to_owned() } else { verbs.join(between) }
    }
}

/// The verbs of REST by what is said of their call.
fn verbs() -> BTreeMap<String, Vec<String>> {
    let document: Value = serde_json::from_str(&kubebid_engine::rest::openapi()).expect("it is JSON");
    let mut verbs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, methods) in document["paths"].as_object().expect("it has paths") {
        for (method, operation) in methods.as_object().expect("a path has methods") {
            let Some(said) = operation["description"].as_str() else { continue };
            verbs.entry(compared(said)).or_default().push(format!("{} {path}", method.to_uppercase()));
        }
    }
    verbs
}

/// A comment whatever its lines are.
fn compared(comment: &str) -> String {
    comment.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn needs(service: &str, method: &str) -> &'static str {
    match policy::need(&format!("/kubebid.auction.v1.{service}/{method}")).expect("each call has a line") {
        Need::Markets => "any token; none where markets are public",
        Need::Credential => "any token",
        need @ (Need::Tenant | Need::Provider | Need::Party | Need::Admin) => need.roles(),
    }
}

fn refusals() -> String {
    let mut out = "\n## Refusals\n\nThe market's come first; those of the edge are never numbered. \
                   [Problems](../problems.md) says why each comes and what to do.\n\n\
                   | code | gRPC | HTTP |\n|---|---|---|\n"
        .to_owned();
    for code in Code::all() {
        let word = code.word();
        let link = format!("[`{word}`](../problems.md#{})", word.to_lowercase());
        let _ = writeln!(out, "| {link} | {:?} | {} |", code.grpc(), code.http());
    }
    out
}
