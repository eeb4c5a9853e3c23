//! The cases of `crate::pulling`, encrypted.

use lsl_core::Context;
use lsl_core::secure::Policy;

use super::people::Place;
use crate::pulling;

fn encrypted(case: fn(&Context, &Context)) {
    let place = Place::new();
    let (amp, rec) = place.pair(Policy::Required, Policy::Required);
    case(&amp.context, &rec.context);
}

#[test]
fn all_kinds_of_pulls_share_one_inlet() {
    encrypted(pulling::all_kinds_of_pulls_share_one_inlet);
}

#[test]
fn what_is_there_is_counted_exactly() {
    encrypted(pulling::what_is_there_is_counted_exactly);
}

#[test]
fn an_end_reaches_pulls_that_wait_for_the_socket() {
    encrypted(pulling::an_end_reaches_pulls_that_wait_for_the_socket);
}

#[test]
fn a_pull_outlives_a_close() {
    encrypted(pulling::a_pull_outlives_a_close);
}

#[test]
fn a_close_ends_an_open_and_no_pull() {
    encrypted(pulling::a_close_ends_an_open_and_no_pull);
}

#[test]
fn a_close_of_a_stream_that_cannot_be_recovered_is_no_loss() {
    encrypted(pulling::a_close_of_a_stream_that_cannot_be_recovered_is_no_loss);
}

#[test]
fn a_chunk_without_waiting_takes_all_there_is() {
    encrypted(pulling::a_chunk_without_waiting_takes_all_there_is);
}

#[test]
fn a_blocked_pull_follows_its_stream() {
    encrypted(pulling::a_blocked_pull_follows_its_stream);
}

#[test]
fn a_notifier_is_told_after_pulls_have_led() {
    encrypted(pulling::a_notifier_is_told_after_pulls_have_led);
}
