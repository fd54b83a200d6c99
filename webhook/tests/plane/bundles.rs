//! The bundle stays when the manifests are applied again, and the webhooks of all kinds are called.

use crate::story::{DISKS, Story, bundle};
use futures_util::stream::{self, TryStreamExt as _};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, PostParams};
use kubebid_webhook::authority::Target;
use serde_json::{Value, json};

/// Returns the manifest of the configuration of an admission webhook.
fn configuration(story: &Story, kind: &str, path: &str) -> Value {
    let rule = json!({"apiGroups": ["example.com"], "apiVersions": ["v1beta1"], "operations": ["CREATE"], "resources": ["disks"]});
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "disks"},
        "webhooks": [{
            "name": "disks.example.com", "clientConfig": {"url": story.url(path)}, "rules": [rule],
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore", "timeoutSeconds": 5,
        }],
    })
}

fn manifests(story: &Story) -> String {
    let configurations = [
        configuration(story, "MutatingWebhookConfiguration", "/mutate"),
        configuration(story, "ValidatingWebhookConfiguration", "/validate"),
    ];
    let texts = configurations.iter().map(ToString::to_string).chain([story.definition("v1beta1")]);
    texts.collect::<Vec<_>>().join("\n---\n")
}

fn mutating_bundle(configuration: &MutatingWebhookConfiguration) -> Option<String> {
    let webhook = configuration.webhooks.as_ref()?.first()?;
    Some(String::from_utf8(webhook.client_config.ca_bundle.clone()?.0).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn applying_the_manifests_again_does_not_take_the_bundle_away() {
    let story = Story::begin("bundles", "v1beta1").await;
    story.plane.apply(&manifests(&story));
    let name = || "disks".to_owned();
    let targets =
        [Target::Definition(DISKS.to_owned()), Target::Mutating(name()), Target::Validating(name())];
    let replicas = story.start_both(&targets).await;
    let wanted = story.until_authority(|_| true).await.bundle();
    let configurations = Api::<MutatingWebhookConfiguration>::all(story.client.clone());
    let has_bundle = async |what: &str| {
        let definition = story.definitions().get(DISKS).await.unwrap();
        assert_eq!(bundle(&definition).as_ref(), Some(&wanted), "{what}");
        let configuration = configurations.get("disks").await.unwrap();
        assert_eq!(mutating_bundle(&configuration).as_ref(), Some(&wanted), "{what}");
        definition
    };
    // Both replicas lead in this story: the one that is late may still write.
    story.until(story.definitions(), DISKS, |definition| bundle(definition).as_ref() == Some(&wanted)).await;
    let is_mutating = |configuration: &MutatingWebhookConfiguration| {
        mutating_bundle(configuration).as_ref() == Some(&wanted)
    };
    story.until(configurations.clone(), "disks", is_mutating).await;

    let changed = manifests(&story).replace(r#""timeoutSeconds":5"#, r#""timeoutSeconds":7"#);
    story.plane.apply(&changed);
    has_bundle("after kubectl apply").await;
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    let applied = story.plane.kubectl_reading(&apply, &manifests(&story));
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    let definition = has_bundle("after kubectl apply --server-side").await;

    let ours = definition
        .managed_fields()
        .iter()
        .find(|it| it.manager.as_deref() == Some("kubebid-webhook-bundles"));
    let fields = &ours.unwrap().fields_v1.as_ref().unwrap().0;
    let only = json!({"f:spec": {"f:conversion": {"f:webhook": {"f:clientConfig": {"f:caBundle": {}}}}}});
    assert_eq!(*fields, only);

    // Whoever replaces the whole definition takes the bundle away, and it comes back.
    let replaced = story.plane.kubectl_reading(&["replace", "-f", "-"], &story.definition("v1beta1"));
    assert!(replaced.status.success(), "{}", String::from_utf8_lossy(&replaced.stderr));
    story.until(story.definitions(), DISKS, |definition| bundle(definition).as_ref() == Some(&wanted)).await;
    for replica in replicas {
        replica.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn defaults_warnings_and_long_lists_come_from_the_webhooks() {
    let story = Story::begin("calls", "v1beta1").await;
    story.plane.apply(&manifests(&story));
    let name = || "disks".to_owned();
    let targets =
        [Target::Definition(DISKS.to_owned()), Target::Mutating(name()), Target::Validating(name())];
    let replicas = story.start_both(&targets).await;

    // The API server learns of the bundles a moment later, and goes on without these webhooks until then.
    let disk = |name: &str, size: u64| {
        let spec = json!({"gigabytes": size, "zones": ["a", "b"]});
        let metadata = json!({"name": name, "namespace": story.namespace});
        json!({"apiVersion": "example.com/v1beta1", "kind": "Disk", "metadata": metadata, "spec": spec})
    };
    let mut attempt = 0;
    let (made, name) = loop {
        let name = format!("large-{attempt}");
        let create = ["create", "-f", "-"];
        let made = story.plane.kubectl_reading(&create, &disk(&name, 2_000).to_string());
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let is_fast = story.betas().get(&name).await.unwrap().spec.fast == Some(true);
        if is_fast && !made.stderr.is_empty() {
            break (made, name);
        }
        attempt += 1;
        assert!(attempt < 500, "the webhooks are not called");
    };
    let warned = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(warned.contains("a disk of this size takes long to make"), "{warned}");

    // What v1alpha1 cannot say is kept when a client of it writes.
    story.plane.get(&[
        "-n",
        story.namespace,
        "patch",
        "disks.v1alpha1.example.com",
        &name,
        "--type=merge",
        "-p",
        r#"{"spec":{"size":"3Ti"}}"#,
    ]);
    let spec = story.betas().get(&name).await.unwrap().spec;
    assert_eq!((spec.gigabytes, spec.zones), (3_072, vec!["a".to_owned(), "b".to_owned()]));

    // A list of more than 2 MB is one request.
    let note = "n".repeat(5_000);
    let many: Vec<Result<_, kube::Error>> = (0..500)
        .map(|number| {
            let mut disk = disk(&format!("many-{number}"), 1);
            disk["metadata"]["annotations"] = json!({"note": note});
            Ok(serde_json::from_value(disk).unwrap())
        })
        .collect();
    let betas = story.betas();
    let create = async |disk| betas.create(&PostParams::default(), &disk).await.map(|_| ());
    stream::iter(many).map_ok(create).try_buffer_unordered(8).try_collect::<Vec<()>>().await.unwrap();
    let listed = story.alphas().list(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items.iter().filter(|disk| disk.spec.size == "1Gi").count(), 500);
    for replica in replicas {
        replica.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_with_a_bundle_is_removed_by_a_json_patch() {
    let story = Story::begin("removal", "v1beta1").await;
    let mut two = configuration(&story, "MutatingWebhookConfiguration", "/mutate");
    let mut second = two["webhooks"][0].clone();
    second["name"] = json!("others.example.com");
    let one = two.to_string();
    two["webhooks"].as_array_mut().unwrap().push(second);
    let apply = |manifest: &str| {
        story.plane.kubectl_reading(&["apply", "--server-side", "--force-conflicts", "-f", "-"], manifest)
    };
    assert!(apply(&two.to_string()).status.success());
    let targets = [Target::Definition(DISKS.to_owned()), Target::Mutating("disks".to_owned())];
    let _replicas = story.start_both(&targets).await;

    // The fields of a webhook that another field manager has stay, and are no webhook alone.
    let refused = apply(&one);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("webhooks[1]"), "{said}");
    let remove = ["patch", "mutatingwebhookconfiguration", "disks", "--type=json", "-p"];
    let patch = r#"[{"op": "remove", "path": "/webhooks/1"}]"#;
    story.plane.get(&[&remove[..], &[patch]].concat());
    assert!(apply(&one).status.success());
    let configurations = Api::<MutatingWebhookConfiguration>::all(story.client.clone());
    assert_eq!(configurations.get("disks").await.unwrap().webhooks.unwrap().len(), 1);

    let none = r#"[{"op": "replace", "path": "/spec/conversion", "value": {"strategy": "None"}}]"#;
    story.plane.get(&["patch", "crd", DISKS, "--type=json", "-p", none]);
    story.until(story.definitions(), DISKS, |definition| bundle(definition).is_none()).await;
}
