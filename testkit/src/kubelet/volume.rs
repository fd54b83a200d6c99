//! The volumes of a pod as folders of the machine. Their content is that of the pod's start.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, DownwardAPIVolumeFile, KeyToPath, PersistentVolume, PersistentVolumeClaim, Pod,
    Secret, ServiceAccount, ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use super::environment;
use super::sandbox::Mount;

/// A file of a volume: path, content and, where it is not the volume's own, mode.
type File = (String, Vec<u8>, Option<i32>);

/// The volumes of one pod, by name.
pub(super) type Volumes = BTreeMap<String, PathBuf>;

/// Makes the volumes of a pod in a folder. An error says what they wait for.
pub(super) async fn prepare(client: &Client, pod: &Pod, ip: &str, folder: &Path) -> Result<Volumes, String> {
    let mut volumes = Volumes::new();
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let own = folder.join(&volume.name);
        let source = Source { client, pod, ip, namespace: pod.namespace().unwrap_or_default() };
        let path = source.prepare(volume, own).await;
        let path = path.map_err(|e| format!("volume {}: {e}", volume.name))?;
        volumes.insert(volume.name.clone(), path);
    }
    Ok(volumes)
}

/// Returns what a container mounts of the volumes of its pod.
pub(super) fn mounts(container: &Container, volumes: &Volumes) -> Result<Vec<Mount>, String> {
    let mounts = container.volume_mounts.iter().flatten().map(|mount| {
        if mount.sub_path_expr.is_some() {
            return Err("this kubelet does not know subPathExpr".to_owned());
        }
        let volume = volumes.get(&mount.name).ok_or_else(|| format!("there is no volume {}", mount.name))?;
        let source = volume.join(mount.sub_path.as_deref().unwrap_or_default());
        if !source.exists() {
            fs::create_dir_all(&source).map_err(|e| format!("{}: {e}", source.display()))?;
        }
        Ok(Mount { source, target: (&mount.mount_path).into(), read_only: mount.read_only == Some(true) })
    });
    mounts.collect()
}

/// The pod whose volumes are made, and the cluster that has their content.
struct Source<'a> {
    client: &'a Client,
    pod: &'a Pod,
    ip: &'a str,
    namespace: String,
}

impl Source<'_> {
    /// Returns the folder of a volume: `own`, unless the volume is elsewhere.
    async fn prepare(&self, volume: &Volume, own: PathBuf) -> Result<PathBuf, String> {
        fs::create_dir_all(&own).map_err(|e| e.to_string())?;
        let (files, mode) = if let Some(claim) = &volume.persistent_volume_claim {
            return self.claimed(&claim.claim_name).await;
        } else if let Some(path) = &volume.host_path {
            return Ok((&path.path).into());
        } else if volume.empty_dir.is_some() {
            return Ok(own);
        } else if let Some(it) = &volume.config_map {
            (self.config_map(&it.name, it.optional, it.items.as_ref()).await?, it.default_mode)
        } else if let Some(it) = &volume.secret {
            let name = it.secret_name.as_deref().unwrap_or_default();
            (self.secret(name, it.optional, it.items.as_ref()).await?, it.default_mode)
        } else if let Some(it) = &volume.downward_api {
            (self.fields(it.items.as_ref())?, it.default_mode)
        } else if let Some(it) = &volume.projected {
            let mut files = Vec::new();
            for source in it.sources.iter().flatten() {
                files.extend(self.projected(source).await?);
            }
            (files, it.default_mode)
        } else {
            return Err("this kubelet does not know its source".to_owned());
        };
        for (path, content, own_mode) in files {
            let file = own.join(path);
            let mode = own_mode.or(mode).and_then(|mode| u32::try_from(mode).ok()).unwrap_or(0o644);
            let written = fs::create_dir_all(file.parent().expect("it is in a folder"))
                .and_then(|()| fs::write(&file, content))
                .and_then(|()| fs::set_permissions(&file, fs::Permissions::from_mode(mode)));
            written.map_err(|e| format!("{}: {e}", file.display()))?;
        }
        Ok(own)
    }

    /// Returns the folder of the persistent volume that a claim is bound to.
    async fn claimed(&self, claim: &str) -> Result<PathBuf, String> {
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &self.namespace);
        let claim = claims.get(claim).await.map_err(|e| e.to_string())?;
        let bound = claim.status.is_some_and(|status| status.phase.as_deref() == Some("Bound"));
        let volume = claim.spec.and_then(|spec| spec.volume_name).filter(|_| bound);
        let volume = volume.ok_or("its claim is not bound")?;
        let volume = Api::<PersistentVolume>::all(self.client.clone()).get(&volume).await;
        let path = volume.map_err(|e| e.to_string())?.spec.and_then(|spec| spec.host_path);
        Ok(path.ok_or("its persistent volume is no hostPath")?.path.into())
    }

    async fn config_map(
        &self,
        name: &str,
        optional: Option<bool>,
        items: Option<&Vec<KeyToPath>>,
    ) -> Result<Vec<File>, String> {
        let found = Api::<ConfigMap>::namespaced(self.client.clone(), &self.namespace).get_opt(name).await;
        let data = found.map_err(|e| e.to_string())?.map(|map| {
            let text = map.data.unwrap_or_default().into_iter();
            let text = text.map(|(key, value)| (key, ByteString(value.into_bytes())));
            text.chain(map.binary_data.unwrap_or_default()).collect()
        });
        files(&format!("configmap {name:?}"), data, optional, items)
    }

    async fn secret(
        &self,
        name: &str,
        optional: Option<bool>,
        items: Option<&Vec<KeyToPath>>,
    ) -> Result<Vec<File>, String> {
        let found = Api::<Secret>::namespaced(self.client.clone(), &self.namespace).get_opt(name).await;
        let data = found.map_err(|e| e.to_string())?.map(|secret| secret.data.unwrap_or_default());
        files(&format!("secret {name:?}"), data, optional, items)
    }

    fn fields(&self, items: Option<&Vec<DownwardAPIVolumeFile>>) -> Result<Vec<File>, String> {
        let file = |item: &DownwardAPIVolumeFile| {
            let field = item.field_ref.as_ref().ok_or("this kubelet knows fieldRef only")?;
            let value = environment::field(self.pod, self.ip, &field.field_path)?;
            Ok((item.path.clone(), value.into_bytes(), item.mode))
        };
        items.into_iter().flatten().map(file).collect()
    }

    async fn projected(&self, source: &VolumeProjection) -> Result<Vec<File>, String> {
        if let Some(it) = &source.config_map {
            self.config_map(&it.name, it.optional, it.items.as_ref()).await
        } else if let Some(it) = &source.secret {
            self.secret(&it.name, it.optional, it.items.as_ref()).await
        } else if let Some(it) = &source.downward_api {
            self.fields(it.items.as_ref())
        } else if let Some(it) = &source.service_account_token {
            self.token(it).await
        } else {
            Err("this kubelet does not know its source".to_owned())
        }
    }

    /// Asks for a token of the pod's service account.
    async fn token(&self, wanted: &ServiceAccountTokenProjection) -> Result<Vec<File>, String> {
        let account = self.pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
        let pod =
            json!({"apiVersion": "v1", "kind": "Pod", "name": self.pod.name_any(), "uid": self.pod.uid()});
        let audiences: Vec<_> = wanted.audience.iter().collect();
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": audiences, "expirationSeconds": wanted.expiration_seconds, "boundObjectRef": pod},
        });
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), &self.namespace);
        let answer: Result<TokenRequest, _> = accounts
            .create_subresource("token", account.unwrap_or("default"), &PostParams::default(), &request)
            .await;
        let token = answer.map_err(|e| e.to_string())?.status.and_then(|status| status.token);
        Ok(vec![(wanted.path.clone(), token.unwrap_or_default().into_bytes(), None)])
    }
}

/// Returns the files of a Secret or ConfigMap: those that `items` names, or one for each key.
fn files(
    what: &str,
    data: Option<BTreeMap<String, ByteString>>,
    optional: Option<bool>,
    items: Option<&Vec<KeyToPath>>,
) -> Result<Vec<File>, String> {
    let optional = optional == Some(true);
    let mut data = match data {
        None if !optional => return Err(format!("{what} not found")),
        data => data.unwrap_or_default(),
    };
    let Some(items) = items else {
        return Ok(data.into_iter().map(|(key, content)| (key, content.0, None)).collect());
    };
    let mut files = Vec::new();
    for item in items {
        match data.remove(&item.key) {
            Some(content) => files.push((item.path.clone(), content.0, item.mode)),
            None if optional => {}
            None => return Err(format!("{what} has no key {}", item.key)),
        }
    }
    Ok(files)
}
