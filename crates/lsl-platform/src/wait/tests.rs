use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use super::*;
use crate::clock::local_clock;

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap().0;
    far.set_nonblocking(true).unwrap();
    (near, far)
}

#[test]
fn a_raised_flag_ends_a_wait_before_and_during_it_and_once() {
    let (_near, far) = pair();
    let own = Interrupt::of_thread().unwrap();
    assert!(Arc::ptr_eq(&own, &Interrupt::of_thread().unwrap()));
    own.raise();
    own.raise();
    let woken = wait_readable_or(&far, &own, f64::INFINITY).unwrap();
    assert_eq!(woken, Woken::Interrupted);
    own.lower();
    let woken = wait_readable_or(&far, &own, local_clock() + 0.002).unwrap();
    assert_eq!(woken, Woken::Late);
    let other = Arc::clone(&own);
    let raising = thread::spawn(move || {
        assert!(!Arc::ptr_eq(&other, &Interrupt::of_thread().unwrap()));
        other.raise();
    });
    let woken = wait_readable_or(&far, &own, f64::INFINITY).unwrap();
    assert_eq!(woken, Woken::Interrupted);
    raising.join().unwrap();
    own.lower();
}

#[test]
fn data_comes_before_a_flag() {
    let (mut near, far) = pair();
    let own = Interrupt::of_thread().unwrap();
    near.write_all(b"x").unwrap();
    assert!(wait_readable(&far, f64::INFINITY).unwrap());
    own.raise();
    let woken = wait_readable_or(&far, &own, f64::INFINITY).unwrap();
    assert_eq!(woken, Woken::Readable);
    own.lower();
}

#[test]
fn what_is_not_read_ends_every_wait_and_so_does_the_end() {
    let (mut near, mut far) = pair();
    let own = Interrupt::of_thread().unwrap();
    let wait = |far: &TcpStream| wait_readable_or(far, &own, local_clock() + 5.0).unwrap();
    let writing = thread::spawn(move || {
        thread::sleep(Duration::from_millis(5));
        near.write_all(b"xy").unwrap();
        near
    });
    for _ in 0..3 {
        assert_eq!(wait(&far), Woken::Readable);
    }
    let near = writing.join().unwrap();
    assert_eq!(far.read(&mut [0]).unwrap(), 1);
    // Another thread leads meanwhile.
    let far = thread::scope(|scope| {
        let led = scope.spawn(|| {
            let own = Interrupt::of_thread().unwrap();
            wait_readable_or(&far, &own, local_clock() + 5.0).unwrap()
        });
        assert_eq!(led.join().unwrap(), Woken::Readable);
        &far
    });
    assert_eq!(wait(far), Woken::Readable);
    assert_eq!((&mut &*far).read(&mut [0; 2]).unwrap(), 1);
    let woken = wait_readable_or(far, &own, local_clock() + 0.002).unwrap();
    // What was told of before ends a wait once more, at most.
    assert!(matches!(woken, Woken::Late | Woken::Readable));
    drop(near);
    for _ in 0..3 {
        assert_eq!(wait(far), Woken::Readable);
    }
    assert_eq!((&mut &*far).read(&mut [0; 2]).unwrap(), 0);
}
