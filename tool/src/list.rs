//! `redlatch list`: all locks of the servers.

use crate::cli::{Cli, List};
use crate::out::{Failed, line, plain};
use crate::show;
use crate::status::Known;
use indicatif::{ProgressBar, ProgressStyle};
use redlatch::inspect::{Inspector, Sight};
use std::io::IsTerminal;

/// The columns.
const HEAD: [&str; 5] = ["NAME", "HOLDER", "ASKED", "ENDS IN", "WAITING"];

pub(crate) fn list(cli: &Cli, args: &List) -> Result<u8, Failed> {
    let inspector = Inspector::new(&cli.server.client()?);
    let (mut known, mut scan) = (Known::default(), inspector.scan(&args.r#match)?);
    let bar = bar(scan.keys(), cli.quiet);
    let (mut rows, mut failed) = (Vec::new(), None);
    for page in &mut scan {
        match page {
            Ok(mut page) => {
                bar.inc(page.passed);
                known.name(&mut page.locks, &inspector);
                add(&page.locks, args.json, &mut rows)?;
            }
            // The other servers of a cluster are listed all the same.
            Err(error) => failed = Some(error),
        }
    }
    bar.finish_and_clear();
    if !args.json {
        show::columns(&HEAD, &rows).into_iter().try_for_each(line)?;
    }
    failed.map_or(Ok(0), |error| Err(error.into()))
}

fn add(locks: &[Sight], json: bool, rows: &mut Vec<Vec<String>>) -> Result<(), Failed> {
    for sight in locks {
        match json {
            true => line(show::json(sight))?,
            false => rows.push(row(sight)),
        }
    }
    Ok(())
}

/// The cells of a lock.
pub(crate) fn row(sight: &Sight) -> Vec<String> {
    let asked = sight.holders().iter().filter_map(|holder| holder.asked).min();
    let ends = sight.left.map_or_else(|| "never".to_owned(), show::span);
    vec![plain(&sight.name), plain(&show::holders(sight)), show::ago(asked), ends, show::waiting(sight)]
}

/// Shown only on a terminal, and only for scans that take a while.
fn bar(keys: u64, quiet: bool) -> ProgressBar {
    if quiet || keys < 10_000 || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos} of about {len} keys, {eta}").expect("a template");
    ProgressBar::new(keys).with_style(style)
}
