//! Reconcilers of objects that stand for a set of child objects.
//!
//! The wanted children are a pure function of the object. The library creates what is missing, applies what differs, and
//! deletes children that are not wanted any more. A foreign object with the name of a child is never touched.

use crate::applied::is_applied;
use crate::clock;
use crate::index::Index;
use crate::object::{Object, controller_of};
use crate::reconciler::{Action, Context, Error, Reconciler};
use crate::watch::{Watch, Watches};
use futures_util::future::BoxFuture;
use k8s_openapi::jiff::Timestamp;
use kube::api::Api;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource as _, ResourceExt as _};
use serde_json::Value;
use std::any::Any;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A wanted child.
#[derive(Clone, Debug)]
pub struct Child {
    desired: Arc<dyn Desired>,
    is_created_once: bool,
}

impl Child {
    /// Returns a child whose fields are applied again when they differ. Its other fields are left alone.
    pub fn applied<C: Object>(object: C) -> Child {
        Child { desired: Arc::new(object), is_created_once: false }
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
        Child { desired: Arc::new(object), is_created_once: true }
    }
}

/// A child object of any kind.
trait Desired: fmt::Debug + Send + Sync {
    fn key(&self) -> ChildKey;
    fn as_any(&self) -> &dyn Any;
}

impl<C: Object> Desired for C {
    fn key(&self) -> ChildKey {
        (C::kind(&()).into_owned(), self.name_any())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Kind and name of a child.
type ChildKey = (String, String);

/// An object that stands for a set of child objects. [`Composed`] makes a [`Reconciler`] of it.
pub trait Composite: Send + Sync + 'static {
    /// The kind of object.
    type Object: Object;

    /// The name of the controller, as in `websites`.
    const NAME: &'static str;

    /// Names the kinds of children.
    fn kinds(&self, kinds: &mut Kinds<'_, '_, Self::Object>);

    /// Returns the wanted children. Pure.
    fn children(&self, object: &Self::Object, observed: &Children) -> Vec<Child>;

    /// Returns the status, from the children as they are. Pure.
    fn status(&self, object: &Self::Object, observed: &Children, now: Timestamp) -> Value;
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
        let object = context.writer.newest(object);
        if object.meta().deletion_timestamp.is_some() {
            // The garbage collector deletes the children.
            return Ok(Action::AwaitChange);
        }
        let mut observed = self.observe(&object, context);
        let wanted = self.composite.children(&object, &observed);
        self.apply(&object, &wanted, &mut observed, context).await?;
        let status = self.composite.status(&object, &observed, clock::now());
        context.writer.status(object.as_ref(), &status).await?;
        Ok(if observed.conflicts.is_empty() { Action::AwaitChange } else { Action::RequeueAfter(FOREIGN) })
    }
}

/// The time until the next look at a foreign object that has the name of a child: nothing tells when it goes.
const FOREIGN: Duration = Duration::from_secs(30);

/// The kinds of children of a composite.
#[derive(Debug)]
pub struct Kinds<'a, 'b, K: Object> {
    found: &'a mut KindMap,
    on: &'a mut Watches<'b, K>,
}

impl<K: Object> Kinds<'_, '_, K> {
    /// Adds a kind of children: they are watched, and wake the object that controls them.
    pub fn add<C: Object>(&mut self, api: Api<C>) {
        let watch = self.on.children::<C>(api);
        let by_controller =
            watch.index(|child: &C| controller_of::<K, C>(child).map(|owner| owner.uid.clone()));
        self.found.insert(C::kind(&()).into_owned(), Box::new(Kind { watch, by_controller }));
    }
}

trait ChildKind: fmt::Debug + Send + Sync {
    /// Returns the children of the object with this UID, by name.
    fn of(&self, uid: &str, context: &Context) -> Vec<(String, Arc<dyn Any + Send + Sync>)>;
    /// Creates or applies a child, if it is not as wanted. Returns false if a foreign object has its name.
    fn write<'a>(
        &'a self,
        child: &'a Child,
        uid: &'a str,
        context: &'a Context,
    ) -> BoxFuture<'a, Result<bool, Error<Infallible>>>;
    /// Deletes a child.
    fn delete<'a>(
        &'a self,
        child: &'a Arc<dyn Any + Send + Sync>,
        context: &'a Context,
    ) -> BoxFuture<'a, Result<(), Error<Infallible>>>;
}

#[derive(Debug)]
struct Kind<C: Object> {
    watch: Watch<C>,
    by_controller: Arc<Index<C>>,
}

impl<C: Object> ChildKind for Kind<C> {
    fn of(&self, uid: &str, context: &Context) -> Vec<(String, Arc<dyn Any + Send + Sync>)> {
        let children = self.by_controller.of(uid).into_iter().filter_map(|child| self.watch.get(&child));
        let children = children.map(|child| context.writer.newest(child));
        children.map(|child| (child.name_any(), child as Arc<dyn Any + Send + Sync>)).collect()
    }

    fn write<'a>(
        &'a self,
        child: &'a Child,
        uid: &'a str,
        context: &'a Context,
    ) -> BoxFuture<'a, Result<bool, Error<Infallible>>> {
        Box::pin(async move {
            let wanted = child.desired.as_any().downcast_ref::<C>().expect("a child of this kind");
            let name = ObjectRef::from_obj(wanted);
            let Some(there) = self.watch.get(&name).map(|there| context.writer.newest(there)) else {
                return Ok(context.writer.create(wanted).await?.is_some());
            };
            let is_ours = there.owner_references().iter().any(|owner| owner.uid == uid);
            if !is_ours || child.is_created_once {
                return Ok(is_ours);
            }
            let live = serde_json::to_value(there.as_ref()).map_err(kube::Error::SerdeError)?;
            let value = serde_json::to_value(wanted).map_err(kube::Error::SerdeError)?;
            let (applier, creator) = context.writer.field_managers();
            if !is_applied(&live, there.managed_fields(), &value, &applier, creator) {
                context.writer.apply(wanted).await?;
            }
            Ok(true)
        })
    }

    fn delete<'a>(
        &'a self,
        child: &'a Arc<dyn Any + Send + Sync>,
        context: &'a Context,
    ) -> BoxFuture<'a, Result<(), Error<Infallible>>> {
        Box::pin(async move {
            if let Some(child) = child.downcast_ref::<C>().filter(|it| it.meta().deletion_timestamp.is_none())
            {
                context.writer.delete(child).await?;
            }
            Ok(())
        })
    }
}

/// The children of an object as they are.
#[derive(Debug, Default)]
pub struct Children {
    found: BTreeMap<ChildKey, Arc<dyn Any + Send + Sync>>,
    /// Wanted children whose names foreign objects have.
    pub conflicts: Vec<(String, String)>,
}

impl Children {
    /// Returns the child of this kind and name.
    pub fn get<C: Object>(&self, name: &str) -> Option<&C> {
        self.found.get(&(C::kind(&()).into_owned(), name.to_owned()))?.downcast_ref()
    }

    /// Returns true if a foreign object has the name of this child.
    pub fn is_foreign<C: Object>(&self, name: &str) -> bool {
        self.conflicts.iter().any(|(kind, other)| *kind == C::kind(&()) && other == name)
    }
}

impl<C: Composite> Composed<C> {
    fn observe(&self, object: &C::Object, context: &Context) -> Children {
        let uid = object.uid().unwrap_or_default();
        let children = self.kinds.iter().flat_map(|(kind, of_kind)| {
            of_kind.of(&uid, context).into_iter().map(|(name, child)| ((kind.clone(), name), child))
        });
        Children { found: children.collect(), conflicts: Vec::new() }
    }

    /// Makes the children as wanted, and notes in `observed` those whose names foreign objects have.
    async fn apply(
        &self,
        object: &C::Object,
        wanted: &[Child],
        observed: &mut Children,
        context: &Context,
    ) -> Result<(), Error<Infallible>> {
        let uid = object.uid().unwrap_or_default();
        for child in wanted {
            let (kind, name) = child.desired.key();
            let of_kind = self.kinds.get(&kind).expect("a kind that was named");
            if !of_kind.write(child, &uid, context).await? {
                observed.conflicts.push((kind, name));
            }
        }
        for ((kind, name), child) in &observed.found {
            if !wanted.iter().any(|wanted| wanted.desired.key() == (kind.clone(), name.clone())) {
                self.kinds[kind].delete(child, context).await?;
            }
        }
        Ok(())
    }
}
