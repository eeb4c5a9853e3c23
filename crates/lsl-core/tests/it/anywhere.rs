//! The async API inside an executor that is not tokio, and beside one that is; objects of threads that end.

use std::future::Future;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use lsl_core::{
    ChannelFormat, ContinuousResolver, ResolverEvent, Selector, StreamInfo, Timeout, local_clock,
};

use crate::lab::{self, SOON};

/// The smallest executor there is.
fn run<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = TaskContext::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn info(name: &str) -> StreamInfo {
    StreamInfo::new(
        name,
        "Test",
        1,
        100.0,
        ChannelFormat::Int32,
        format!("src-{name}"),
    )
    .unwrap()
}

#[test]
fn a_foreign_executor_can_do_everything() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("async"));
    run(async {
        let selector = Selector::property("name", "async").unwrap();
        let found = context.resolve(&selector, 1, SOON).await.unwrap();
        let inlet = lsl_core::Inlet::builder(&found[0])
            .context(&context)
            .create()
            .unwrap();
        inlet.open(SOON).await.unwrap();
        assert!(outlet.wait_for_consumers(SOON).await);
        outlet.push_chunk(&[1, 2, 3]).unwrap();
        let mut one = [0];
        assert!(inlet.pull(&mut one, SOON).await.unwrap().is_some());
        let mut two = [0; 2];
        assert_eq!(inlet.pull_chunk(&mut two, None, SOON).await.unwrap(), 2);
        assert_eq!((one, two), ([1], [2, 3]));
        assert_eq!(inlet.full_info(SOON).await.unwrap().name(), "async");
        assert!(inlet.time_correction(SOON).await.unwrap().offset_secs.abs() < 0.01);
    });
}

#[test]
fn a_timeout_passes_without_any_event() {
    let context = lab::context();
    let _outlet = lab::outlet(&context, info("quiet"));
    let inlet = lab::inlet(&context, "quiet");
    let start = local_clock();
    let pulled = run(inlet.pull(&mut [0], Duration::from_millis(30))).unwrap();
    assert_eq!(pulled, None);
    assert!(local_clock() - start >= 0.03);
}

#[test]
fn a_dropped_pull_loses_no_sample() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("dropped"));
    let inlet = lab::inlet(&context, "dropped");
    for n in 0..20 {
        let mut value = [-1];
        {
            let mut context = TaskContext::from_waker(Waker::noop());
            let mut abandoned = pin!(inlet.pull(&mut value, Timeout::Forever));
            assert!(abandoned.as_mut().poll(&mut context).is_pending());
            outlet.push(&[n]).unwrap();
        }
        assert!(run(inlet.pull(&mut value, SOON)).unwrap().is_some());
        assert_eq!(value, [n]);
    }
}

#[test]
fn events_tell_what_comes_and_goes() {
    let context = lab::context();
    let resolver =
        ContinuousResolver::in_context(&context, &Selector::all(), Duration::from_secs(2)).unwrap();
    let outlet = lab::outlet(&context, info("comes"));
    let uid = outlet.info().uid().into_owned();
    run(async {
        match resolver.next_event().await {
            ResolverEvent::Appeared(info) => assert_eq!(info.uid(), uid),
            other => panic!("{other:?}"),
        }
        assert_eq!(resolver.results().len(), 1);
        drop(outlet);
        loop {
            match resolver.next_event().await {
                ResolverEvent::Lost(info) => break assert_eq!(info.uid(), uid),
                // An address of the other family may be filled in meanwhile.
                ResolverEvent::Changed(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(resolver.results().is_empty());
    });
}

/// Wine forgets what a thread asked of a socket when the answer comes while that thread ends.
#[test]
fn an_outlet_accepts_while_the_thread_that_made_it_ends() {
    let context = lab::context();
    for round in 0..100 {
        let (made, port) = mpsc::channel();
        let ends = thread::spawn({
            let context = context.clone();
            move || {
                let outlet = lab::outlet(&context, info("brief"));
                made.send(outlet.info().v4_data_port()).unwrap();
                outlet
            }
        });
        let mut peer = TcpStream::connect((Ipv4Addr::LOCALHOST, port.recv().unwrap())).unwrap();
        peer.set_read_timeout(Some(SOON)).unwrap();
        peer.write_all(b"LSL:fullinfo\r\n").unwrap();
        let mut text = String::new();
        let answer = peer.read_to_string(&mut text);
        assert!(answer.is_ok(), "round {round}: {answer:?}");
        assert!(text.contains("<name>brief</name>"), "{text}");
        drop(ends.join().unwrap());
        // The reactor falls asleep meanwhile.
        thread::sleep(Duration::from_millis(2));
    }
}
