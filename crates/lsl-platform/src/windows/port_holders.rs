//! Ports and programs as functions of Windows list them.

use std::io;

use windows_sys::Win32::Foundation::{
    CloseHandle, ERROR_INSUFFICIENT_BUFFER, ERROR_SUCCESS, MAX_PATH,
};
use windows_sys::Win32::NetworkManagement::IpHelper::{
    GetExtendedTcpTable, GetExtendedUdpTable, TCP_TABLE_OWNER_PID_LISTENER, UDP_TABLE_OWNER_PID,
};
use windows_sys::Win32::Networking::WinSock::{AF_INET, AF_INET6};
use windows_sys::Win32::System::Threading::{
    OpenProcess, PROCESS_NAME_WIN32, PROCESS_QUERY_LIMITED_INFORMATION, QueryFullProcessImageNameW,
};

use super::PortHolder;

/// Lists the ports that have a UDP socket or a TCP listener, of IPv4 and IPv6. Needs no rights.
///
/// # Errors
/// Those of `GetExtendedUdpTable` and `GetExtendedTcpTable`.
#[expect(unsafe_code, reason = "std does not list sockets")]
pub fn port_holders() -> io::Result<Vec<PortHolder>> {
    let mut all = Vec::new();
    // Numbers of a row, and which of them are the port and the process: the rows have no gaps.
    for (family, is_tcp, width, port, pid) in [
        (AF_INET, false, 3, 1, 2),
        (AF_INET6, false, 7, 5, 6),
        (AF_INET, true, 6, 2, 5),
        (AF_INET6, true, 14, 5, 13),
    ] {
        let (family, mut bytes) = (family.into(), FIRST_BYTES);
        let mut table = vec![0_u32; bytes as usize / 4];
        loop {
            let (room, size) = (table.as_mut_ptr().cast(), &raw mut bytes);
            let code = if is_tcp {
                let class = TCP_TABLE_OWNER_PID_LISTENER;
                // SAFETY: there is room for as many bytes as is said, aligned.
                unsafe { GetExtendedTcpTable(room, size, 0, family, class, 0) }
            } else {
                // SAFETY: as above.
                unsafe { GetExtendedUdpTable(room, size, 0, family, UDP_TABLE_OWNER_PID, 0) }
            };
            match code {
                ERROR_SUCCESS => break,
                ERROR_INSUFFICIENT_BUFFER if table.len() * 4 < MOST_BYTES => {
                    table = vec![0; table.len() * 2];
                    bytes = u32::try_from(table.len() * 4).unwrap_or(u32::MAX);
                }
                code => return Err(io::Error::from_raw_os_error(code.cast_signed())),
            }
        }
        let (count, rows) = table.split_first().unwrap_or((&0, &[]));
        let rows = rows.chunks_exact(width).take(*count as usize);
        all.extend(rows.filter_map(|row| {
            Some(PortHolder {
                // Two bytes in the order of the network.
                port: u16::from_be_bytes(row.get(port)?.to_le_bytes()[..2].try_into().ok()?),
                pid: *row.get(pid)?,
            })
        }));
    }
    Ok(all)
}

/// Returns the path of the program that a process runs, as far as this user may see it.
#[expect(unsafe_code, reason = "std does not know other processes")]
pub fn program_of(pid: u32) -> Option<String> {
    // SAFETY: numbers alone.
    let process = unsafe { OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, 0, pid) };
    if process.is_null() {
        return None;
    }
    let mut path = [0_u16; LONGEST_PATH as usize];
    let mut units = LONGEST_PATH;
    // SAFETY: the process is open, and the buffer is as long as is said.
    let is_known = unsafe {
        QueryFullProcessImageNameW(
            process,
            PROCESS_NAME_WIN32,
            path.as_mut_ptr(),
            &raw mut units,
        )
    };
    // SAFETY: it is open, and not used behind this.
    unsafe { CloseHandle(process) };
    let path = path.get(..units as usize).filter(|_| is_known != 0)?;
    Some(String::from_utf16_lossy(path))
}

const FIRST_BYTES: u32 = 16 << 10;
const MOST_BYTES: usize = 4 << 20;
const LONGEST_PATH: u32 = MAX_PATH * 8;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn this_program_has_the_ports_that_it_took() {
        let tcp = ["127.0.0.1:0", "[::1]:0"].map(TcpListener::bind);
        let udp = ["127.0.0.1:0", "[::1]:0"].map(UdpSocket::bind);
        let tcp = tcp.iter().flatten().map(TcpListener::local_addr);
        let udp = udp.iter().flatten().map(UdpSocket::local_addr);
        let all = port_holders().unwrap();
        let mut taken = 0;
        for address in tcp.chain(udp) {
            let port = address.unwrap().port();
            // Wine may not know whose it is.
            let is_own =
                |it: &PortHolder| it.port == port && [0, std::process::id()].contains(&it.pid);
            assert!(all.iter().any(is_own), "{port} in {all:?}");
            taken += 1;
        }
        assert!(taken >= 2);
        let program = program_of(std::process::id()).unwrap();
        let own = std::env::current_exe().unwrap();
        assert!(
            own.to_str()
                .unwrap()
                .ends_with(program.rsplit('\\').next().unwrap()),
            "{program}"
        );
    }
}
