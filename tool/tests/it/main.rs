//! The tool against real servers, real processes and a real terminal.

mod commands;
mod deployments;
mod doctor;
mod job;
mod many;
mod rounds;
mod terminal;
mod tool;
mod waiters;
mod waits;
