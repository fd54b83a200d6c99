//! Reconcilers of objects that stand for a set of child objects.
//!
//! The wanted children are a pure function of the object. The library creates what is missing, applies what differs, and
//! deletes children that are not wanted any more. A foreign object with the name of a child is never touched.

use crate::api_error;
use crate::applied::{has_wanted, is_applied};
use crate::clock;
use crate::failpoint;
use crate::index::Index;
use crate::object::{Object, ObjectName, controller_of, group_kind};
use crate::reconciler::{Action, Context, Error, Reconciler};
use crate::watch::{Watch, Watches};
use crate::writer::WriteError;
use futures_util::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::Api;
use kube::core::metadata::{PartialObjectMeta, PartialObjectMetaExt as _};
use kube::runtime::events::EventType;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tracing::warn;

/// A wanted child, or a wanted change of an object that is no child.
#[derive(Clone, Debug)]
pub struct Child {
    desired: Arc<dyn Desired>,
    written: Written,
    /// The owner of a child that is there follows the wanted child, and the child may be that of an earlier object.
    is_inherited: bool,
}

/// The way in which a child is written.
#[derive(Clone, Debug)]
enum Written {
    /// Applied when it differs; deleted and created again when one of these parts differs.
    Applied { immutable: &'static [&'static str] },
    /// Created if it is missing.
    Once,
    /// Left as it is, or is not.
    Never,
    /// Not created: this merge patch is made.
    Patched(Value),
}

impl Child {
    /// Returns a child whose fields are applied again when they differ. Its other fields are left alone.
    pub fn applied<C: Object>(object: C) -> Child {
        Child::new(object, Written::Applied { immutable: &[] })
    }

    /// Works like [`Child::applied`], for an object in JSON.
    ///
    /// # Panics
    /// If it is no object of kind `C`.
    pub fn applied_json<C: Object>(object: Value) -> Child {
        Child::applied::<C>(serde_json::from_value(object).expect("an object of this kind"))
    }

    /// Returns a child that is created if it is missing and never written again, such as a generated password.
    pub fn created_once<C: Object>(object: C) -> Child {
        Child::new(object, Written::Once)
    }

    /// Returns a child that is not created if it is missing, and not deleted if it is there.
    pub fn kept<C: Object>(object: C) -> Child {
        Child::new(object, Written::Never)
    }

    /// Returns a change of an object that is no child, as a merge patch. Its kind must be named by [`Kinds::add_related`].
    pub fn patched<T: Object>(object: T, patch: Value) -> Child {
        Child::new(object, Written::Patched(patch))
    }

    fn new<C: Object>(object: C, written: Written) -> Child {
        Child { desired: Arc::new(object), written, is_inherited: false }
    }

    /// Keeps a child for the next object of the name: it may be wanted without an owner reference, so that it stays when its
    /// object is deleted, and it then belongs to the next object of that name. The owner reference of a child that is there
    /// is made as it is wanted.
    #[must_use]
    pub fn inherited(self) -> Child {
        Child { is_inherited: true, ..self }
    }

    /// Names parts of the object that the API server does not let anybody change, as JSON pointers such as
    /// `/spec/volumeClaimTemplates`. When one of them differs, the child is deleted without its dependents (pods of a
    /// StatefulSet go on running), and created again when it is gone.
    pub fn recreated_for(self, immutable: &'static [&'static str]) -> Child {
        Child { written: Written::Applied { immutable }, ..self }
    }
}

/// A child object of any kind.
trait Desired: fmt::Debug + Send + Sync {
    fn key(&self) -> ChildKey;
    fn as_any(&self) -> &dyn Any;
}

impl<C: Object> Desired for C {
    fn key(&self) -> ChildKey {
        (group_kind::<C>(), self.name_any())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Kind, with its group, and name of a child.
type ChildKey = (String, String);

/// An object of any kind.
type AnyObject = Arc<dyn Any + Send + Sync>;

/// An object that stands for a set of child objects. [`Composed`] makes a [`Reconciler`] of it.
pub trait Composite: Send + Sync + 'static {
    /// The kind of object.
    type Object: Object;

    /// The name of the controller, as in `websites`.
    const NAME: &'static str;

    /// The reasons of conditions that people should hear of: an event is written when a condition gets one of them.
    const WARNINGS: &'static [&'static str] = &[];

    /// Names the kinds of children.
    fn kinds(&self, kinds: &mut Kinds<'_, '_, Self::Object>);

    /// Returns the wanted children. Pure.
    fn children(&self, object: &Self::Object, observed: &Children) -> Vec<Child>;

    /// Returns the status, from the children as they are. Pure. It is also asked for while an object with a
    /// [cleanup](Composite::cleanup) is being deleted.
    fn status(&self, object: &Self::Object, observed: &Children, now: Timestamp) -> Value;

    /// Returns the cleanup of deleted objects, if there is one.
    fn cleanup(&self) -> Option<Cleanup> {
        None
    }

    /// Cleans up after a deleted object whose children are still there. It may be called again after it was done. Each call
    /// is part of a pass, and should take seconds.
    ///
    /// # Errors
    /// A sentence that says what is left. It is called again a second later, until the limit of the [`Cleanup`] is over.
    fn clean_up(
        &self,
        _object: &Self::Object,
        _context: &Context,
    ) -> impl Future<Output = Result<(), String>> + Send {
        std::future::ready(Ok(()))
    }
}

/// The cleanup of deleted objects. A finalizer keeps an object until it is done, or for a limited time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleanup {
    /// The finalizer, as in `example.com/website`.
    pub finalizer: &'static str,
    /// The longest time from the deletion to the last attempt. An object of which something is left after that goes with an
    /// event of the reason [`CLEANUP_INCOMPLETE`].
    pub limit: Duration,
}

/// The reason of the event of an object that goes although something is left of it.
pub const CLEANUP_INCOMPLETE: &str = "CleanupIncomplete";

/// Returns the metadata of a child: its name, the namespace and controller reference that its owner gives it, and an
/// annotation that names the owner as well. A child whose reference is removed by hand is found by the annotation.
pub fn child_metadata<K: Object>(owner: &K, name: &str) -> ObjectMeta {
    let annotation = format!("{}/{}", owner.name_any(), owner.uid().unwrap_or_default());
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: owner.namespace(),
        owner_references: owner.controller_owner_ref(&()).map(|reference| vec![reference]),
        annotations: Some(BTreeMap::from([(owner_annotation::<K>(), annotation)])),
        ..ObjectMeta::default()
    }
}

/// Returns the annotation that names the owner of a child of kind `K`, as in `example.com/website: NAME/UID`.
pub fn owner_annotation<K: Object>() -> String {
    format!("{}/{}", K::group(&()), K::kind(&()).to_lowercase())
}

/// The name and UID of the object that a child belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    name: String,
    uid: String,
}

impl Owner {
    /// Returns the object of kind `K` that controls a child. The annotation counts if the child has no controller, and if
    /// somebody has changed its controller reference, but not the UID in it.
    fn of<K: Object, C: Object>(child: &C) -> Option<Owner> {
        let mut owners = child.owner_references().iter();
        let controller = owners.find(|owner| owner.controller == Some(true));
        let annotated = Owner::annotated::<K, C>(child);
        annotated.filter(|owner| controller.is_none_or(|it| it.uid == owner.uid)).or_else(|| {
            let controller = controller_of::<K, C>(child)?;
            Some(Owner { name: controller.name.clone(), uid: controller.uid.clone() })
        })
    }

    /// Returns the object that the annotation of a child names.
    fn annotated<K: Object, C: Object>(child: &C) -> Option<Owner> {
        let (name, uid) = child.annotations().get(&owner_annotation::<K>())?.rsplit_once('/')?;
        Some(Owner { name: name.to_owned(), uid: uid.to_owned() })
    }
}

/// The reconciler of a [`Composite`].
#[derive(Debug)]
pub struct Composed<C: Composite> {
    composite: C,
    kinds: KindMap,
}

type KindMap = BTreeMap<String, Box<dyn ChildKind>>;

impl<C: Composite> Composed<C> {
    /// Returns the reconciler of a composite.
    pub fn new(composite: C) -> Composed<C> {
        Composed { composite, kinds: BTreeMap::new() }
    }
}

impl<C: Composite> Reconciler for Composed<C> {
    type Object = C::Object;
    type Error = Infallible;

    const NAME: &'static str = C::NAME;

    fn watches(&mut self, on: &mut Watches<'_, C::Object>) {
        self.composite.kinds(&mut Kinds { found: &mut self.kinds, on });
    }

    async fn reconcile(
        &self,
        object: Arc<C::Object>,
        context: &Context,
    ) -> Result<Action, Error<Infallible>> {
        let mut object = context.writer.newest(object);
        if object.meta().deletion_timestamp.is_some() {
            // The garbage collector deletes the children.
            return self.clean_up(&object, context).await;
        }
        if let Some(cleanup) =
            self.composite.cleanup().filter(|it| !has_finalizer(object.as_ref(), it.finalizer))
        {
            let Some(kept) = context.writer.add_finalizer(object.as_ref(), cleanup.finalizer).await? else {
                return Ok(Action::AwaitChange);
            };
            object = Arc::new(kept);
        }
        let mut observed = self.observe(&object, context);
        let wanted = self.composite.children(&object, &observed);
        let outcome = self.write(&object, &wanted, &mut observed, context).await?;
        failpoint::hit("children-written");
        if outcome.is_unseen {
            return Ok(Action::RequeueAfter(UNSEEN));
        }
        let status = self.composite.status(&object, &observed, clock::now());
        context.writer.status(object.as_ref(), &status).await?;
        warn_of::<C>(&object, &status, context)?;
        match outcome.refused {
            Some(error) => Err(error),
            None if observed.conflicts.is_empty() && !outcome.is_unreadable => Ok(Action::AwaitChange),
            None => Ok(Action::RequeueAfter(FOREIGN)),
        }
    }
}

/// The time until the next look at an object that has the name of a child, and is foreign or cannot be read: nothing tells
/// when it goes.
const FOREIGN: Duration = Duration::from_secs(30);
/// The time until the next pass if the watch does not show a child yet that is there.
const UNSEEN: Duration = Duration::from_millis(500);
/// The longest time of one attempt of a cleanup.
const CLEANUP_ATTEMPT: Duration = Duration::from_secs(30);
/// The time until a cleanup is tried again.
const CLEANUP_RETRY: Duration = Duration::from_secs(1);

fn has_finalizer<K: Object>(object: &K, finalizer: &str) -> bool {
    object.finalizers().iter().any(|name| name == finalizer)
}

/// Writes an event for each condition that has got a reason of which people should hear.
fn warn_of<C: Composite>(
    object: &C::Object,
    status: &Value,
    context: &Context,
) -> Result<(), Error<Infallible>> {
    let before = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
    for condition in status["conditions"].as_array().into_iter().flatten() {
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        let mut known = before["status"]["conditions"].as_array().into_iter().flatten();
        let is_known = known.any(|it| it["type"] == condition["type"] && it["reason"] == condition["reason"]);
        if !is_known && C::WARNINGS.contains(&text("reason")) {
            context.events.publish(object, None, EventType::Warning, text("reason"), text("message"));
        }
    }
    Ok(())
}

/// The kinds of children of a composite.
#[derive(Debug)]
pub struct Kinds<'a, 'b, K: Object> {
    found: &'a mut KindMap,
    on: &'a mut Watches<'b, K>,
}

impl<K: Object> Kinds<'_, '_, K> {
    /// Adds a kind of children: they are watched, and wake the object that controls them.
    pub fn add<C: Object>(&mut self, api: Api<C>) {
        self.add_children(api, |child: C| child);
    }

    /// Adds a kind of children of which this process holds the metadata only, such as Secrets. They are
    /// [created once](Child::created_once).
    pub fn add_metadata<C: Object>(&mut self, api: Api<PartialObjectMeta<C>>) {
        self.add_children(api, |child: C| child.meta().clone().into_response_partial());
    }

    /// Adds a kind of objects that are no children, but that belong to an object by a name. They wake it, and it may
    /// [change](Child::patched) them.
    pub fn add_related<T: Object>(&mut self, api: Api<T>, belongs_to: fn(&T) -> Option<ObjectName>) {
        let watch =
            self.on.map(api, move |related: &T| belongs_to(related).iter().map(ObjectName::to_ref).collect());
        let by_object = watch.index(move |related: &T| belongs_to(related).map(|name| name.to_string()));
        self.found.insert(group_kind::<T>(), Box::new(Related { watch, by_object }));
    }

    fn add_children<C: Object, W: Object>(&mut self, api: Api<W>, watched: fn(C) -> W) {
        // Objects of others may be many and large.
        let is_whole =
            |child: &W| Owner::of::<K, W>(child).is_some() || Owner::annotated::<K, W>(child).is_some();
        let watch = self.on.map_some(api, is_whole, |child: &W| {
            let namespace = child.namespace().unwrap_or_default();
            // An object that is the child of another by now may have been one of the object that the annotation names.
            let owners = [Owner::of::<K, W>(child), Owner::annotated::<K, W>(child)];
            let names: BTreeSet<_> = owners.into_iter().flatten().map(|owner| owner.name).collect();
            let names = names.into_iter().map(|name| ObjectName { namespace: namespace.clone(), name });
            names.map(|name| name.to_ref()).collect()
        });
        let by_owner = watch.index(|child: &W| Owner::of::<K, W>(child).map(|owner| owner.uid));
        let annotation = owner_annotation::<K>();
        let kind = Kind { watch, by_owner, owner_of: Owner::of::<K, W>, annotation, watched };
        self.found.insert(group_kind::<C>(), Box::new(kind));
    }
}

/// One kind of children or related objects.
trait ChildKind: fmt::Debug + Send + Sync {
    /// Returns the children of an object, by name.
    fn children_of(&self, uid: &str, context: &Context) -> Vec<(String, AnyObject)>;

    /// Returns the related objects of an object, by name.
    fn related_to(&self, object: &ObjectName, context: &Context) -> Vec<(String, AnyObject)>;

    /// Writes a child of the object with this UID, if it is not as wanted.
    fn write<'a>(
        &'a self,
        child: &'a Child,
        uid: &'a str,
        context: &'a Context,
    ) -> BoxFuture<'a, Result<Outcome, Error<Infallible>>>;

    /// Deletes a child.
    fn delete<'a>(
        &'a self,
        child: &'a AnyObject,
        context: &'a Context,
    ) -> BoxFuture<'a, Result<(), Error<Infallible>>>;
}

/// The object that has the name of a wanted child, after that was written.
enum Outcome {
    /// The child.
    Ours(AnyObject),
    /// An object that is not ours.
    Foreign,
    /// An object that the program cannot read, and why.
    Unreadable(String),
    /// An object that the watch does not show yet.
    Unseen,
    /// Nothing that is a child.
    NoChild,
}

/// Children of kind `C` which the watch shows as `W`: whole, or their metadata.
struct Kind<C: Object, W: Object> {
    watch: Watch<W>,
    by_owner: Arc<Index<W>>,
    owner_of: fn(&W) -> Option<Owner>,
    /// The annotation that names the owner.
    annotation: String,
    watched: fn(C) -> W,
}

impl<C: Object, W: Object> fmt::Debug for Kind<C, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kind<{}>", C::kind(&()))
    }
}

impl<C: Object, W: Object> ChildKind for Kind<C, W> {
    fn children_of(&self, uid: &str, context: &Context) -> Vec<(String, AnyObject)> {
        objects(&self.watch, &self.by_owner, uid, context)
    }

    fn related_to(&self, _: &ObjectName, _: &Context) -> Vec<(String, AnyObject)> {
        Vec::new()
    }

    fn write<'a>(
        &'a self,
        child: &'a Child,
        uid: &'a str,
        context: &'a Context,
    ) -> BoxFuture<'a, Result<Outcome, Error<Infallible>>> {
        Box::pin(async move {
            let wanted = child.desired.as_any().downcast_ref::<C>().expect("a child of this kind");
            let name = ObjectName::of(wanted).to_ref();
            match self.watch.get(&name) {
                None if let Some(it) = self.watch.unreadable(&name) => {
                    Ok(Outcome::Unreadable(it.error.clone()))
                }
                None if matches!(child.written, Written::Never) => Ok(Outcome::NoChild),
                None => self.create(wanted, context).await,
                Some(there) if child.is_inherited && self.is_inheritable(&there, wanted) => {
                    self.inherit(context.writer.newest(there), wanted, context).await
                }
                Some(there) if (self.owner_of)(&there).is_none_or(|owner| owner.uid != uid) => {
                    Ok(Outcome::Foreign)
                }
                Some(there) => {
                    self.update(context.writer.newest(there), wanted, &child.written, context).await
                }
            }
        })
    }

    fn delete<'a>(
        &'a self,
        child: &'a AnyObject,
        context: &'a Context,
    ) -> BoxFuture<'a, Result<(), Error<Infallible>>> {
        Box::pin(async move {
            if let Some(child) = child.downcast_ref::<W>().filter(|it| it.meta().deletion_timestamp.is_none())
            {
                context.writer.delete(child).await?;
            }
            Ok(())
        })
    }
}

impl<C: Object, W: Object> Kind<C, W> {
    async fn create(&self, wanted: &C, context: &Context) -> Result<Outcome, Error<Infallible>> {
        let Some(created) = context.writer.create(wanted).await? else {
            return Ok(Outcome::Unseen);
        };
        if W::metadata_api() {
            // Nothing but metadata is kept.
            context.writer.forget(&created.uid().unwrap_or_default());
        }
        Ok(Outcome::Ours(Arc::new((self.watched)(created))))
    }

    /// Returns true if an object that is there belonged to an earlier object of the owner's name, or has another owner reference
    /// than the wanted child: its annotation names the owner, with whatever UID, and nothing else controls it.
    fn is_inheritable(&self, there: &W, wanted: &C) -> bool {
        let (old, new) =
            (there.annotations().get(&self.annotation), wanted.annotations().get(&self.annotation));
        let Some((old_owner, owner)) =
            old.and_then(|it| it.rsplit_once('/')).zip(new.and_then(|it| it.rsplit_once('/')))
        else {
            return false;
        };
        let has_controller = wanted.owner_references().iter().any(|it| it.controller == Some(true));
        let mut owners = there.owner_references().iter();
        let controller = owners.find(|it| it.controller == Some(true)).map(|it| it.uid.as_str());
        let is_free = controller.is_none_or(|uid| uid == owner.1);
        let is_as_wanted = controller.is_some() == has_controller && old_owner.1 == owner.1;
        old_owner.0 == owner.0 && is_free && !is_as_wanted && there.meta().deletion_timestamp.is_none()
    }

    /// Makes the owner of a child that is there as it is wanted.
    async fn inherit(
        &self,
        there: Arc<W>,
        wanted: &C,
        context: &Context,
    ) -> Result<Outcome, Error<Infallible>> {
        let others = there.owner_references().iter().filter(|it| it.controller != Some(true));
        let owners: Vec<_> = others.chain(wanted.owner_references()).collect();
        let annotation = json!({&self.annotation: wanted.annotations().get(&self.annotation)});
        let metadata = json!({
            "resourceVersion": there.resource_version(), "ownerReferences": owners, "annotations": annotation,
        });
        let patched = context.writer.patch(there.as_ref(), json!({"metadata": metadata})).await?;
        Ok(patched.map_or(Outcome::NoChild, |patched| Outcome::Ours(Arc::new(patched))))
    }

    async fn update(
        &self,
        there: Arc<W>,
        wanted: &C,
        written: &Written,
        context: &Context,
    ) -> Result<Outcome, Error<Infallible>> {
        let Written::Applied { immutable } = written else { return Ok(Outcome::Ours(there)) };
        if there.meta().deletion_timestamp.is_some() {
            // It is created again when it is gone.
            return Ok(Outcome::Ours(there));
        }
        assert!(!W::metadata_api(), "children that are known by their metadata are created once");
        let live = serde_json::to_value(there.as_ref()).map_err(kube::Error::SerdeError)?;
        let value = serde_json::to_value(wanted).map_err(kube::Error::SerdeError)?;
        let differs = |part: &&str| match (live.pointer(part), value.pointer(part)) {
            (Some(live), Some(wanted)) => !has_wanted(live, wanted),
            (live, wanted) => live.is_some() != wanted.is_some(),
        };
        if immutable.iter().any(differs) {
            context.writer.delete_orphaning(there.as_ref()).await?;
            return Ok(Outcome::Ours(there));
        }
        let (applier, creator) = context.writer.field_managers();
        if is_applied(&live, there.managed_fields(), &value, &applier, creator) {
            return Ok(Outcome::Ours(there));
        }
        let mut wanted = wanted.clone();
        // Without its UID an object would be created if this one is gone, and another of its name would be taken over.
        wanted.meta_mut().uid = there.uid();
        let applied = match context.writer.apply(&wanted).await {
            // Somebody has changed the key of an element of a list, as in the port of a Service. It is another element
            // for the API server, which does not accept it beside ours: the lists are replaced.
            Err(WriteError::Cluster(error)) if is_invalid(&error) => {
                let patched = context.writer.patch(there.as_ref(), without_metadata(value)).await?;
                return Ok(patched.map_or(Outcome::NoChild, |patched| Outcome::Ours(Arc::new(patched))));
            }
            applied => applied?,
        };
        Ok(Outcome::Ours(Arc::new((self.watched)(applied))))
    }
}

fn is_invalid(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 422)
}

/// Returns an object without its type and metadata.
fn without_metadata(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|key, _| !["apiVersion", "kind", "metadata"].contains(&key.as_str()));
    }
    object
}

/// Related objects of a kind.
#[derive(Debug)]
struct Related<T: Object> {
    watch: Watch<T>,
    by_object: Arc<Index<T>>,
}

impl<T: Object> ChildKind for Related<T> {
    fn children_of(&self, _: &str, _: &Context) -> Vec<(String, AnyObject)> {
        Vec::new()
    }

    fn related_to(&self, object: &ObjectName, context: &Context) -> Vec<(String, AnyObject)> {
        objects(&self.watch, &self.by_object, &object.to_string(), context)
    }

    fn write<'a>(
        &'a self,
        child: &'a Child,
        _: &'a str,
        context: &'a Context,
    ) -> BoxFuture<'a, Result<Outcome, Error<Infallible>>> {
        Box::pin(async move {
            let related = child.desired.as_any().downcast_ref::<T>().expect("an object of this kind");
            let Written::Patched(patch) = &child.written else { panic!("a related object is patched") };
            context.writer.patch(related, patch.clone()).await?;
            Ok(Outcome::NoChild)
        })
    }

    fn delete<'a>(
        &'a self,
        _: &'a AnyObject,
        _: &'a Context,
    ) -> BoxFuture<'a, Result<(), Error<Infallible>>> {
        Box::pin(async { Ok(()) })
    }
}

/// Returns the objects with this key of an index, by name.
fn objects<W: Object>(
    watch: &Watch<W>,
    index: &Index<W>,
    key: &str,
    context: &Context,
) -> Vec<(String, AnyObject)> {
    let objects = index.of(key).into_iter().filter_map(|name| watch.get(&name));
    let objects = objects.map(|object| context.writer.newest(object));
    objects.map(|object| (object.name_any(), object as AnyObject)).collect()
}

/// The children of an object as they are.
#[derive(Debug, Default)]
pub struct Children {
    found: BTreeMap<ChildKey, AnyObject>,
    related: BTreeMap<ChildKey, AnyObject>,
    refusals: BTreeMap<ChildKey, String>,
    /// Wanted children whose names foreign objects have: the kind, as in `StatefulSet.apps`, and the name.
    pub conflicts: Vec<(String, String)>,
}

impl Children {
    /// Returns the child of this kind and name. Children of which only the metadata is known are of the kind
    /// `PartialObjectMeta`.
    pub fn get<C: Object>(&self, name: &str) -> Option<&C> {
        self.found.get(&key::<C>(name))?.downcast_ref()
    }

    /// Returns the related object of this kind and name.
    pub fn related<T: Object>(&self, name: &str) -> Option<&T> {
        self.related.get(&key::<T>(name))?.downcast_ref()
    }

    /// Returns true if a foreign object has the name of this child.
    pub fn is_foreign<C: Object>(&self, name: &str) -> bool {
        self.conflicts.contains(&key::<C>(name))
    }

    /// Returns the reason for which the API server refused the last write of a child or of a related object, or for which the
    /// program cannot read it.
    pub fn refusal<C: Object>(&self, name: &str) -> Option<&str> {
        self.refusals.get(&key::<C>(name)).map(String::as_str)
    }

    /// Adds a child, for tests of a composite's own functions.
    pub fn with<C: Object>(mut self, child: C) -> Children {
        self.found.insert(child.key(), Arc::new(child));
        self
    }

    /// Adds a related object, for tests of a composite's own functions.
    pub fn with_related<T: Object>(mut self, related: T) -> Children {
        self.related.insert(related.key(), Arc::new(related));
        self
    }
}

fn key<C: Object>(name: &str) -> ChildKey {
    (group_kind::<C>(), name.to_owned())
}

/// The outcome of all writes of a pass.
#[derive(Default)]
struct Summary {
    /// True if the watch does not show a child yet that is there.
    is_unseen: bool,
    /// True if the program cannot read a child that is there.
    is_unreadable: bool,
    /// The first write that the API server refused.
    refused: Option<Error<Infallible>>,
}

impl<C: Composite> Composed<C> {
    /// Cleans up after a deleted object, and lets it go.
    async fn clean_up(&self, object: &C::Object, context: &Context) -> Result<Action, Error<Infallible>> {
        let Some(cleanup) = self.composite.cleanup().filter(|it| has_finalizer(object, it.finalizer)) else {
            return Ok(Action::AwaitChange);
        };
        let status = self.composite.status(object, &self.observe(object, context), clock::now());
        let object = match context.writer.status(object, &status).await {
            Ok(written) => written,
            Err(error @ (WriteError::NotLeader | WriteError::Conflict)) => return Err(error.into()),
            Err(error) => {
                warn!(object = %ObjectName::of(object), %error, "no status of a deletion");
                object.clone()
            }
        };
        if context.writer.is_dry_run() {
            return Ok(Action::AwaitChange);
        }
        if !context.leadership.is_valid() {
            return Err(Error::NotLeader);
        }
        let cleaned = timeout(CLEANUP_ATTEMPT, self.composite.clean_up(&object, context)).await;
        if let Err(left) = cleaned.unwrap_or_else(|_| Err("the cleanup did not end in time".to_owned())) {
            let deleted = object.meta().deletion_timestamp.as_ref().map_or_else(clock::now, |time| time.0);
            if clock::since(deleted) < cleanup.limit {
                return Ok(Action::RequeueAfter(CLEANUP_RETRY));
            }
            context.events.publish(&object, None, EventType::Warning, CLEANUP_INCOMPLETE, left);
        }
        failpoint::hit("cleaned-up");
        context.writer.remove_finalizer(&object, cleanup.finalizer).await?;
        Ok(Action::AwaitChange)
    }

    fn observe(&self, object: &C::Object, context: &Context) -> Children {
        let (uid, name) = (object.uid().unwrap_or_default(), ObjectName::of(object));
        let mut observed = Children::default();
        for (kind, of_kind) in &self.kinds {
            let with_key = |(name, object)| ((kind.clone(), name), object);
            observed.found.extend(of_kind.children_of(&uid, context).into_iter().map(with_key));
            observed.related.extend(of_kind.related_to(&name, context).into_iter().map(with_key));
        }
        observed
    }

    /// Makes the children as wanted, and notes in `observed` what they are after that.
    async fn write(
        &self,
        object: &C::Object,
        wanted: &[Child],
        observed: &mut Children,
        context: &Context,
    ) -> Result<Summary, Error<Infallible>> {
        let uid = object.uid().unwrap_or_default();
        let mut summary = Summary::default();
        for child in wanted {
            let key = child.desired.key();
            let of_kind = self.kinds.get(&key.0).expect("a kind that was named");
            match of_kind.write(child, &uid, context).await {
                Ok(Outcome::Ours(child)) => {
                    observed.found.insert(key, child);
                }
                Ok(Outcome::Foreign) => observed.conflicts.push(key),
                Ok(Outcome::Unreadable(error)) => {
                    observed
                        .refusals
                        .insert(key, format!("this version of the program cannot read it: {error}"));
                    summary.is_unreadable = true;
                }
                Ok(Outcome::Unseen) => summary.is_unseen = true,
                Ok(Outcome::NoChild) => {}
                Err(error) => {
                    // What is wrong with one child does not keep the others from being written.
                    let Some(message) = refusal(&error) else { return Err(error) };
                    observed.refusals.insert(key, message.to_owned());
                    summary.refused.get_or_insert(error);
                }
            }
        }
        for ((kind, name), child) in &observed.found {
            if !wanted.iter().any(|wanted| wanted.desired.key() == (kind.clone(), name.clone())) {
                self.kinds[kind].delete(child, context).await?;
            }
        }
        Ok(summary)
    }
}

/// Returns the message of the API server if it has refused what a write says, and would refuse it again.
fn refusal(error: &Error<Infallible>) -> Option<&str> {
    let Error::Cluster(error) = error else { return None };
    let kube::Error::Api(status) = error.as_ref() else { return None };
    api_error::is_denied(error).then_some(&status.message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::StatefulSet;
    use k8s_openapi::api::core::v1::Service;

    /// Returns the UID of the StatefulSet that a Service belongs to.
    fn owner(annotation: Option<&str>, reference: Option<(&str, &str, &str)>) -> Option<String> {
        let reference = reference.map(|(version, kind, uid)| {
            json!({"apiVersion": version, "kind": kind, "name": "set", "uid": uid, "controller": true})
        });
        let annotations = annotation.map(|text| json!({owner_annotation::<StatefulSet>(): text}));
        let metadata =
            json!({"name": "a", "annotations": annotations, "ownerReferences": Vec::from_iter(reference)});
        let service: Service = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        Owner::of::<StatefulSet, _>(&service).map(|owner| owner.uid)
    }

    #[test]
    fn a_child_belongs_to_its_controller_or_else_to_the_object_of_its_annotation() {
        let ours = Some(("apps/v1", "StatefulSet", "1"));
        assert_eq!(owner(None, ours).as_deref(), Some("1"));
        assert_eq!(owner(None, Some(("apps/v1beta1", "StatefulSet", "1"))).as_deref(), Some("1"));
        assert_eq!(owner(Some("set/1"), None).as_deref(), Some("1"), "its reference was removed");
        assert_eq!(owner(Some("set/1"), Some(("v1", "Any", "1"))).as_deref(), Some("1"), "or changed");
        assert_eq!(owner(Some("set/2"), ours).as_deref(), Some("1"), "its annotation was changed");
        assert_eq!(owner(Some("set/1"), Some(("v1", "Any", "2"))), None, "another object controls it");
        assert_eq!(owner(Some("nonsense"), None), None);
        assert_eq!(owner(None, None), None);
    }
}
