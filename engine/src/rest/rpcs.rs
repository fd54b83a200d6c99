//! The rpcs of the `.proto`: services, paths and comments.

use prost::Message as _;
use prost_types::{FileDescriptorProto, FileDescriptorSet};
use std::collections::BTreeMap;

pub(super) struct Rpc {
    pub(super) service: String,
    pub(super) service_comment: String,
    /// The path of the gRPC method, "/package.Service/Method".
    pub(super) path: String,
    pub(super) comment: String,
}

/// Returns all rpcs by name. No two services share a name.
pub(super) fn all() -> BTreeMap<String, Rpc> {
    let set = FileDescriptorSet::decode(kubebid_proto::FILE_DESCRIPTOR_SET)
        .expect("the build made the descriptors");
    let mut rpcs = BTreeMap::new();
    for file in &set.file {
        for (at, service) in file.service.iter().enumerate() {
            for (index, method) in service.method.iter().enumerate() {
                let place = [6, at as i32, 2, index as i32];
                let rpc = Rpc {
                    service: service.name().to_owned(),
                    service_comment: comment(file, &place[..2]),
                    path: format!("/{}.{}/{}", file.package(), service.name(), method.name()),
                    comment: comment(file, &place),
                };
                rpcs.insert(method.name().to_owned(), rpc);
            }
        }
    }
    rpcs
}

fn comment(file: &FileDescriptorProto, place: &[i32]) -> String {
    let locations = file.source_code_info.iter().flat_map(|info| &info.location);
    let found =
        locations.filter(|location| location.path == place).map(|location| location.leading_comments());
    found.flat_map(|text| text.trim().lines()).map(str::trim).collect::<Vec<_>>().join("\n")
}
