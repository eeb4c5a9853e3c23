//! Disks that are full, slow or gone.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use lsl_proto::ChannelFormat;
use lsl_xdf::{
    Error, ErrorKind, FileHeader, Gap, Loaded, PipeSink, Recording, Sink, SyncJob, Values, load,
};
use proptest::prelude::*;

use crate::made;

/// What the test sees of the disk while somebody writes to it.
#[derive(Debug, Default)]
struct Disk {
    bytes: Vec<u8>,
    capacity: Option<usize>,
    /// The most bytes of one write, and every how many calls there is a signal.
    short: usize,
    interrupt: usize,
    calls: usize,
    knows_space: bool,
    cannot_rewind: bool,
    cannot_sync: bool,
    /// How often closing fails for lack of room.
    close_fails: u32,
}

#[derive(Debug, Clone, Default)]
struct Faulty(Rc<RefCell<Disk>>);

impl Sink for Faulty {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut disk = self.0.borrow_mut();
        disk.calls += 1;
        if disk.interrupt > 0 && disk.calls.is_multiple_of(disk.interrupt) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let room = disk
            .capacity
            .map_or(usize::MAX, |all| all.saturating_sub(disk.bytes.len()));
        let short = if disk.short == 0 {
            usize::MAX
        } else {
            disk.short
        };
        let len = bytes.len().min(room).min(short);
        if len == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        disk.bytes.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn rewind(&mut self, len: u64) -> io::Result<()> {
        let mut disk = self.0.borrow_mut();
        if disk.cannot_rewind {
            return Err(io::ErrorKind::Unsupported.into());
        }
        disk.bytes.truncate(len as usize);
        Ok(())
    }

    fn reserve(&mut self, len: u64) -> io::Result<()> {
        let disk = self.0.borrow();
        match disk.capacity {
            Some(capacity) if disk.knows_space && len > capacity as u64 => {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    }

    fn sync_job(&mut self) -> io::Result<SyncJob> {
        let fails = self.0.borrow().cannot_sync;
        Ok(Box::new(move || {
            if fails {
                return Err(io::Error::other("the medium is gone"));
            }
            Ok(())
        }))
    }

    fn close(&mut self, len: u64) -> io::Result<()> {
        let mut disk = self.0.borrow_mut();
        assert_eq!(len, disk.bytes.len() as u64);
        if disk.close_fails > 0 {
            disk.close_fails -= 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

fn begin(disk: &Faulty) -> Recording<Faulty> {
    Recording::new(
        disk.clone(),
        &FileHeader::new("2026-11-22T00:00:00+0000"),
        0.0,
    )
    .unwrap()
}

/// Records some samples of every format; errors end it early unless `on_error` makes room.
fn record(disk: &Faulty, mut on_error: impl FnMut(&Error)) -> Recording<Faulty> {
    let mut recording = begin(disk);
    let mut now = 0.0;
    let mut insist = |step: &mut dyn FnMut() -> Result<(), Error>| {
        while let Err(error) = step() {
            on_error(&error);
        }
    };
    for (index, format) in ChannelFormat::STREAMABLE.into_iter().enumerate() {
        let header = made::header(format, 2, 100.0);
        let mut id = 0;
        insist(&mut || recording.add_stream(&header, now).map(|new| id = new));
        assert_eq!(id as usize, index + 1);
    }
    for round in 0..6 {
        for (index, format) in ChannelFormat::STREAMABLE.into_iter().enumerate() {
            let id = index as u32 + 1;
            let stamps = made::stamps(round * 7, 7, 100.0);
            let values = made::values(format, round * 7, 7, 2);
            insist(&mut || recording.clock_offset(id, stamps[0], 0.5, now));
            insist(&mut || recording.samples(id, &stamps, &values, now));
        }
        now += 4.0;
    }
    insist(&mut || recording.finish(now));
    recording
}

/// All that `record` records is there, once.
fn assert_all(loaded: &Loaded) {
    assert_eq!(loaded.problems, []);
    assert_eq!(loaded.streams.len(), 7);
    for (stream, format) in loaded.streams.iter().zip(ChannelFormat::STREAMABLE) {
        assert_eq!(stream.stamps, made::stamps(0, 42, 100.0));
        assert_eq!(stream.values, made::values(format, 0, 42, 2));
        assert_eq!(stream.offsets.len(), 6);
        let footer = stream.footer.as_ref().unwrap();
        assert_eq!(footer.sample_count(), Some(42));
        assert_eq!(footer.first_timestamp(), stream.stamps.first().copied());
        assert_eq!(footer.last_timestamp(), stream.stamps.last().copied());
        assert_eq!(footer.clock_offsets(), stream.offsets);
    }
}

fn unhindered() -> Vec<u8> {
    let disk = Faulty::default();
    record(&disk, |error| panic!("{error}"));
    disk.0.take().bytes
}

#[test]
fn boundaries_come_by_time() {
    let loaded = load(&unhindered()[..]).unwrap();
    assert_all(&loaded);
    assert!(
        (2..=4).contains(&loaded.boundaries),
        "{}",
        loaded.boundaries
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn short_writes_and_signals_change_nothing(short in 1..400_usize, interrupt in 0..4_usize) {
        let disk = Faulty::default();
        disk.0.borrow_mut().short = short;
        disk.0.borrow_mut().interrupt = if interrupt == 1 { 0 } else { interrupt };
        record(&disk, |error| panic!("{error}"));
        prop_assert_eq!(&disk.0.borrow().bytes, &unhindered());
    }
}

#[test]
fn a_disk_that_is_full_anywhere_loses_nothing_and_leaves_whole_chunks() {
    let whole = unhindered();
    // Smaller than the file header nothing begins.
    let least = 150;
    // 13 has nothing in common with the lengths of chunks, so that every place of one is met.
    for capacity in (least..whole.len()).step_by(13) {
        let disk = Faulty::default();
        disk.0.borrow_mut().capacity = Some(capacity);
        let mut errors = 0;
        record(&disk, |error| {
            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
            let loaded = load(&disk.0.borrow().bytes[..]).unwrap();
            assert_eq!(loaded.problems, [], "at {capacity}");
            errors += 1;
            disk.0.borrow_mut().capacity = None;
        });
        assert_eq!(errors, 1, "at {capacity}");
        assert_eq!(disk.0.borrow().bytes, whole, "at {capacity}");
    }
}

#[test]
fn room_for_the_footers_is_kept() {
    let whole = unhindered().len();
    for capacity in (2000..3 * whole).step_by(97) {
        let disk = Faulty::default();
        disk.0.borrow_mut().knows_space = true;
        disk.0.borrow_mut().capacity = Some(capacity);
        let mut recording = begin(&disk);
        let header = made::header(ChannelFormat::Int32, 1, 10.0);
        let Ok(id) = recording.add_stream(&header, 0.0) else {
            continue;
        };
        let mut written = 0_u32;
        loop {
            let value = Values::from(vec![written.cast_signed()]);
            let time = f64::from(written);
            let offset = recording.clock_offset(id, time, 0.0, time);
            if offset.is_err() || recording.samples(id, &[time], &value, time).is_err() {
                break;
            }
            written += 1;
        }
        let gap = Gap {
            from: 1.0,
            to: 2.0,
            samples: Some(3),
            reason: "full <disk>".to_owned(),
        };
        // As from a recorder that goes on trying while the disk stays full.
        if written > 2 {
            for _ in 0..50 {
                recording.gap(id, gap.clone()).ok();
            }
        }
        recording.finish(f64::from(written)).unwrap();
        let loaded = load(&disk.0.borrow().bytes[..]).unwrap();
        let footer = loaded.streams[0].footer.as_ref().unwrap();
        assert_eq!(footer.sample_count(), Some(u64::from(written)));
        let sizes: Vec<_> = footer.gaps().iter().map(|gap| gap.samples).collect();
        assert_eq!(sizes, vec![Some(150); usize::from(written > 2)]);
    }
}

#[test]
fn what_cannot_be_taken_back_ends_the_recording() {
    let disk = Faulty::default();
    let mut recording = begin(&disk);
    let id = recording
        .add_stream(&made::header(ChannelFormat::Int8, 1, 1.0), 0.0)
        .unwrap();
    {
        let mut disk = disk.0.borrow_mut();
        disk.capacity = Some(disk.bytes.len() + 5);
        disk.cannot_rewind = true;
    }
    let values = Values::from(vec![1_i8]);
    let error = recording.samples(id, &[1.0], &values, 0.0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    disk.0.borrow_mut().capacity = None;
    for again in [
        recording.samples(id, &[1.0], &values, 0.0),
        recording.finish(0.0),
    ] {
        assert_eq!(again.unwrap_err().kind(), ErrorKind::Ended);
    }
    assert!(recording.ended().unwrap().contains("half written"));
}

#[test]
fn a_disk_that_fails_to_sync_ends_the_recording() {
    let disk = Faulty::default();
    let mut recording = begin(&disk);
    recording.sync().unwrap();
    disk.0.borrow_mut().cannot_sync = true;
    let error = recording.sync().unwrap_err();
    assert!(error.to_string().contains("the medium is gone"), "{error}");
    assert_eq!(
        recording.tick(99.0).map_err(|e| e.kind()),
        Ok(()),
        "nothing was due"
    );
    assert_eq!(recording.finish(99.0).unwrap_err().kind(), ErrorKind::Ended);
}

#[test]
fn boundaries_come_by_bytes_so_that_every_mebibyte_has_one() {
    let mut recording = Recording::new(PipeSink(Vec::new()), &FileHeader::new("now"), 0.0).unwrap();
    let format = ChannelFormat::Double64;
    let id = recording
        .add_stream(&made::header(format, 8, 1000.0), 0.0)
        .unwrap();
    // In small pieces, and 4 MB at once.
    for _ in 0..300 {
        recording
            .samples(id, &[1.0; 50], &vec![0.5; 400].into(), 0.0)
            .unwrap();
    }
    recording
        .samples(id, &vec![1.0; 60_000], &vec![0.5; 480_000].into(), 0.0)
        .unwrap();
    recording.finish(0.0).unwrap();
    let file = recording.into_sink().0;
    let mut last = 0;
    for (at, _) in file
        .windows(16)
        .enumerate()
        .filter(|(_, w)| *w == lsl_xdf::chunk::BOUNDARY_UUID)
    {
        assert!(at - last <= 512 << 10, "{} bytes without", at - last);
        last = at;
    }
    assert!(file.len() - last <= 512 << 10);
    assert_eq!(
        load(&file[..]).unwrap().streams[0].stamps.len(),
        300 * 50 + 60_000
    );
}

#[test]
fn what_was_not_measured_is_not_written() {
    let disk = Faulty::default();
    let mut recording = begin(&disk);
    let id = recording
        .add_stream(&made::header(ChannelFormat::Int8, 1, 1.0), 0.0)
        .unwrap();
    let before = recording.len();
    for (time, value) in [(f64::NAN, 0.0), (0.0, f64::INFINITY)] {
        let error = recording.clock_offset(id, time, value, 0.0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
    }
    assert!(recording.clock_offset(99, 0.0, 0.0, 0.0).is_err());
    assert!(
        recording
            .samples(id, &[1.0], &Values::from(vec![1.0_f32]), 0.0)
            .is_err()
    );
    assert_eq!(recording.len(), before);
    recording.close_stream(id, 0.0).unwrap();
    assert!(
        recording
            .samples(id, &[1.0], &Values::from(vec![1_i8]), 0.0)
            .is_err()
    );
    recording.finish(0.0).unwrap();
    recording.finish(0.0).unwrap();
    assert_eq!(load(&disk.0.borrow().bytes[..]).unwrap().problems, []);
}

#[test]
fn a_disk_that_is_full_when_a_recording_is_closed_is_no_end() {
    let disk = Faulty::default();
    let mut recording = begin(&disk);
    let header = made::header(ChannelFormat::Int32, 1, 10.0);
    recording.add_stream(&header, 0.0).unwrap();
    disk.0.borrow_mut().close_fails = 2;
    for _ in 0..2 {
        assert_eq!(recording.finish(1.0).unwrap_err().kind(), ErrorKind::Full);
        assert_eq!(recording.ended(), None);
    }
    let len = disk.0.borrow().bytes.len();
    recording.finish(1.0).unwrap();
    assert_eq!(disk.0.borrow().bytes.len(), len, "nothing is written twice");
    assert!(
        load(&disk.0.borrow().bytes[..]).unwrap().streams[0]
            .footer
            .is_some()
    );
}

#[test]
fn gaps_on_a_full_disk_cost_no_footer() {
    let disk = Faulty::default();
    disk.0.borrow_mut().knows_space = true;
    let mut recording = begin(&disk);
    let header = made::header(ChannelFormat::Int32, 1, 10.0);
    for _ in 0..3 {
        recording.add_stream(&header, 0.0).unwrap();
    }
    let gap = |n: u32| Gap {
        from: f64::from(n),
        to: f64::from(n) + 0.5,
        samples: Some(3),
        reason: "full".to_owned(),
    };
    recording.gap(2, gap(0)).unwrap();
    // From here on there is room for nothing that was not promised.
    let full = recording.len() + 3 * 1000 + 250;
    disk.0.borrow_mut().capacity = Some(full as usize);
    for n in 1..1000 {
        recording.gap(2, gap(n)).unwrap();
    }
    recording.finish(1.0).unwrap();
    let loaded = load(&disk.0.borrow().bytes[..]).unwrap();
    for stream in &loaded.streams {
        assert!(stream.footer.is_some(), "{}", stream.id);
    }
    let footer = loaded.streams[1].footer.as_ref().unwrap();
    assert_eq!(footer.gaps(), [gap(0)]);
    let document = footer.document();
    let top = document.child(document.root(), "info").unwrap();
    let top = lsl_proto::xml::ElementRef::new(document, top).unwrap();
    assert_eq!(top.get("gap_count").unwrap(), "1000");
}
