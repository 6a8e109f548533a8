//! Adds to the OpenAPI document the error statuses that follow from the parameters of a route.
//!
//! [`outlast_http::problem::common_responses`] lists those that every route has.
use outlast_compat::is_compat_path;
use outlast_http::problem::INTERNAL_STATUS;
use utoipa::openapi::path::Operation;
use utoipa::openapi::{OpenApi, PathItem, RefOr};

const AUTH_STATUSES: [(&str, &str); 2] = [
    ("401", "The API key is missing, invalid, expired or revoked."),
    ("429", "Too many requests per minute, or at the same time. `retry-after` says when to retry."),
];
const NOT_FOUND_STATUSES: [(&str, &str); 1] =
    [("404", "It does not exist, or belongs to another organisation.")];
const LIMIT_STATUSES: [(&str, &str); 1] = [("413", "The request exceeds a limit of the server.")];
const BODY_STATUSES: [(&str, &str); 1] = [("415", "The media type of the body is not supported.")];
const WRITE_STATUSES: [(&str, &str); 2] =
    [("409", "The request conflicts with the current state."), ("507", "The disk is full.")];
/// Errors of compatible APIs, whose answers are turns and report how those failed.
const TURN_STATUSES: [(&str, &str); 7] = [
    ("402", "A budget is exhausted."),
    (
        "406",
        "The turn ran, and then failed or was cancelled. Clients do not repeat a request after this status.",
    ),
    ("408", "The turn waited for something external, which timed out."),
    ("422", "The answer does not match the requested schema."),
    ("424", "The turn has not ended in time, for example because it waits for a person."),
    ("502", "The model or a tool failed."),
    ("504", "The model or a tool timed out."),
];

/// Adds to each route the error statuses that it can return, with the schema of its other errors.
pub(crate) fn add_error_statuses(document: &mut OpenApi) {
    for (path, item) in &mut document.paths.paths {
        let PathItem { get, put, post, delete, patch, .. } = item;
        for operation in get.iter_mut() {
            add_operation_statuses(path, operation, &[]);
        }
        for operation in [put, post, delete, patch].into_iter().flatten() {
            add_operation_statuses(path, operation, &WRITE_STATUSES);
        }
    }
}

fn add_operation_statuses(path: &str, operation: &mut Operation, writes: &[(&str, &str)]) {
    let Some(RefOr::T(shape)) = operation.responses.responses.get(INTERNAL_STATUS).cloned() else { return };
    let asks = |names: &[&str]| {
        let parameters = operation.parameters.iter().flatten();
        parameters.into_iter().any(|parameter| match parameter {
            RefOr::T(parameter) => names.contains(&parameter.name.as_str()),
            RefOr::Ref(_) => false,
        })
    };
    let (bodied, named) = (operation.request_body.is_some(), path.contains('{') || asks(&["session"]));
    let secured = operation.security.as_ref().is_some_and(|security| !security.is_empty());
    let more = [
        (secured, &AUTH_STATUSES[..]),
        (named || bodied, &NOT_FOUND_STATUSES),
        (bodied || asks(&["limit"]), &LIMIT_STATUSES),
        (bodied, &BODY_STATUSES),
        (bodied && is_compat_path(path), &TURN_STATUSES),
        (true, writes),
    ];
    let more = more.into_iter().filter(|(does, _)| *does).flat_map(|(_, more)| more);
    let responses: Vec<_> = more
        .map(|(status, text)| {
            let mut response = shape.clone();
            (*text).clone_into(&mut response.description);
            ((*status).to_owned(), RefOr::T(response))
        })
        .collect();
    for (status, response) in responses {
        operation.responses.responses.entry(status).or_insert(response);
    }
}
