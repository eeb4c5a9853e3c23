//! Salvage. Input: a file.

use lsl_xdf::repair::survey;
use lsl_xdf::salvage::Salvage;
use lsl_xdf::{Event, Reader, load};

pub fn check(input: &[u8]) {
    let mut salvaged = Vec::new();
    let report = Salvage::new().run(input, &mut salvaged);
    let report = report.expect("memory takes everything");
    let loaded = load(&salvaged[..]).expect("own file");
    assert_eq!(loaded.problems, [], "what is written is sound");
    let again = survey(&salvaged[..]).expect("own file");
    assert!(again.is_whole(), "{:?}", again.findings);
    assert_eq!(loaded.streams.len(), report.streams.len());
    for stream in &loaded.streams {
        let said = &report.streams[&stream.id];
        assert_eq!(stream.stamps.len() as u64, said.samples);
        let footer = stream.footer.as_ref().expect("a footer each");
        assert_eq!(footer.sample_count(), Some(said.samples));
    }
    // Nothing is lost that can be read without it.
    let mut reader = Reader::new(input);
    let mut samples = 0;
    while let Ok(Some(found)) = reader.next() {
        if let Event::Samples(batch) = found.event {
            samples += batch.stamps.len() as u64;
        }
    }
    let kept: u64 = report.streams.values().map(|stream| stream.samples).sum();
    assert!(kept >= samples, "{kept} of {samples}");
}
