//! The past of streams that another relay keeps, read through a link. Spec: relay §9.

use std::time::Duration;

use lsl_core::{BufferLength, Context, History, Inlet, local_clock};
use lsl_relay::shell::Relay;

use super::history::{
    Folder, expect, keeping, network, outlet, past, position, push, reader, reads_to_the_end,
    wait_for_reader, wait_until_kept,
};
use super::{SOON, linked, relay_at, told, wait_for};

/// Two relays with a link, the first of which has the network and keeps the past; and a reader of the second.
struct Site {
    contexts: [Context; 2],
    folder: Folder,
    near: Relay,
    far: Relay,
}

impl Site {
    fn new(name: &str) -> Self {
        let (contexts, folder) = ([network(), network()], Folder::new(name));
        let near = keeping(&contexts[0], &folder, "");
        let far = linked(&contexts[1], &near);
        Self {
            contexts,
            folder,
            near,
            far,
        }
    }

    fn reader(&self, document: &str, history: History) -> Inlet {
        let inlet = reader(&self.contexts[1], &self.far, document).history(history);
        inlet.create().expect("an inlet")
    }
}

#[test]
fn who_is_behind_a_link_has_the_past_that_the_other_relay_keeps() {
    let site = Site::new("far");
    let outlet = outlet(&site.contexts[0], "far");
    let document = &wait_for(&site.far, "far", 1)[0].1;
    wait_for_reader(&outlet);
    push(&outlet, 0..15_000);
    let live = site.reader(document, History::Oldest);
    expect(&live, 0..15_000);
    // Nothing of it stays: 1 MiB of 4 MB is retained.
    for from in [0, 777, 7_500, 14_990] {
        let inlet = reader(&site.contexts[1], &site.far, document);
        let inlet = inlet.resume_at(position(&outlet, from));
        let inlet = inlet.create().expect("an inlet");
        expect(&inlet, from..(from + 3000).min(15_000));
        let stats = inlet.stats();
        assert_eq!((stats.lost_exact, stats.lost_unknown), (0, 0), "{from}");
    }
    expect(
        &site.reader(document, History::Samples(12_000)),
        3000..15_000,
    );
    // Who read the past reads on.
    push(&outlet, 15_000..16_000);
    expect(&live, 15_000..16_000);
}

#[test]
fn a_stream_that_is_over_is_listed_and_read_through_a_link() {
    let site = Site::new("gone");
    let outlet = outlet(&site.contexts[0], "gone");
    wait_for(&site.far, "gone", 1);
    wait_for_reader(&outlet);
    push(&outlet, 0..6000);
    wait_until_kept(&site.near, "gone", 6000);
    drop(outlet);
    wait_for(&site.far, "gone", 0);
    let document = past(&site.far, "gone");
    assert_eq!(document.matches("path=").count(), 1);
    let path = document.split("path=\"").nth(1).expect("a path");
    assert_eq!(path.split('"').next().expect("its end").len(), 2 * 16 + 1);
    reads_to_the_end(&site.contexts[1], &site.far, 6000, &document);
    let inlet = site.reader(&document, History::Samples(100));
    expect(&inlet, 5900..6000);
    // It is told no farther.
    let Site { contexts, far, .. } = site;
    let third = network();
    let farther = linked(&third, &far);
    let until = local_clock() + SOON.as_secs_f64();
    while far.status()["links"].as_array().map_or(0, Vec::len) < 2 {
        assert!(local_clock() < until, "{}", far.status());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(told(&farther, "once past", "gone"), []);
    drop(contexts);
}

#[test]
fn a_link_that_breaks_costs_a_reader_of_the_past_nothing() {
    let site = Site::new("broken");
    let outlet = outlet(&site.contexts[0], "broken");
    let document = &wait_for(&site.far, "broken", 1)[0].1;
    wait_for_reader(&outlet);
    // So that the past does not come with the stream.
    let live = site.reader(document, History::Live);
    live.blocking().open(SOON).expect("open");
    push(&outlet, 0..15_000);
    expect(&live, 0..15_000);
    let inlet = reader(&site.contexts[1], &site.far, document).history(History::Oldest);
    // So that little of it is on the way.
    let inlet = inlet.buffer(BufferLength::Samples(500));
    let inlet = inlet.create().expect("an inlet");
    expect(&inlet, 0..100);
    let Site {
        contexts,
        folder,
        near,
        far,
    } = site;
    let port = near.addresses()[0].port();
    drop(near);
    let near = relay_at(&contexts[0], port, &folder.text(""));
    expect(&inlet, 100..15_000);
    let stats = inlet.stats();
    assert_eq!((stats.lost_exact, stats.lost_unknown), (0, 0));
    drop((inlet, live, far, near));
}

#[test]
fn a_stream_that_went_on_elsewhere_after_its_link_broke_ends_where_it_did_there() {
    let contexts = [network(), network()];
    let folders = ["later", "earlier"].map(Folder::new);
    let near = keeping(&contexts[0], &folders[0], "");
    let address = near.addresses()[0];
    let text = folders[1].text(&format!("[relay]\nconnect = [\"{address}\"]\n"));
    let far = relay_at(&contexts[1], 0, &text);
    let outlet = outlet(&contexts[0], "later");
    wait_for(&far, "later", 1);
    wait_for_reader(&outlet);
    push(&outlet, 0..1000);
    wait_until_kept(&far, "later", 1000);
    drop(far);
    // Longer than by what two relays may differ that have all of it.
    let (mut end, until) = (1000, local_clock() + 7.0);
    while local_clock() < until {
        push(&outlet, end..end + 500);
        end += 500;
        std::thread::sleep(Duration::from_millis(200));
    }
    wait_until_kept(&near, "later", end);
    drop(outlet);
    wait_for(&near, "later", 0);
    past(&near, "later");
    let far = relay_at(&contexts[1], 0, &text);
    let wait_for_link = |is_up| {
        let until = local_clock() + SOON.as_secs_f64();
        while (far.status()["links"][0]["state"] == "up") != is_up {
            assert!(local_clock() < until, "{}", far.status());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for_link(true);
    let document = past(&far, "later");
    reads_to_the_end(&contexts[1], &far, end, &document);
    // Nobody waits for a relay that is not there.
    drop(near);
    wait_for_link(false);
    reads_to_the_end(&contexts[1], &far, 1000, &document);
}
