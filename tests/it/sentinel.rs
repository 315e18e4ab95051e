//! Groups of a master, replicas and sentinels, which replace the master when it goes.

mod groups;
