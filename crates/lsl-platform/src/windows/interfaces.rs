//! The list of interfaces as Windows gives it: names that users know, an index per address family, and
//! only addresses that can be used.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr::null_mut;

use windows_sys::Win32::Foundation::{ERROR_BUFFER_OVERFLOW, ERROR_NO_DATA, ERROR_SUCCESS};
use windows_sys::Win32::NetworkManagement::IpHelper::{
    GAA_FLAG_SKIP_ANYCAST, GAA_FLAG_SKIP_DNS_SERVER, GAA_FLAG_SKIP_MULTICAST, GetAdaptersAddresses,
    IP_ADAPTER_ADDRESSES_LH, IP_ADAPTER_NO_MULTICAST, IP_ADAPTER_UNICAST_ADDRESS_LH,
};
use windows_sys::Win32::NetworkManagement::Ndis::IfOperStatusUp;
use windows_sys::Win32::Networking::WinSock::{
    AF_INET, AF_INET6, AF_UNSPEC, IpDadStatePreferred, SOCKADDR_IN, SOCKADDR_IN6, SOCKET_ADDRESS,
};

use super::{Interface, Kind, broadcast};

/// Lists every IPv4 and IPv6 address of this host that can be used.
///
/// # Errors
/// Those of `GetAdaptersAddresses`.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let list = adapters()?;
    let mut found = Vec::new();
    let mut next: *const IP_ADAPTER_ADDRESSES_LH = list.as_ptr().cast();
    if list.is_empty() {
        return Ok(found);
    }
    while let Some(adapter) = entry(next) {
        next = adapter.Next;
        let mut of_adapter: *const IP_ADAPTER_UNICAST_ADDRESS_LH = adapter.FirstUnicastAddress;
        while let Some(unicast) = entry(of_adapter) {
            of_adapter = unicast.Next;
            if unicast.DadState == IpDadStatePreferred
                && let Some(address) = address(&unicast.Address)
            {
                found.push(interface(adapter, address, unicast.OnLinkPrefixLength));
            }
        }
    }
    Ok(found)
}

#[expect(unsafe_code, reason = "fields that are one number and its bits")]
fn interface(adapter: &IP_ADAPTER_ADDRESSES_LH, address: IpAddr, prefix: u8) -> Interface {
    // SAFETY: both meanings are numbers.
    let v4_index = unsafe { adapter.Anonymous1.Anonymous }.IfIndex;
    // SAFETY: as above.
    let flags = unsafe { adapter.Anonymous2.Flags };
    let (index, netmask) = match address {
        IpAddr::V4(_) => (v4_index, Ipv4Addr::from(ones::<4>(prefix)).into()),
        IpAddr::V6(_) => (
            adapter.Ipv6IfIndex,
            Ipv6Addr::from(ones::<16>(prefix)).into(),
        ),
    };
    let name = text(adapter.FriendlyName);
    let kind = Kind::of_adapter(adapter.IfType, &text(adapter.Description), &name);
    let netmask = Some(netmask);
    Interface {
        name,
        index,
        address,
        netmask,
        is_up: adapter.OperStatus == IfOperStatusUp,
        is_running: adapter.OperStatus == IfOperStatusUp,
        is_multicast: flags & IP_ADAPTER_NO_MULTICAST == 0,
        kind,
        broadcast: broadcast(address, netmask).filter(|_| kind != Kind::Tunnel),
    }
}

/// Returns the netmask of so many bits, as the bytes of an address.
fn ones<const BYTES: usize>(prefix: u8) -> [u8; BYTES] {
    std::array::from_fn(|byte| {
        let before = u8::try_from(byte * 8).unwrap_or(u8::MAX);
        let bits = prefix.saturating_sub(before);
        !u8::MAX.checked_shr(bits.into()).unwrap_or(0)
    })
}

/// Asks for the list, in words so that its structures are aligned. Empty if there is none.
#[expect(unsafe_code, reason = "std lists no interfaces")]
fn adapters() -> io::Result<Vec<u64>> {
    let flags = GAA_FLAG_SKIP_ANYCAST | GAA_FLAG_SKIP_MULTICAST | GAA_FLAG_SKIP_DNS_SERVER;
    let mut bytes = FIRST_BYTES;
    loop {
        let mut list = vec![0_u64; bytes as usize / size_of::<u64>()];
        let mut needed = bytes;
        let room = list.as_mut_ptr().cast();
        // SAFETY: there is room for as many bytes as `needed` says, aligned.
        let code = unsafe {
            GetAdaptersAddresses(AF_UNSPEC.into(), flags, null_mut(), room, &raw mut needed)
        };
        match code {
            ERROR_SUCCESS => return Ok(list),
            ERROR_NO_DATA => return Ok(Vec::new()),
            ERROR_BUFFER_OVERFLOW if bytes < MOST_BYTES => bytes *= 2,
            code => return Err(io::Error::from_raw_os_error(code.cast_signed())),
        }
    }
}

/// Returns an entry of a list; `None` behind the last one.
#[expect(unsafe_code, reason = "the system gives pointers")]
fn entry<'a, T>(at: *const T) -> Option<&'a T> {
    // SAFETY: null, or an entry inside the list, which lives until all of them were read.
    unsafe { at.as_ref() }
}

#[expect(unsafe_code, reason = "the system gives pointers")]
fn address(socket: &SOCKET_ADDRESS) -> Option<IpAddr> {
    // SAFETY: as in `entry`; every address begins with its family.
    let family = unsafe { socket.lpSockaddr.as_ref() }?.sa_family;
    match family {
        AF_INET => {
            // SAFETY: the family says that it is one of these.
            let v4 = unsafe { socket.lpSockaddr.cast::<SOCKADDR_IN>().read_unaligned() };
            // SAFETY: all meanings are the same four bytes.
            let bytes = unsafe { v4.sin_addr.S_un.S_addr };
            Some(Ipv4Addr::from(bytes.to_ne_bytes()).into())
        }
        AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { socket.lpSockaddr.cast::<SOCKADDR_IN6>().read_unaligned() };
            // SAFETY: all meanings are the same sixteen bytes.
            let bytes = unsafe { v6.sin6_addr.u.Byte };
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

#[expect(unsafe_code, reason = "the system gives pointers")]
fn text(at: *const u16) -> String {
    if at.is_null() {
        return String::new();
    }
    // SAFETY: a text inside the list, which ends with NUL.
    let length = unsafe { libc::wcslen(at) };
    // SAFETY: so many units were just read.
    String::from_utf16_lossy(unsafe { std::slice::from_raw_parts(at, length) })
}

const FIRST_BYTES: u32 = 15 << 10;
const MOST_BYTES: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netmasks_have_as_many_bits_as_the_prefix() {
        assert_eq!(ones(0), [0; 4]);
        assert_eq!(ones(20), [255, 255, 240, 0]);
        assert_eq!(ones(40), [255; 4]);
        assert_eq!(
            Ipv6Addr::from(ones::<16>(65)).to_string(),
            "ffff:ffff:ffff:ffff:8000::"
        );
    }
}
