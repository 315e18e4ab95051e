//! The classes of names that metrics tell apart.

use super::ClientBuilder;

impl<T> ClientBuilder<T> {
    /// Gives a class to all names with this prefix: the label `class` of `redlatch_acquire_wait_seconds` and `redlatch_hold_seconds`. The
    /// longest prefix counts. Names without a class have `class="other"`.
    ///
    /// The prefix is one of names as calls give them, without the [key prefix](Self::key_prefix). Each class makes six series for each
    /// kind of lock, so give classes to what you would look at alone. [docs::metrics](crate::docs::metrics) lists all metrics.
    ///
    /// ```
    /// let client = redlatch::Client::builder("redis://10.0.0.5/")
    ///     .metrics_class("order:", "orders")
    ///     .metrics_class("order:export:", "exports")
    ///     .build()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn metrics_class(mut self, prefix: impl Into<String>, class: impl Into<String>) -> Self {
        self.settings.classes.add(prefix.into(), class.into());
        self
    }
}
