//! What inlets and searches tell of themselves.

use std::time::Duration;

use lsl_core::{
    ChannelFormat, ClockSuspect, ContinuousResolver, InletState, ResolverEvent, Selector,
    StreamInfo,
};
use lsl_platform::clock::utc_now;

use crate::lab::{self, SOON};

fn info(name: &str) -> StreamInfo {
    StreamInfo::new(name, "Test", 1, 50.0, ChannelFormat::Int8, "source").unwrap()
}

#[test]
fn an_inlet_tells_of_its_outlet_and_of_its_stamps() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("health"));
    let inlet = lab::inlet(&context, "health");
    let mut sample = [0];
    let mut comes_with = |stamp: f64| {
        outlet.push_at(&[1], stamp).unwrap();
        inlet.blocking().pull(&mut sample, SOON).unwrap();
        inlet.health().clock
    };
    assert_eq!(
        comes_with(utc_now().as_secs_f64()),
        None,
        "its clock is not known"
    );
    inlet.blocking().time_correction(SOON).unwrap();
    lab::until("stamps are suspect", || {
        comes_with(utc_now().as_secs_f64()) == Some(ClockSuspect::Unix)
    });
    lab::until("stamps are in order", || {
        comes_with(lsl_core::local_clock()).is_none()
    });
    let health = inlet.health();
    assert_eq!(health.state, InletState::Connected);
    let port = outlet.info().v4_data_port();
    assert_eq!(health.peer.unwrap().port(), port);
    assert!(health.silent_secs.unwrap() < SOON.as_secs_f64());
    let _successor = lab::outlet(&context, info("health"));
    drop(outlet);
    lab::until("it is counted", || context.discovery().rescued > 0);
    assert_eq!(inlet.health().state, InletState::Connected);
    inlet.shut_down();
    lab::until("it is lost", || inlet.health().state == InletState::Lost);
}

#[test]
fn two_streams_that_cannot_be_told_apart_are_a_conflict() {
    let context = lab::context();
    let forget_after = Duration::from_mins(1);
    let resolver = ContinuousResolver::in_context(&context, &Selector::all(), forget_after);
    let resolver = resolver.unwrap();
    let _two = [0, 1].map(|_| lab::outlet(&context, info("twin")));
    let told = loop {
        match resolver.next_event_blocking(SOON).unwrap() {
            ResolverEvent::Conflict(two) => break two,
            ResolverEvent::Appeared(_) | ResolverEvent::Changed(_) => {}
            event => panic!("{event:?}"),
        }
    };
    assert_ne!(told[0].uid(), told[1].uid());
    lab::until("it is counted", || context.discovery().conflicts == 1);
}
