//! `redlatch doctor`: whether a server is fit for locks, and what to do if it is not.

mod facts;
mod trial;

use crate::cli::{Cli, Doctor};
use crate::out::{Failed, UNAVAILABLE, line, plain};
use crate::run::group;
use facts::Facts;
use redlatch::inspect::Inspector;
use serde::Serialize;
use std::time::Duration;

/// What is to be thought of one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Good,
    /// The server does not say. Managed ones refuse some commands.
    Unknown,
    Mind,
    Bad,
}

/// One line.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    verdict: Verdict,
    check: &'static str,
    found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "String::is_empty")]
    advice: String,
}

impl Finding {
    pub(crate) fn good(check: &'static str, found: impl Into<String>) -> Self {
        Self { verdict: Verdict::Good, check, found: found.into(), advice: String::new() }
    }

    pub(crate) fn mind(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Mind, check, found: found.into(), advice: advice.into() }
    }

    pub(crate) fn bad(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Bad, check, found: found.into(), advice: advice.into() }
    }

    pub(crate) fn unknown(check: &'static str, found: impl Into<String>) -> Self {
        Self { verdict: Verdict::Unknown, check, found: found.into(), advice: String::new() }
    }
}

/// What one server, or the locks as a whole, were found to be.
#[derive(Serialize)]
struct Line<'f> {
    server: &'f str,
    #[serde(flatten)]
    finding: &'f Finding,
}

pub(crate) fn doctor(cli: &Cli, args: &Doctor) -> Result<u8, Failed> {
    let client = cli.server.client()?;
    let inspector = Inspector::new(&client);
    let mut worst = Verdict::Good;
    let mut tell = |server: &str, findings: Vec<Finding>| {
        worst = findings.iter().map(|finding| finding.verdict).fold(worst, Verdict::max);
        show_all(server, &findings, args.json)
    };
    let servers = Facts::of_all(&inspector)?;
    if let Some((_, Err(why))) = servers.first()
        && servers.iter().all(|(_, facts)| facts.is_err())
    {
        return Err(Failed::new(UNAVAILABLE, why.as_str()));
    }
    for (server, facts) in &servers {
        let findings = match facts {
            Ok(facts) => facts.findings(cli.server.is_of_cluster()),
            Err(error) => vec![Finding::bad(
                "reached",
                error.clone(),
                "see whether it runs, and whether this machine may reach it",
            )],
        };
        tell(server, findings)?;
    }
    tell("locks", trial::findings(&cli.server))?;
    tell("jobs", vec![group::finding()])?;
    Ok(match worst {
        Verdict::Good | Verdict::Unknown => 0,
        Verdict::Mind => 1,
        Verdict::Bad => 2,
    })
}

fn show_all(server: &str, findings: &[Finding], json: bool) -> Result<(), Failed> {
    if json {
        let lines = findings.iter().map(|finding| serde_json::to_string(&Line { server, finding }));
        return lines.map(|text| text.expect("findings are text")).try_for_each(line);
    }
    line(server)?;
    findings.iter().flat_map(for_people).try_for_each(line)
}

fn for_people(finding: &Finding) -> Vec<String> {
    let Finding { verdict, check, found, advice } = finding;
    let word = format!("{verdict:?}").to_lowercase();
    let mut lines = vec![format!("  {word:<7}  {check:<12}  {}", plain(found))];
    if !advice.is_empty() {
        lines.push(format!("  {:<7}  {:<12}  -> {}", "", "", plain(advice)));
    }
    lines
}

/// A span for a finding.
pub(crate) fn ms(span: Duration) -> String {
    format!("{:.2} ms", span.as_secs_f64() * 1_000.0)
}
