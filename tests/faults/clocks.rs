//! Rows 36 to 39: clocks that jump or stand.
