//! What read-write locks are called in the logs: each side has a name of its own, and both are one lock.

const WRITE: u8 = 64;
const READ: u8 = 128;

/// So many locks there can be of each kind.
pub(crate) const LOCKS: u8 = WRITE;

/// The side of the writer of a read-write lock.
pub(crate) fn write(lock: u8) -> u8 {
    WRITE + lock
}

/// The side of its readers.
pub(crate) fn read(lock: u8) -> u8 {
    READ + lock
}

pub(crate) fn is_write(name: u8) -> bool {
    (WRITE..READ).contains(&name)
}

pub(crate) fn is_read(name: u8) -> bool {
    name >= READ
}

/// Whether a name is a side of a read-write lock.
pub(crate) fn is_side(name: u8) -> bool {
    name >= WRITE
}

/// The same for both sides.
pub(crate) fn lock_of(name: u8) -> u8 {
    if is_read(name) { name - READ + WRITE } else { name }
}

/// Which lock of its kind it is. Locks with one number are in one slot.
pub(crate) fn number(name: u8) -> u8 {
    name % LOCKS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sides_are_one_lock() {
        let names = [3, write(3), read(3)];
        assert_eq!(names.map(is_side), [false, true, true]);
        assert_eq!((names.map(is_write), names.map(is_read)), ([false, true, false], [false, false, true]));
        assert_eq!(names.map(number), [3, 3, 3]);
        assert!(lock_of(write(3)) == lock_of(read(3)) && lock_of(read(3)) != lock_of(3) && lock_of(3) == 3);
    }
}
