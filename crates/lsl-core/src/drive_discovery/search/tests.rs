use lsl_proto::config::Config;
use lsl_proto::discovery::search::{Goal, WaveTimes};

use super::*;

#[test]
fn somebody_new_to_ask_is_news_once() {
    let mut config = Config::default();
    config.set_known_peers(&["10.1.0.0/24"]).unwrap();
    let context = Context::new(config);
    let goal = Goal::Continuous {
        forget_after_secs: 9.0,
    };
    let mut search = Search::new(b"", WaveTimes::default(), goal, local_clock());
    // The last round was just now, so that the next one has to wait.
    while !matches!(search.poll(local_clock()), SearchAction::WaitUntil(_)) {}
    let network = Arc::clone(context.network());
    let mut driver = Driver {
        changes: network.changes(),
        network,
        links: Vec::new(),
        known: context.known_hosts().revision(),
        revision: None,
        inbox: Inbox {
            context: context.clone(),
            monitor: Arc::new(Monitor::new(search)),
            prober: None,
            face: None,
        },
        probes: JoinSet::new(),
        sweeping: None,
    };
    context.known_hosts().saw(([10, 1, 0, 7], 16571).into());
    let (done, seen) = std::sync::mpsc::channel();
    runtime::spawn(async move {
        let hour = Duration::from_hours(1);
        driver.wait(hour).await;
        let mut again = std::pin::pin!(driver.wait(hour));
        let polled = poll_fn(|cx| Poll::Ready(again.as_mut().poll(cx))).await;
        done.send(polled.is_pending()).unwrap();
    })
    .unwrap();
    assert!(seen.recv_timeout(Duration::from_secs(20)).unwrap());
}
