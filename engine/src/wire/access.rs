//! Reads the data to set up nodes and to reach them.

use super::lists;
use super::status::{ApiError, Code};
use super::text;
use crate::store::NodeData;
use bytes::Bytes;
use kubebid_proto::v1;
use prost::Message as _;
use std::mem;
use tracing::error;

/// The most bytes of a bid's `node_config`.
const NODE_CONFIG: usize = 16 * 1024;
/// The most bytes of an allocation's access data, encoded.
const ACCESS: usize = 4 * 1024;
/// The longest address of a node, in bytes.
const ADDRESS: usize = 253;

/// Reads the `node_config` of a bid, which is taken out of the request. None if it is empty.
pub(crate) fn node_config(request: &mut v1::PlaceBidRequest) -> Result<Option<NodeData>, ApiError> {
    let content = mem::take(&mut request.node_config);
    if content.len() > NODE_CONFIG {
        let what = format!("has {} bytes; {NODE_CONFIG} are allowed", content.len());
        return Err(ApiError::bad_field("node_config", what));
    }
    Ok((!content.is_empty()).then(|| NodeData::new(content.into())))
}

/// Reads access data. Its texts may become part of a command line, so addresses and the user have no other
/// characters than such names have, and do not begin like an option.
pub(crate) fn access(access: Option<v1::NodeAccess>) -> Result<Option<NodeData>, ApiError> {
    let Some(access) = access else { return Ok(None) };
    lists::at_most("NodeAccess.addresses", "access.addresses", access.addresses.len())?;
    lists::at_most("NodeAccess.ports", "access.ports", access.ports.len())?;
    for address in &access.addresses {
        if address.is_empty() || address.len() > ADDRESS || !is_plain(address, ".:_%-") {
            let what = format!("are host names and IP addresses of 1 to {ADDRESS} bytes");
            return Err(ApiError::bad_field("access.addresses", what));
        }
    }
    for (service, port) in &access.ports {
        text::name("access.ports", service)?;
        if !(1..=65_535).contains(port) {
            return Err(ApiError::bad_field("access.ports", format!("{port} is not 1 to 65535")));
        }
    }
    if !access.user.is_empty() {
        text::name("access.user", &access.user)?;
        if !is_plain(&access.user, "._-") {
            return Err(ApiError::bad_field("access.user", "begins with \"-\""));
        }
    }
    let is_control = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
    if access.notes.chars().any(is_control) {
        return Err(ApiError::bad_field("access.notes", "has control characters"));
    }
    let content = access.encode_to_vec();
    match content.len() {
        0 => Err(ApiError::bad_field("access", "has nothing in it")),
        bytes if bytes > ACCESS => {
            Err(ApiError::bad_field("access", format!("has {bytes} bytes, encoded; {ACCESS} are allowed")))
        }
        _ => Ok(Some(NodeData::new(content.into()))),
    }
}

/// Reads stored access data.
pub(crate) fn stored_access(content: Bytes) -> Result<v1::NodeAccess, ApiError> {
    v1::NodeAccess::decode(content).map_err(|unreadable| {
        error!(error = %unreadable, "a row of node_data holds no access data");
        ApiError::new(Code::Unavailable)
    })
}

/// Returns true if a text has only letters, digits and the characters of `others`, and does not begin with "-".
fn is_plain(text: &str, others: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || others.contains(letter);
    !text.starts_with('-') && text.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blamed(data: v1::NodeAccess) -> Option<String> {
        access(Some(data)).err().map(|error| error.field.unwrap().to_string())
    }

    fn at(address: &str) -> v1::NodeAccess {
        v1::NodeAccess { addresses: vec![address.to_owned()], ..v1::NodeAccess::default() }
    }

    #[test]
    fn access_data_is_read_back_as_it_was_given() {
        let given = v1::NodeAccess {
            ports: [("ssh".to_owned(), 22)].into(),
            user: "ubuntu".to_owned(),
            notes: "SHA256:abc\n\tasks for no password".to_owned(),
            ..at("fe80::1%eth0")
        };
        let content = access(Some(given.clone())).unwrap().unwrap().content.unwrap();
        assert_eq!(stored_access(content).unwrap(), given);
        assert_eq!(access(None).unwrap(), None);
    }

    #[test]
    fn what_is_no_address_port_or_user_is_refused_by_its_name() {
        for address in ["", "-oProxyCommand=x", "a b", "a;b", "a/b", "host\n", &"a".repeat(254)] {
            assert_eq!(blamed(at(address)).as_deref(), Some("access.addresses"), "{address:?}");
        }
        for (service, port) in [("ssh", 0), ("ssh", 65_536), ("", 22), ("a b", 22)] {
            let data = v1::NodeAccess { ports: [(service.to_owned(), port)].into(), ..at("h") };
            assert_eq!(blamed(data).as_deref(), Some("access.ports"), "{service} {port}");
        }
        for user in ["-l", "a b", "a@b", &"a".repeat(64)] {
            let data = v1::NodeAccess { user: user.to_owned(), ..at("h") };
            assert_eq!(blamed(data).as_deref(), Some("access.user"), "{user:?}");
        }
        let notes = |notes: &str| v1::NodeAccess { notes: notes.to_owned(), ..at("h") };
        assert_eq!(blamed(notes("\x1b[2J")).as_deref(), Some("access.notes"));
        assert_eq!(blamed(notes(&"n".repeat(4096))).as_deref(), Some("access"));
        assert_eq!(blamed(notes(&"n".repeat(4000))), None);
        assert_eq!(blamed(v1::NodeAccess::default()).as_deref(), Some("access"));
    }

    #[test]
    fn a_node_config_has_at_most_16_kib() {
        let mut request = v1::PlaceBidRequest { node_config: vec![0; NODE_CONFIG], ..Default::default() };
        assert_eq!(node_config(&mut request).unwrap().unwrap().content.unwrap().len(), NODE_CONFIG);
        assert_eq!(node_config(&mut request).unwrap(), None, "it was taken out");
        request.node_config = vec![0; NODE_CONFIG + 1];
        let refused = node_config(&mut request).unwrap_err();
        assert_eq!(refused.field.as_deref(), Some("node_config"));
        assert_eq!(refused.message, "node_config has 16385 bytes; 16384 are allowed");
    }
}
