//! A router whose every route is described.

use axum::Router;
use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{self, MethodRouter};

use super::operation::Operation;
use super::refusals::{ADDRESS, Check};
use crate::transport::App;

/// Handlers of one path, each with its description.
pub struct Endpoint {
    methods: MethodRouter<App>,
    operations: Vec<(Method, Operation)>,
}

pub fn get<H, T>(handler: H, operation: Operation) -> Endpoint
where
    H: Handler<T, App>,
    T: 'static,
{
    Endpoint {
        methods: routing::get(handler),
        operations: vec![(Method::GET, operation)],
    }
}

pub fn post<H, T>(handler: H, operation: Operation) -> Endpoint
where
    H: Handler<T, App>,
    T: 'static,
{
    Endpoint {
        methods: routing::post(handler),
        operations: vec![(Method::POST, operation)],
    }
}

pub fn delete<H, T>(handler: H, operation: Operation) -> Endpoint
where
    H: Handler<T, App>,
    T: 'static,
{
    Endpoint {
        methods: routing::delete(handler),
        operations: vec![(Method::DELETE, operation)],
    }
}

/// More methods of the same path.
macro_rules! methods {
    ($($name:ident: $method:ident),* $(,)?) => {
        $(#[must_use]
        pub fn $name<H, T>(mut self, handler: H, operation: Operation) -> Self
        where
            H: Handler<T, App>,
            T: 'static,
        {
            self.operations.push((Method::$method, operation));
            let methods = self.methods.$name(handler);
            Self { methods, ..self }
        })*
    };
}

impl Endpoint {
    methods! { get: GET, post: POST, put: PUT, patch: PATCH, delete: DELETE }

    /// Puts a layer around the methods so far, which checks something of their requests.
    #[must_use]
    pub fn checked(
        self,
        check: Check,
        layer: impl FnOnce(MethodRouter<App>) -> MethodRouter<App>,
    ) -> Self {
        let operations = self.operations.into_iter();
        let behind = |(method, operation): (Method, Operation)| {
            let operation = operation.behind(check, &method);
            (method, operation)
        };
        Self {
            methods: layer(self.methods),
            operations: operations.map(behind).collect(),
        }
    }

    /// Puts a layer around the methods so far that refuses nothing.
    #[must_use]
    pub fn layered(self, layer: impl FnOnce(MethodRouter<App>) -> MethodRouter<App>) -> Self {
        let methods = layer(self.methods);
        Self { methods, ..self }
    }
}

impl Clone for Endpoint {
    fn clone(&self) -> Self {
        Self {
            methods: self.methods.clone(),
            operations: self.operations.clone(),
        }
    }
}

/// An operation at its path.
#[derive(Debug, Clone)]
pub(super) struct Described {
    /// As the router has it.
    pub(super) path: &'static str,
    pub(super) method: Method,
    pub(super) operation: Operation,
}

/// Endpoints at their paths.
#[derive(Default)]
pub struct Routes {
    router: Router<App>,
    described: Vec<Described>,
}

impl Routes {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn route(mut self, path: &'static str, endpoint: Endpoint) -> Self {
        for (method, operation) in endpoint.operations {
            let operation = match path.contains('{') {
                true => operation.refuses(&[ADDRESS]),
                false => operation,
            };
            self.described.push(Described {
                path,
                method,
                operation,
            });
        }
        let router = self.router.route(path, endpoint.methods);
        Self { router, ..self }
    }

    #[must_use]
    pub fn merge(mut self, others: Self) -> Self {
        self.described.extend(others.described);
        let router = self.router.merge(others.router);
        Self { router, ..self }
    }

    /// Puts a layer around the routes so far, which checks something of their requests.
    #[must_use]
    pub fn checked(self, check: Check, layer: impl FnOnce(Router<App>) -> Router<App>) -> Self {
        let described = self.described.into_iter();
        let behind = |described: Described| Described {
            operation: described.operation.behind(check, &described.method),
            ..described
        };
        Self {
            router: layer(self.router),
            described: described.map(behind).collect(),
        }
    }

    /// The router, and what is said about its routes.
    pub(super) fn into_parts(self) -> (Router<App>, Vec<Described>) {
        (self.router, self.described)
    }
}
