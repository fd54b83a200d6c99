//! The operations of REST, from the table of methods.

use super::operation::{Operation, unary, watch};
use crate::api::Api;
use crate::auth::audit::{self, Entry};
use crate::auth::caller::Caller;
use crate::auth::methods::methods;
use crate::auth::policy::Need;
use axum::http::Method;

macro_rules! call {
    ($method:ident) => {
        async |api: Api, caller: Caller, request| api.$method(&caller, request).await
    };
    ($method:ident $need:ident $name:ident) => {
        async |api: Api, caller: Caller, request| {
            let entry = Entry::begin(&caller, Need::$need, stringify!($name), &request);
            audit::ended(entry, api.$method(&caller, request).await)
        }
    };
}

macro_rules! operation {
    (once($function:ident) $need:ident $verb:ident $path:literal $method:ident) => {
        unary(Method::$verb, $path, stringify!($method), call!($function $need $method))
    };
    (watch($frames:ident, $messages:ident) $need:ident GET $path:literal $method:ident) => {
        watch($path, stringify!($method), call!($messages))
    };
}

macro_rules! operations {
    ($($service:ident $method:ident $need:ident $kind:ident $functions:tt
        [$($verb:ident $path:literal $(without $parameter:literal)? $(named $id:literal)?),*])*) => {
        pub(super) fn all() -> Vec<Operation> {
            vec![$($(
                operation!($kind $functions $need $verb $path $method)$(.without($parameter))?$(.named($id))?,
            )*)*]
        }
    };
}

methods!(operations);
