//! Rows 56 and 57: credentials and permissions that do not fit, or fit no longer.
