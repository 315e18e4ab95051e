//! What a program is told that was built without the feature `tls`, as `scripts/package` builds it.

fn main() {
    for url in ["rediss://h", "rediss+sentinel://h/mymaster", "rediss+cluster://h"] {
        let told = redlatch::Client::builder(url).build().unwrap_err().to_string();
        assert!(told.contains("enable the feature `tls` of redlatch"), "{url}: {told}");
    }
}
