//! A name whose address changes while a test runs: what this process asks the system about names comes through here.

#![expect(unsafe_code, reason = "the system's resolver is a C function, which the library reaches through std")]

use libc::{addrinfo, c_char, c_int};
use std::ffi::CStr;
use std::sync::Mutex;

/// It is known to this process alone.
pub(crate) const NAME: &str = "moves.redlatch.test";

static ADDRESS: Mutex<&CStr> = Mutex::new(c"127.0.0.1");

/// From now on the name has this address.
pub(crate) fn move_name(address: &'static CStr) {
    *ADDRESS.lock().unwrap() = address;
}

type Resolver = unsafe extern "C" fn(*const c_char, *const c_char, *const addrinfo, *mut *mut addrinfo) -> c_int;

/// Takes the place of the C library's in this program, and asks that one.
#[unsafe(no_mangle)]
unsafe extern "C" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    found: *mut *mut addrinfo,
) -> c_int {
    // SAFETY: the next function of this name is the C library's, which has this type and is given what came from a caller
    // who wanted to call it, or a text that lives as long as the program.
    unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, c"getaddrinfo".as_ptr());
        let resolve: Resolver = std::mem::transmute(next);
        let is_ours = !node.is_null() && CStr::from_ptr(node).to_bytes() == NAME.as_bytes();
        let node = if is_ours { ADDRESS.lock().unwrap().as_ptr() } else { node };
        resolve(node, service, hints, found)
    }
}
