//! What is sealed is what is opened, whatever its size and however it is cut.

use super::*;

fn payload(len: usize) -> Vec<u8> {
    (0..251)
        .cycle()
        .map(|byte: u8| byte.wrapping_mul(7))
        .take(len)
        .collect()
}

#[test]
fn every_size_near_the_edges() {
    let sizes = (0..=3).chain(16_380..=16_390).chain(32_766..=32_770);
    for (suite, len) in SUITES
        .iter()
        .flat_map(|&s| sizes.clone().map(move |l| (s, l)))
    {
        let (mut sealer, mut opener) = direction(suite, Role::Inlet, 0);
        let (bytes, mut wire) = (payload(len), Vec::new());
        sealer.seal_data(&bytes, NOW, &mut wire).unwrap();
        let records = len.div_ceil(MAX_PAYLOAD);
        assert_eq!(wire.len(), len + records * RECORD_OVERHEAD);
        let (events, received) = open(&mut opener, &wire);
        received.unwrap();
        assert_eq!(events.len(), records);
        let opened: Vec<u8> = events
            .iter()
            .flat_map(|event| match event {
                Event::Data(bytes) => bytes.clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(opened, bytes);
        assert_eq!(sealer.totals(), opener.totals());
        assert_eq!(sealer.totals().bytes, len as u64);
    }
}

#[test]
fn every_type_both_ways() {
    for (suite, pad_to) in SUITES.iter().flat_map(|&s| [0, 16, 4096].map(|p| (s, p))) {
        let (mut sealer, mut opener) = direction(suite, Role::Outlet, pad_to);
        let mut wire = Vec::new();
        sealer.seal_descriptor(b"descriptor", &mut wire).unwrap();
        sealer.seal_data(b"samples", NOW, &mut wire).unwrap();
        sealer.seal_key_update(&mut wire).unwrap();
        sealer.seal_pong([1.0, 2.0, 3.0], &mut wire).unwrap();
        sealer.seal_close(&mut wire).unwrap();
        for sizes in [vec![], vec![1], vec![2, 17, 3], vec![wire.len() - 1, 1]] {
            let (_, mut opener) = direction(suite, Role::Outlet, pad_to);
            let (events, received) = open_in_pieces(&mut opener, &wire, NOW, &sizes);
            received.unwrap();
            assert_eq!(
                events,
                [
                    Event::Descriptor(b"descriptor".to_vec()),
                    Event::Data(b"samples".to_vec()),
                    Event::Pong([1.0, 2.0, 3.0]),
                    Event::Close,
                ]
            );
            opener.end().unwrap();
        }
        let (_, received) = open(&mut opener, &wire);
        received.unwrap();
        assert_eq!(sealer.totals(), opener.totals());
        assert_eq!(opener.totals().key_updates, 1);
        assert_eq!(opener.totals().records, 5);

        let (mut sealer, mut opener) = direction(suite, Role::Inlet, pad_to);
        let mut wire = Vec::new();
        sealer.seal_ping(1.5, &mut wire).unwrap();
        sealer
            .seal_alert(Cause::DescriptorMismatch, "no", &mut wire)
            .unwrap();
        let (events, received) = open(&mut opener, &wire);
        assert!(matches!(
            received,
            Err(Error::Alert { cause: Cause::DescriptorMismatch, text }) if text == "no"
        ));
        assert_eq!(
            events,
            [
                Event::Ping(1.5),
                Event::Alert(Cause::DescriptorMismatch, "no".to_owned())
            ]
        );
    }
}

#[test]
fn long_alert_texts_are_cut_between_characters() {
    let check = |text: String, len: usize| {
        let (mut sealer, mut opener) = direction(Suite::ChaCha20Poly1305, Role::Inlet, 0);
        let mut wire = Vec::new();
        sealer
            .seal_alert(Cause::Internal, &text, &mut wire)
            .unwrap();
        let (events, _) = open(&mut opener, &wire);
        assert_eq!(
            events,
            [Event::Alert(Cause::Internal, text[..len].to_owned())]
        );
    };
    check(String::new(), 0);
    check("a".repeat(255), 255);
    check("a".repeat(256), 255);
    check(format!("{}é", "a".repeat(254)), 254);
    check("€".repeat(100), 255);
    check("𝄞".repeat(100), 252);
}

#[test]
fn memory_stays_at_one_record() {
    let (mut sealer, mut opener) = direction(Suite::ChaCha20Poly1305, Role::Inlet, 0);
    let mut wire = Vec::new();
    sealer.seal_data(&payload(100_000), NOW, &mut wire).unwrap();
    let (_, received) = open_in_pieces(&mut opener, &wire, NOW, &[5000]);
    received.unwrap();
    assert!(opener.buffered() <= 2 + MAX_RECORD_LEN);
}

#[test]
fn directions_update_independently() {
    let (mut outlet, mut at_inlet) = introduced(Suite::Aes256Gcm, 0);
    let (mut inlet, mut at_outlet) = direction(Suite::Aes256Gcm, Role::Inlet, 0);
    for round in 0..20_u8 {
        let (mut down, mut up) = (Vec::new(), Vec::new());
        // Both sides update before either has seen the other's update.
        outlet.seal_key_update(&mut down).unwrap();
        outlet.seal_data(&[round], NOW, &mut down).unwrap();
        inlet.seal_key_update(&mut up).unwrap();
        inlet.seal_data(&[round], NOW, &mut up).unwrap();
        for (opener, wire) in [(&mut at_inlet, down), (&mut at_outlet, up)] {
            let now = NOW + f64::from(round);
            let (events, received) = open_in_pieces(opener, &wire, now, &[7]);
            received.unwrap();
            assert_eq!(events, [Event::Data(vec![round])]);
        }
    }
    assert_eq!(at_inlet.totals().key_updates, 20);
    assert_eq!(at_outlet.totals().key_updates, 20);
}
