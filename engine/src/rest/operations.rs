//! The operations of REST, from the table of methods.

use super::operation::{Operation, unary, watch};
use crate::auth::methods::methods;
use axum::http::Method;

macro_rules! call {
    ($method:ident) => {
        async |api: crate::api::Api, caller: crate::auth::caller::Caller, request| {
            api.$method(&caller, request).await
        }
    };
}

macro_rules! operation {
    (once($function:ident) $verb:ident $path:literal $method:ident) => {
        unary(Method::$verb, $path, stringify!($method), call!($function))
    };
    (watch($frames:ident, $messages:ident) GET $path:literal $method:ident) => {
        watch($path, stringify!($method), call!($messages))
    };
}

macro_rules! operations {
    ($($service:ident $method:ident $need:ident $kind:ident $functions:tt
        [$($verb:ident $path:literal $(without $parameter:literal)? $(named $id:literal)?),*])*) => {
        pub(super) fn all() -> Vec<Operation> {
            vec![$($(
                operation!($kind $functions $verb $path $method)$(.without($parameter))?$(.named($id))?,
            )*)*]
        }
    };
}

methods!(operations);
