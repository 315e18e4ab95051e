//! Without the feature `metrics` nothing is recorded, and all of this compiles to nothing.

use crate::base::error::Result;
use std::time::{Duration, Instant};

/// No name has a class.
#[derive(Debug, Clone, Default)]
pub(crate) struct Classes {}

#[derive(Debug, Default)]
pub(crate) struct Meters {}

impl Meters {
    pub(crate) fn new(_: &Classes) -> Self {
        Self {}
    }

    pub(crate) fn of_kind(&self, _: &str) -> Meter {
        Meter
    }

    pub(crate) fn of_groups(&self) -> &Meter {
        &Meter
    }

    pub(crate) fn waits(&self) {}

    pub(crate) fn waits_no_more(&self) {}

    pub(crate) fn lost(&self, _: usize) {}

    pub(crate) fn doubted(&self, _: usize) {}

    pub(crate) fn renewal_failed(&self) {}

    pub(crate) fn renewed(&self, _: Duration, _: bool) {}

    pub(crate) fn outage(&self) -> OutageMeter {
        OutageMeter
    }

    pub(crate) fn handed_over<T>(&self, _: &Result<Option<T>>, _: &Woken) {}
}

pub(crate) struct OutageMeter;

impl OutageMeter {
    pub(crate) fn fails(&self, _: bool, _: Duration) {}
}

#[derive(Debug, Clone)]
pub(crate) struct Meter;

impl Meter {
    pub(crate) fn hold(&self, _: &str) -> HoldMeter {
        HoldMeter
    }
}

pub(crate) struct Timer;

impl Timer {
    pub(crate) fn begin(_: bool) -> Self {
        Self
    }

    pub(crate) fn enters_again(&mut self) {}

    pub(crate) fn end<'m, T>(self, _: impl FnOnce() -> Option<&'m Meter>, _: &str, _: bool, _: &Result<Option<T>>) {}
}

#[derive(Debug)]
pub(crate) struct HoldMeter;

impl HoldMeter {
    pub(crate) fn beside(&self) -> Self {
        Self
    }

    pub(crate) fn end(&self, _: Instant) {}
}

#[derive(Debug, Default)]
pub(crate) struct Woken;

impl Woken {
    pub(crate) fn is_told(&self, _: bool) {}

    pub(crate) fn wakes(&self, _: bool) {}

    pub(crate) fn in_vain(&self) {}
}
