//! Objects that must be ready before an external resource is asked for.

use crate::external::Managed;
use crate::external::transition::DependencyState;
use crate::object::{Object, ObjectName, group_kind};
use crate::watch::{Watch, Watches};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference};
use kube::ResourceExt as _;
use kube::api::{Api, PartialObjectMeta};
use kube::runtime::reflector::ObjectRef;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// An object that another one depends on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependency {
    /// The kind with its group, as in `Bucket.storage.example.com`.
    pub kind: String,
    /// The name.
    pub name: ObjectName,
    /// The object becomes an owner: if it is deleted, so is the one that depends on it.
    pub is_owner: bool,
}

impl Dependency {
    /// Returns a dependency on an object.
    pub fn on<D: Object>(name: ObjectName) -> Dependency {
        Dependency { kind: group_kind::<D>(), name, is_owner: false }
    }

    /// Returns a dependency on an object that becomes an owner. It is in the same namespace, or in none.
    pub fn owner<D: Object>(name: ObjectName) -> Dependency {
        Dependency { is_owner: true, ..Dependency::on::<D>(name) }
    }
}

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.split('.').next().unwrap_or_default(), self.name)
    }
}

/// The kinds of objects that the objects of a controller depend on.
#[derive(Debug)]
pub struct DependencyKinds<'a, 'b, K: Managed> {
    pub(super) found: &'a mut KindMap,
    /// The kinds of objects that depend on those of the controller.
    pub(super) dependents: &'a mut Vec<Box<dyn DependentKind>>,
    pub(super) on: &'a mut Watches<'b, K>,
    /// The dependencies of the controller's own objects.
    pub(super) own: DependenciesOf<K>,
}

pub(super) type KindMap = BTreeMap<String, Box<dyn DependencyKind>>;
/// A function from an object to its dependencies.
pub(super) struct DependenciesOf<K>(pub(super) Arc<DependencyFn<K>>);

type DependencyFn<K> = dyn Fn(&K) -> Vec<Dependency> + Send + Sync;

impl<K> Clone for DependenciesOf<K> {
    fn clone(&self) -> DependenciesOf<K> {
        DependenciesOf(Arc::clone(&self.0))
    }
}

impl<K> fmt::Debug for DependenciesOf<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DependenciesOf")
    }
}

impl<K: Managed> DependencyKinds<'_, '_, K> {
    /// Adds a kind. Its objects are watched, and wake those that depend on them. `dependencies` names what its own objects
    /// depend on, so that cycles are found.
    pub fn add<D: Managed>(
        &mut self,
        api: Api<D>,
        dependencies: impl Fn(&D) -> Vec<Dependency> + Send + Sync + 'static,
    ) {
        let (objects, own) = (self.on.objects(), self.own.clone());
        let watch = self.on.map(api, move |changed: &D| {
            let is_meant =
                |it: &Dependency| it.kind == group_kind::<D>() && it.name == ObjectName::of(changed);
            let objects = objects.all();
            let waiting = objects.iter().filter(|object| own.0(object).iter().any(is_meant));
            waiting.map(|object| ObjectRef::from_obj(object.as_ref())).collect()
        });
        let kind = Kind { watch, dependencies: DependenciesOf(Arc::new(dependencies)) };
        self.found.insert(group_kind::<D>(), Box::new(kind));
    }

    /// Adds a kind without a state, such as a Secret or a ConfigMap: an object of it is ready if it is there and is not being deleted. Of
    /// these objects the process holds the metadata only.
    pub fn add_present<D: Object>(&mut self, api: Api<PartialObjectMeta<D>>) {
        let (objects, own) = (self.on.objects(), self.own.clone());
        let watch = self.on.map(api, move |changed: &PartialObjectMeta<D>| {
            let is_meant =
                |it: &Dependency| it.kind == group_kind::<D>() && it.name == ObjectName::of(changed);
            let objects = objects.all();
            let waiting = objects.iter().filter(|object| own.0(object).iter().any(is_meant));
            waiting.map(|object| ObjectRef::from_obj(object.as_ref())).collect()
        });
        self.found.insert(group_kind::<D>(), Box::new(Present { watch }));
    }

    /// Adds a kind whose objects depend on those of the controller. An object of the controller is not deleted at its service while one of
    /// them depends on it and is not to be deleted as a consequence. `dependencies` names what they depend on.
    pub fn add_dependents<D: Managed>(
        &mut self,
        api: Api<D>,
        dependencies: impl Fn(&D) -> Vec<Dependency> + Send + Sync + 'static,
    ) {
        let dependencies = DependenciesOf(Arc::new(dependencies));
        let of_changed = dependencies.clone();
        let watch = self.on.map(api, move |changed: &D| {
            let on_own = of_changed.0(changed).into_iter().filter(|it| it.kind == group_kind::<K>());
            on_own.map(|it| it.name.to_ref()).collect()
        });
        self.dependents.push(Box::new(Kind { watch, dependencies }));
    }

    /// Watches a kind whose objects may become dependencies of others, which are found by more than a name. Each change
    /// wakes the objects that `concerns` says.
    pub fn wake<D: Object>(
        &mut self,
        api: Api<D>,
        concerns: impl Fn(&K, &D) -> bool + Send + Sync + 'static,
    ) -> Watch<D> {
        let objects = self.on.objects();
        self.on.map(api, move |changed: &D| {
            let objects = objects.all();
            let concerned = objects.iter().filter(|object| concerns(object, changed));
            concerned.map(|object| ObjectRef::from_obj(object.as_ref())).collect()
        })
    }
}

/// A kind of objects that others depend on.
pub(super) trait DependencyKind: fmt::Debug + Send + Sync {
    fn find(&self, name: &ObjectName) -> Option<Found>;

    /// Returns true if the object is there, and the program cannot read it.
    fn is_unreadable(&self, name: &ObjectName) -> bool;
}

/// An object that another one depends on, as it is.
pub(super) struct Found {
    is_ready: bool,
    owner: OwnerReference,
    dependencies: Vec<Dependency>,
}

#[derive(Debug)]
struct Kind<D: Managed> {
    watch: Watch<D>,
    dependencies: DependenciesOf<D>,
}

impl<D: Managed> DependencyKind for Kind<D> {
    fn find(&self, name: &ObjectName) -> Option<Found> {
        let object = self.watch.get(&name.to_ref())?;
        let conditions = object.external().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let is_current = |it: &Condition| it.observed_generation >= object.meta().generation;
        let is_ready =
            conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True" && is_current(it));
        let owner = OwnerReference {
            api_version: D::api_version(&()).into_owned(),
            kind: D::kind(&()).into_owned(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            ..OwnerReference::default()
        };
        Some(Found { is_ready, owner, dependencies: (self.dependencies.0)(&object) })
    }

    fn is_unreadable(&self, name: &ObjectName) -> bool {
        self.watch.unreadable(&name.to_ref()).is_some()
    }
}

/// A kind of objects that depend on others.
pub(super) trait DependentKind: fmt::Debug + Send + Sync {
    /// Returns an object that depends on another one and goes before it, as in `Folder default/a`.
    fn dependent_on(&self, needed: &Dependency) -> Option<String>;
}

impl<D: Managed> DependentKind for Kind<D> {
    fn dependent_on(&self, needed: &Dependency) -> Option<String> {
        let is_needed = |it: &Dependency| it.kind == needed.kind && it.name == needed.name;
        let objects = self.watch.all();
        let mut dependents = objects.iter().filter(|object| {
            // The garbage collector deletes an object that has the other one as its owner, after that is gone.
            let goes = object.meta().deletion_timestamp.is_some();
            (self.dependencies.0)(object).iter().any(|it| is_needed(it) && (goes || !it.is_owner))
        });
        dependents.next().map(|object| Dependency::on::<D>(ObjectName::of(object.as_ref())).to_string())
    }
}

/// A kind of objects that have no state.
#[derive(Debug)]
struct Present<D: Object> {
    watch: Watch<PartialObjectMeta<D>>,
}

impl<D: Object> DependencyKind for Present<D> {
    fn find(&self, name: &ObjectName) -> Option<Found> {
        let object = self.watch.get(&name.to_ref())?;
        let owner = OwnerReference {
            api_version: D::api_version(&()).into_owned(),
            kind: D::kind(&()).into_owned(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            ..OwnerReference::default()
        };
        let is_ready = object.metadata.deletion_timestamp.is_none();
        Some(Found { is_ready, owner, dependencies: Vec::new() })
    }

    fn is_unreadable(&self, name: &ObjectName) -> bool {
        self.watch.unreadable(&name.to_ref()).is_some()
    }
}

/// The dependencies of an object as they are.
#[derive(Debug)]
pub(super) struct Dependencies {
    pub(super) state: DependencyState,
    /// Why they are not met.
    pub(super) message: String,
    /// The owner references that the object should have.
    pub(super) owners: Vec<OwnerReference>,
}

/// Looks at the dependencies of an object. The first that is not met is reported.
pub(super) fn look(own: &Dependency, wanted: &[Dependency], kinds: &KindMap) -> Dependencies {
    let mut owners = Vec::new();
    let unmet = |state, message| Dependencies { state, message, owners: Vec::new() };
    if let Some(cycle) = cycle(own, wanted, kinds) {
        let names: Vec<_> = cycle.iter().map(ToString::to_string).collect();
        return unmet(DependencyState::Cycle, format!("{} depend on each other", names.join(" → ")));
    }
    for dependency in wanted {
        let kind = kinds.get(&dependency.kind).expect("a kind that was named");
        match kind.find(&dependency.name) {
            None if kind.is_unreadable(&dependency.name) => {
                let message = format!("this version of the program cannot read {dependency}");
                return unmet(DependencyState::NotReady, message);
            }
            None => return unmet(DependencyState::Missing, format!("{dependency} does not exist")),
            Some(found) if !found.is_ready => {
                return unmet(DependencyState::NotReady, format!("{dependency} is not ready"));
            }
            Some(found) if dependency.is_owner => owners.push(found.owner),
            Some(_) => {}
        }
    }
    Dependencies { state: DependencyState::Met, message: String::new(), owners }
}

/// Returns a way from an object through its dependencies back to it.
fn cycle(own: &Dependency, wanted: &[Dependency], kinds: &KindMap) -> Option<Vec<Dependency>> {
    let is_own = |it: &Dependency| it.kind == own.kind && it.name == own.name;
    let mut ways: Vec<Vec<Dependency>> =
        wanted.iter().map(|first| vec![own.clone(), first.clone()]).collect();
    let mut seen = std::collections::BTreeSet::new();
    while let Some(way) = ways.pop() {
        let last = way.last().expect("a way has two ends");
        if is_own(last) {
            return Some(way);
        }
        if !seen.insert((last.kind.clone(), last.name.clone())) {
            continue;
        }
        let found = kinds.get(&last.kind).and_then(|kind| kind.find(&last.name));
        for next in found.map(|found| found.dependencies).unwrap_or_default() {
            ways.push(way.iter().cloned().chain([next]).collect());
        }
    }
    None
}
