//! Tests of Anthropic's endpoint with its official clients.
use super::{
    SCRIPT, Server, is_fine, key, killed_in_the_middle, node_for_clients, node_modules, python_with_clients,
    script, stopped_in_the_middle, with, wrong,
};
use crate::place::Place;
use std::process::Command;

fn python(mode: &str) -> Command {
    with(with(python_with_clients(), &[script("anthropic_client.py")]), &[mode])
}

fn node(mode: &str) -> Command {
    with(with(with(node_for_clients(), &[script("anthropic_client.mjs")]), &[mode]), &[node_modules()])
}

/// Returns the address of this endpoint.
fn here(url: &str) -> String {
    url.replace("/openai/v1", "/anthropic")
}

#[track_caller]
fn finds_what_it_knows(mut client: Command) {
    let place = Place::with_script(SCRIPT);
    let (key, server) = (key(&place), Server::start(&place, "127.0.0.1:0"));
    is_fine(&client.args([&here(&server.url()), &key, &wrong(&key)]).output().unwrap());
}

#[test]
fn anthropic_python_client_passes_the_feature_matrix() {
    finds_what_it_knows(python("matrix"));
}

#[test]
fn anthropic_javascript_client_passes_the_feature_matrix() {
    finds_what_it_knows(node("matrix"));
}

#[test]
fn anthropic_python_client_repeats_text_after_server_kill() {
    killed_in_the_middle(|url, key| with(python("again"), &[&here(url), key]));
}

#[test]
fn anthropic_javascript_client_repeats_text_after_server_kill() {
    killed_in_the_middle(|url, key| with(node("again"), &[&here(url), key]));
}

#[test]
fn anthropic_python_client_sees_incomplete_answer_on_shutdown() {
    stopped_in_the_middle(|url, key| with(python("stopped"), &[&here(url), key]));
}

#[test]
fn anthropic_javascript_client_sees_incomplete_answer_on_shutdown() {
    stopped_in_the_middle(|url, key| with(node("stopped"), &[&here(url), key]));
}
