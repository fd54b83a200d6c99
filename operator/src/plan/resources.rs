//! Resources: what a node has, and what a pod requests.

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube_quantity::ParsedQuantity;
use std::collections::BTreeMap;

/// Quantities by the name of the resource, as in `nvidia.com/gpu`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resources(BTreeMap<String, ParsedQuantity>);

impl Resources {
    /// Parses the quantities. One that cannot be parsed is left out.
    pub fn parse<'a>(quantities: impl IntoIterator<Item = (&'a String, &'a Quantity)>) -> Self {
        let parsed = quantities.into_iter().filter_map(|(name, quantity)| {
            ParsedQuantity::try_from(quantity).ok().map(|quantity| (name.clone(), quantity))
        });
        Resources(parsed.collect())
    }

    /// Subtracts the quantities, if there is enough of each. Returns whether there was.
    pub fn take(&mut self, wanted: &Resources) -> bool {
        let fits = self.holds(wanted);
        if fits {
            for (name, amount) in &wanted.0 {
                if let Some(there) = self.0.get_mut(name) {
                    *there -= amount.clone();
                }
            }
        }
        fits
    }

    /// Returns whether there is enough of each of these quantities.
    pub fn holds(&self, wanted: &Resources) -> bool {
        self.shortage(wanted).is_none()
    }

    /// Returns the first of these quantities of which there is not enough.
    pub fn shortage(&self, wanted: &Resources) -> Option<Shortage> {
        let nothing = ParsedQuantity::default();
        let there = |name: &String| self.0.get(name).unwrap_or(&nothing);
        let (name, amount) =
            wanted.0.iter().find(|(name, amount)| **amount > nothing && *amount > there(name))?;
        Some(Shortage {
            resource: name.clone(),
            requested: text(name, amount),
            available: text(name, there(name).max(&nothing)),
        })
    }

    /// Returns the first resource of which a node of this type has nothing, although the type promises it.
    pub fn lacking(&self, node: &Resources) -> Option<String> {
        let nothing = ParsedQuantity::default();
        let is_lacking = |name: &String| node.0.get(name).is_none_or(|amount| *amount <= nothing);
        self.0
            .iter()
            .find(|(name, amount)| **amount > nothing && is_lacking(name))
            .map(|(name, _)| name.clone())
    }

    /// Returns these quantities, each at most as large as what nodes of the type were found to have.
    pub fn at_most(mut self, found: &Resources) -> Self {
        for (name, amount) in &mut self.0 {
            let found = found.0.get(name).cloned().unwrap_or_default();
            *amount = found.min(amount.clone());
        }
        self
    }

    /// Returns what decides how early a pod with these requests is placed: GPUs, then memory, then processors.
    pub fn size(&self) -> impl Ord + use<> {
        let of = |name: &str| self.0.get(name).cloned().unwrap_or_default();
        (self.gpus(), of("memory"), of("cpu"))
    }

    fn add(&mut self, other: &Resources) {
        for (name, amount) in &other.0 {
            let sum = self.0.remove(name).unwrap_or_default() + amount.clone();
            self.0.insert(name.clone(), sum);
        }
    }

    fn at_least(&mut self, other: &Resources) {
        for (name, amount) in &other.0 {
            let there = self.0.entry(name.clone()).or_insert_with(|| amount.clone());
            if *there < *amount {
                *there = amount.clone();
            }
        }
    }

    /// Returns what each of several nodes has at least: the least of each resource.
    pub fn smallest(nodes: impl IntoIterator<Item = Resources>) -> Resources {
        let least = nodes.into_iter().reduce(|mut least, node| {
            least.0.retain(|name, _| node.0.contains_key(name));
            for (name, amount) in &mut least.0 {
                if let Some(other) = node.0.get(name).filter(|other| *other < amount) {
                    *amount = other.clone();
                }
            }
            least
        });
        least.unwrap_or_default()
    }

    /// Returns the number of GPUs of any vendor.
    pub fn gpus(&self) -> ParsedQuantity {
        let gpus = self.0.iter().filter(|(name, _)| name.ends_with("/gpu")).map(|(_, amount)| amount.clone());
        gpus.fold(ParsedQuantity::default(), |sum, amount| sum + amount)
    }

    /// Returns what is left of a node's resources with these pods on it.
    pub fn without<'a>(mut self, pods: impl IntoIterator<Item = &'a Pod>) -> Self {
        for pod in pods {
            for (name, amount) in requests(pod).0 {
                if let Some(there) = self.0.get_mut(&name) {
                    *there -= amount;
                }
            }
        }
        self
    }
}

/// Returns a quantity for people: bytes in `Gi` or `Mi`, rounded to hundredths.
fn text(resource: &str, amount: &ParsedQuantity) -> String {
    let is_bytes =
        resource == "memory" || resource == "ephemeral-storage" || resource.starts_with("hugepages-");
    let Some(bytes) = amount.to_bytes_f64().filter(|_| is_bytes) else { return amount.to_string() };
    let mebibytes = bytes / f64::from(1 << 20);
    let (number, unit) = if mebibytes < 1024.0 { (mebibytes, "Mi") } else { (mebibytes / 1024.0, "Gi") };
    format!("{}{unit}", (number * 100.0).round() / 100.0)
}

/// A resource of which there is not enough for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The name of the resource, as in `nvidia.com/gpu`.
    pub resource: String,
    /// The amount that the pod requests.
    pub requested: String,
    /// The amount that is there.
    pub available: String,
}

/// Returns the resources that the scheduler reserves for a pod: the sum of its containers, or its largest init container
/// together with the sidecars that started before it; and one of `pods`.
pub fn requests(pod: &Pod) -> Resources {
    let mut sum = Resources::default();
    let Some(spec) = &pod.spec else { return sum };
    for container in &spec.containers {
        sum.add(&of_container(container));
    }
    let mut sidecars = Resources::default();
    let mut starting = Resources::default();
    for container in spec.init_containers.iter().flatten() {
        let mut at_once = sidecars.clone();
        at_once.add(&of_container(container));
        starting.at_least(&at_once);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars.add(&of_container(container));
        }
    }
    sum.add(&sidecars);
    sum.at_least(&starting);
    sum.add(&Resources::parse(spec.overhead.iter().flatten()));
    sum.add(&Resources::parse([(&"pods".to_owned(), &Quantity("1".to_owned()))]));
    sum
}

fn of_container(container: &Container) -> Resources {
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    Resources::parse(requests.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(of: &[(&str, &str)]) -> Resources {
        let of: BTreeMap<String, Quantity> =
            of.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned()))).collect();
        Resources::parse(&of)
    }

    #[test]
    fn of_a_set_of_types_the_least_of_each_resource_counts() {
        let large = resources(&[("cpu", "64"), ("memory", "64Gi"), ("nvidia.com/gpu", "8"), ("pods", "110")]);
        let small = resources(&[("cpu", "96"), ("memory", "1Ti"), ("nvidia.com/gpu", "4"), ("pods", "50")]);
        let least = resources(&[("cpu", "64"), ("memory", "64Gi"), ("nvidia.com/gpu", "4"), ("pods", "50")]);
        assert_eq!(Resources::smallest([large.clone(), small]), least);
        let without_gpus = Resources::smallest([large, resources(&[("cpu", "8")])]);
        assert_eq!(without_gpus, resources(&[("cpu", "8")]));
        assert_eq!(Resources::smallest([]), Resources::default());
    }

    #[test]
    fn a_type_promises_what_its_nodes_are_found_to_have() {
        let promised = resources(&[("memory", "64Gi"), ("nvidia.com/gpu", "8")]);
        let node = resources(&[("memory", "62Gi"), ("nvidia.com/gpu", "8"), ("cpu", "4")]);
        assert_eq!(
            promised.clone().at_most(&node),
            resources(&[("memory", "62Gi"), ("nvidia.com/gpu", "8")])
        );
        assert_eq!(promised.lacking(&node), None);
        assert_eq!(promised.lacking(&resources(&[("memory", "62Gi")])).as_deref(), Some("nvidia.com/gpu"));
        let bare = resources(&[("memory", "62Gi"), ("nvidia.com/gpu", "0")]);
        assert_eq!(promised.lacking(&bare).as_deref(), Some("nvidia.com/gpu"));
        let shortage = node.shortage(&resources(&[("memory", "64Gi")])).unwrap();
        assert_eq!((&shortage.requested[..], &shortage.available[..]), ("64Gi", "62Gi"));
        let amount = |text: &str| ParsedQuantity::try_from(text).unwrap();
        let said = [("memory", "68451041280"), ("memory", "640Mi"), ("cpu", "500m"), ("pods", "3")];
        assert_eq!(said.map(|(name, it)| text(name, &amount(it))), ["63.75Gi", "640Mi", "500m", "3"]);
    }
}
