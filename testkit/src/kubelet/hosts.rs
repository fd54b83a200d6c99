//! Addresses of pods, and the hosts files in the place of a DNS server.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt as _;

/// The pods of all kubelets of the machine hold this port of their addresses.
const HELD_PORT: u16 = 10250;

/// A loopback address that no other pod of the machine has, also not one of another test process.
#[derive(Debug)]
pub(super) struct Address {
    pub(super) ip: Ipv4Addr,
    _held: UdpSocket,
}

impl Address {
    /// Takes a free address of 127.77.0.0/16. The search begins at another place in each process.
    pub(super) fn hold() -> Self {
        let first = std::process::id().wrapping_mul(251);
        let hold = |nth: u32| {
            let [.., high, low] = first.wrapping_add(nth).to_be_bytes();
            let ip = Ipv4Addr::new(127, 77, high, low.max(1));
            let held = UdpSocket::bind((ip, HELD_PORT)).ok()?;
            Some(Self { ip, _held: held })
        };
        (0..=u32::from(u16::MAX)).find_map(hold).expect("an address is free")
    }
}

/// The hosts files of the pods of a kubelet: each has the pod's own names, and those of the plane's services that
/// select pods of the kubelet. EndpointSlices do not tell them, as the API server allows no loopback address there.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    services: BTreeMap<(String, String), Service>,
    /// The pods of the kubelet by UID.
    pods: BTreeMap<String, Arc<Pod>>,
    files: BTreeMap<PathBuf, Own>,
}

#[derive(Debug)]
struct Own {
    namespace: String,
    lines: String,
}

impl Hosts {
    /// Writes the file of a pod, and keeps it up to date from here on.
    pub(super) fn add(
        &mut self,
        file: PathBuf,
        namespace: &str,
        ip: Ipv4Addr,
        hostname: &str,
        subdomain: Option<&str>,
    ) -> io::Result<()> {
        let mut lines = format!("{ip} localhost\n{ip}");
        if let Some(subdomain) = subdomain {
            lines += &names(&format!("{hostname}.{subdomain}"), namespace, namespace);
        }
        let _ = writeln!(lines, " {hostname}");
        self.files.insert(file.clone(), Own { namespace: namespace.to_owned(), lines });
        self.write(&file)
    }

    /// Forgets a file.
    pub(super) fn remove(&mut self, file: &PathBuf) {
        self.files.remove(file);
    }

    /// Takes note of a service that came or changed, or, without one, is gone.
    pub(super) fn service(&mut self, namespace: String, name: String, service: Option<Service>) {
        match service {
            Some(service) => self.services.insert((namespace, name), service),
            None => self.services.remove(&(namespace, name)),
        };
        self.write_all();
    }

    /// Forgets all services, as they are listed anew.
    pub(super) fn clear_services(&mut self) {
        self.services.clear();
    }

    /// Takes note of a pod that came or changed, or, without one, is gone.
    pub(super) fn pod(&mut self, uid: &str, pod: Option<Arc<Pod>>) {
        match pod {
            Some(pod) => self.pods.insert(uid.to_owned(), pod),
            None => self.pods.remove(uid),
        };
        self.write_all();
    }

    fn write_all(&self) {
        for file in self.files.keys() {
            if let Err(e) = self.write(file) {
                eprintln!("{}: {e}", file.display());
            }
        }
    }

    /// Writes a file in place, as containers have mounted it.
    fn write(&self, file: &PathBuf) -> io::Result<()> {
        let Some(own) = self.files.get(file) else { return Ok(()) };
        let mut text = own.lines.clone();
        let services = self.services.iter().flat_map(|((namespace, name), service)| {
            let pods = self.pods.values().filter(|pod| pod.namespace().as_ref() == Some(namespace));
            pods.filter_map(|pod| line(service, name, pod, namespace, &own.namespace))
        });
        // Each line once, in an order that stays.
        let lines: BTreeSet<String> = services.collect();
        text.extend(lines);
        if fs::read_to_string(file).is_ok_and(|before| before == text) {
            return Ok(());
        }
        // Not truncated first: a reader finds the older lines or the newer ones.
        let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(file)?;
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64)
    }
}

/// Returns the line of a pod that a service leads to, for pods of namespace `of`: the service's name, and the pod's if
/// it has one.
fn line(service: &Service, name: &str, pod: &Pod, namespace: &str, of: &str) -> Option<String> {
    let (spec, status) = (service.spec.as_ref()?, pod.status.as_ref()?);
    let selector = spec.selector.as_ref().filter(|selector| !selector.is_empty())?;
    let selects = selector.iter().all(|(key, value)| pod.labels().get(key) == Some(value));
    let ready = status.conditions.iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True");
    let ready = ready && pod.metadata.deletion_timestamp.is_none();
    if !selects || !(ready || spec.publish_not_ready_addresses == Some(true)) {
        return None;
    }
    let mut line = status.pod_ip.clone()?;
    let pod = pod.spec.as_ref()?;
    if let (Some(hostname), true) = (&pod.hostname, pod.subdomain.as_deref() == Some(name)) {
        line += &names(&format!("{hostname}.{name}"), namespace, of);
    }
    Some(line + &names(name, namespace, of) + "\n")
}

/// Returns the names of a service or one of its pods, as a pod of namespace `of` may write them.
fn names(name: &str, namespace: &str, of: &str) -> String {
    let mut names =
        format!(" {name}.{namespace}.svc.cluster.local {name}.{namespace}.svc {name}.{namespace}");
    if namespace == of {
        names = format!("{names} {name}");
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pod_has_an_address_of_its_own() {
        let held: Vec<_> = (0..300).map(|_| Address::hold()).collect();
        let distinct: BTreeSet<_> = held.iter().map(|address| address.ip).collect();
        assert_eq!(distinct.len(), 300);
    }
}
