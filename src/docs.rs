//! The pages of the project, as they stand in its folder `docs`.

// A page names another one by a link with a label, `[text][kinds.md]`, and says at its end where the label leads. Here the labels of
// `docs/links.md` come first, and the first one counts: so the same link leads to a file there, and to a module here.
macro_rules! pages {
    ($($name:ident: $file:literal;)*) => {$(
        #[doc = include_str!("docs/links.md")]
        #[doc = include_str!(concat!("../docs/", $file))]
        pub mod $name {}
    )*};
}

// The examples of these are compiled by the doc tests.
pages! {
    kinds: "kinds.md";
    calls: "calls.md";
    deployments: "deployments.md";
    leases: "leases.md";
    errors: "errors.md";
    testing: "testing.md";
    async_programs: "async.md";
    coming_from: "coming-from.md";
}

// What is code in these is no Rust.
#[cfg(not(doctest))]
pages! {
    on_call: "on-call.md";
    metrics: "metrics.md";
    tool: "tool.md";
    permissions: "permissions.md";
    compatibility: "compatibility.md";
    protocol: "protocol.md";
    faults: "faults.md";
    model: "model.md";
    torture: "torture.md";
    jepsen: "jepsen.md";
    interop: "interop.md";
    performance: "performance.md";
    architecture: "architecture.md";
}
