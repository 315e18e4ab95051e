//! Rows 31 to 35: messages that are late, lost, false or too many.
