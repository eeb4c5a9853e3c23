//! Tells the service manager how a service does, by one datagram: `sd_notify(3)`. Without one nothing happens.

use std::io;

/// State of a service that its manager waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceState {
    /// It has started: others may use it.
    Ready,
    /// It was asked to end, and does.
    Stopping,
}

/// Tells the manager that the environment names. Only Unix has one.
///
/// # Errors
/// Those of the system; [`io::ErrorKind::InvalidInput`] for an address that is none.
pub fn notify(state: ServiceState) -> io::Result<()> {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(name) if !name.is_empty() => tell(&name, state),
        _ => Ok(()),
    }
}

#[cfg(unix)]
fn tell(name: &std::ffi::OsStr, state: ServiceState) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    let text = match state {
        ServiceState::Ready => "READY=1",
        ServiceState::Stopping => "STOPPING=1",
    };
    let address = match name.as_bytes().split_first() {
        Some((b'/', _)) => SocketAddr::from_pathname(name)?,
        #[cfg(target_os = "linux")]
        Some((b'@', rest)) => SocketAddr::from_abstract_name(rest)?,
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address)?;
    Ok(())
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "systems differ")]
fn tell(_name: &std::ffi::OsStr, _state: ServiceState) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    use super::*;

    #[test]
    fn a_socket_by_path_and_an_abstract_one_are_told() {
        let name = format!("lsl-notify-{}", std::process::id());
        let file = std::env::temp_dir().join(&name);
        let _ = std::fs::remove_file(&file);
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let sockets = [
            (UnixDatagram::bind(&file).unwrap(), file.clone().into()),
            (
                UnixDatagram::bind_addr(&address).unwrap(),
                format!("@{name}").into(),
            ),
        ];
        for (socket, name) in sockets {
            let name: std::ffi::OsString = name;
            for (state, text) in [
                (ServiceState::Ready, &b"READY=1"[..]),
                (ServiceState::Stopping, b"STOPPING=1"),
            ] {
                tell(&name, state).unwrap();
                let mut told = [0; 32];
                let length = socket.recv(&mut told).unwrap();
                assert_eq!(&told[..length], text);
            }
        }
        std::fs::remove_file(&file).unwrap();
        for wrong in ["relative", "/nowhere/at/all"] {
            assert!(tell(wrong.as_ref(), ServiceState::Ready).is_err());
        }
    }
}
