//! A provisioner of persistent volumes: each is a folder of the plane's own.

use std::fs;
use std::path::PathBuf;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::json;

/// The provisioner that storage classes name.
const PROVISIONER: &str = "testplane.kubebid.io/folder";

/// Names the provisioner of a volume.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// Makes the default storage class, whose claims may grow.
pub(super) async fn make_class(client: &Client) -> kube::Result<()> {
    let name = super::STORAGE_CLASS;
    let metadata =
        json!({"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}});
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata,
        "provisioner": PROVISIONER, "allowVolumeExpansion": true,
    });
    let classes = Api::<StorageClass>::all(client.clone());
    classes.patch(name, &PatchParams::apply("kubelet").force(), &Patch::Apply(&class)).await.map(drop)
}

/// Serves the claims and volumes of the storage classes that name the provisioner, until the kubelet ends.
pub(super) async fn provision(client: Client, folder: PathBuf) {
    let claims = Api::<PersistentVolumeClaim>::all(client.clone());
    let volumes = Api::<PersistentVolume>::all(client.clone());
    let claims = watcher(claims, watcher::Config::default()).default_backoff().applied_objects();
    let volumes = watcher(volumes, watcher::Config::default()).default_backoff().applied_objects();
    let provisioner = Provisioner { client, folder };
    let serve = claims.for_each(async |claim| {
        if let Ok(claim) = claim {
            super::repeat(|| provisioner.serve(&claim), || true).await;
        }
    });
    let reclaim = volumes.for_each(async |volume| {
        if let Ok(volume) = volume {
            super::repeat(|| provisioner.reclaim(&volume), || true).await;
        }
    });
    tokio::join!(serve, reclaim);
}

struct Provisioner {
    client: Client,
    folder: PathBuf,
}

impl Provisioner {
    /// Makes the volume of a claim that waits for one, and lets that of a grown claim grow.
    async fn serve(&self, claim: &PersistentVolumeClaim) -> kube::Result<()> {
        let provisioner = claim.annotations().get("volume.kubernetes.io/storage-provisioner");
        let (Some(spec), Some(status)) = (&claim.spec, &claim.status) else { return Ok(()) };
        if provisioner.is_none_or(|it| it != PROVISIONER) || claim.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let name = format!("pvc-{}", claim.uid().unwrap_or_default());
        let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let requested = requests.and_then(|requests| requests.get("storage"));
        let capacity = status.capacity.as_ref().and_then(|capacity| capacity.get("storage"));
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        match status.phase.as_deref() {
            Some("Pending") if spec.volume_name.is_none() => {
                let path = self.folder.join(&name);
                fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                let volume = json!({
                    "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
                    "spec": {
                        "capacity": {"storage": requested}, "accessModes": spec.access_modes,
                        "storageClassName": spec.storage_class_name, "volumeMode": spec.volume_mode,
                        "persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": path},
                        "claimRef": {
                            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.namespace(),
                            "name": claim.name_any(), "uid": claim.uid(),
                        },
                    },
                });
                let volume = serde_json::from_value(volume).expect("it is a volume");
                volumes.create(&PostParams::default(), &volume).await?;
            }
            Some("Bound") if capacity != requested => {
                let capacity = json!({"capacity": {"storage": requested}});
                let (grown, params) = (json!({"spec": capacity}), PatchParams::default());
                volumes.patch(&name, &params, &Patch::Merge(grown)).await?;
                let claims = Api::<PersistentVolumeClaim>::namespaced(
                    self.client.clone(),
                    &claim.namespace().unwrap_or_default(),
                );
                let grown = json!({"status": capacity});
                claims.patch_status(&claim.name_any(), &params, &Patch::Merge(grown)).await?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Deletes a volume whose claim is gone, with its data.
    async fn reclaim(&self, volume: &PersistentVolume) -> kube::Result<()> {
        let released =
            volume.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Released"));
        let ours = volume.annotations().get(PROVISIONED_BY).is_some_and(|it| it == PROVISIONER);
        let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
        if !released || !ours || policy != Some("Delete") {
            return Ok(());
        }
        // Another kubelet of the plane may have done so.
        let _ = fs::remove_dir_all(self.folder.join(volume.name_any()));
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        volumes.delete(&volume.name_any(), &DeleteParams::default()).await.map(drop)
    }
}
