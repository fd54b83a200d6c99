//! Certificates that somebody else makes.

use crate::replica::{Certificates, Replica};
use crate::story::{DISKS, Story, definition_alone};
use k8s_openapi::ByteString;
use serde_json::json;
use std::path::Path;

/// Writes a certificate and its key, and returns its bundle.
fn write(folder: &Path) -> Vec<u8> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    // Another order would show a key that does not fit, which is not used.
    std::fs::write(folder.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    std::fs::write(folder.join("tls.crt"), made.cert.pem()).unwrap();
    made.cert.pem().into_bytes()
}

fn set_bundle(story: &Story, bundle: Vec<u8>) {
    let config = json!({"caBundle": ByteString(bundle)});
    let patch = json!({"spec": {"conversion": {"webhook": {"clientConfig": config}}}}).to_string();
    story.plane.get(&["patch", "crd", DISKS, "--type=merge", "-p", &patch]);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_in_files_are_read_again_when_they_change() {
    let story = Story::begin("files", "v1beta1").await;
    let folder = tempfile::tempdir().unwrap();
    let first = write(folder.path());
    let files = Certificates::Files(folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let replicas = [0, 1].map(|replica| {
        Replica::start(story.plane, story.address(replica), files.clone(), definition_alone().to_vec())
    });
    set_bundle(&story, first.clone());
    story.balancer.until_ready(2).await;

    let second = write(folder.path());
    set_bundle(&story, second);
    // Not ready from when the bundle has changed until the file is read again.
    story.balancer.until_certificates(2).await;
    story.balancer.until_ready(2).await;
    set_bundle(&story, first);
    story.balancer.until_ready(0).await;
    replicas.into_iter().for_each(Replica::kill);
}
