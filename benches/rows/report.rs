//! The table: printed, as JSON, as Markdown, and as a plot for each group of rows.

use crate::support::{Outcome, Samples};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// What a row must reach.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
    Exactly(f64),
    /// It is there to be looked at.
    None,
}

impl Target {
    fn bound(self) -> Option<f64> {
        match self {
            Self::AtMost(bound) | Self::AtLeast(bound) | Self::Exactly(bound) => Some(bound),
            Self::None => None,
        }
    }

    fn is_met(self, value: f64) -> Option<bool> {
        match self {
            Self::AtMost(bound) => Some(value <= bound),
            Self::AtLeast(bound) => Some(value >= bound),
            Self::Exactly(bound) => Some((value - bound).abs() < 1e-9),
            Self::None => None,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtMost(bound) => format!("<= {}", figure(bound)),
            Self::AtLeast(bound) => format!(">= {}", figure(bound)),
            Self::Exactly(bound) => figure(bound),
            Self::None => String::new(),
        }
    }
}

struct Row {
    group: &'static str,
    title: String,
    unit: &'static str,
    /// One for each round.
    values: Samples,
    target: Target,
}

impl Row {
    fn median(&self) -> f64 {
        self.values.p50()
    }

    fn met(&self) -> &'static str {
        match self.target.is_met(self.median()) {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        }
    }

    fn spread(&self) -> String {
        let (least, most) = (figure(self.values.quantile(0.0)), figure(self.values.quantile(1.0)));
        if least == most { String::new() } else { format!("{least} to {most}") }
    }

    fn json(&self) -> Value {
        json!({
            "group": self.group, "row": self.title.trim(), "unit": self.unit, "median": self.median(),
            "least": self.values.quantile(0.0), "most": self.values.quantile(1.0), "rounds": self.values.all(),
            "target": self.target.text(), "met": self.target.is_met(self.median()),
        })
    }
}

/// Three digits, or all before the point.
fn figure(value: f64) -> String {
    let digits = if value.abs() >= 100.0 || value.fract() == 0.0 {
        0
    } else if value.abs() >= 10.0 {
        1
    } else {
        3
    };
    format!("{value:.digits$}")
}

#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

impl Report {
    /// Adds a row and prints it.
    pub(crate) fn row(
        &mut self,
        group: &'static str,
        title: String,
        unit: &'static str,
        values: Vec<f64>,
        target: Target,
    ) {
        let row = Row { group, title, unit, values: values.into_iter().collect(), target };
        if self.rows.last().is_none_or(|last| last.group != group) {
            println!("{group:42}{:>10}  {:24}{:24}{:>10}  met", "median", "", "spread", "target");
        }
        let Row { title, target, .. } = &row;
        let median = figure(row.median());
        println!("  {title:40}{median:>10}  {unit:24}{:24}{:>10}  {}", row.spread(), target.text(), row.met());
        self.rows.push(row);
    }

    /// How many rows miss their target.
    pub(crate) fn missed(&self) -> usize {
        self.rows.iter().filter(|row| row.met() == "NO").count()
    }

    /// Writes `bench.json`, `table.md` and one plot for each group.
    pub(crate) fn write(&self, folder: &Path, notes: &[String]) -> Outcome<()> {
        std::fs::create_dir_all(folder)?;
        let rows: Vec<_> = self.rows.iter().map(Row::json).collect();
        let all = json!({ "notes": notes, "rows": rows });
        std::fs::write(folder.join("bench.json"), serde_json::to_string_pretty(&all)?)?;
        std::fs::write(folder.join("table.md"), self.markdown(notes)?)?;
        for group in self.rows.chunk_by(|one, other| one.group == other.group) {
            if let Some(plot) = plot(group)? {
                std::fs::write(folder.join(format!("{}.svg", group[0].group.replace(' ', "-"))), plot)?;
            }
        }
        Ok(())
    }

    fn markdown(&self, notes: &[String]) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        for note in notes {
            writeln!(text, "- {note}")?;
        }
        writeln!(text, "\n| row | median | | spread | target | met |\n| --- | ---: | --- | --- | --- | --- |")?;
        for row in &self.rows {
            let (title, unit, spread) = (row.title.trim(), row.unit, row.spread());
            let (target, met) = (row.target.text(), row.met());
            writeln!(text, "| {title} | {} | {unit} | {spread} | {target} | {met} |", figure(row.median()))?;
        }
        Ok(text)
    }
}

const LINE: usize = 28;
const LEFT: f64 = 330.0;
const RIGHT: f64 = 790.0;

/// Where a value is drawn: the target in the middle, on a logarithmic scale from a hundredth of it to its hundredfold.
fn place(share: f64) -> f64 {
    let middle = (LEFT + RIGHT) / 2.0;
    (middle + share.max(1e-9).log10() * (RIGHT - LEFT) / 4.0).clamp(LEFT, RIGHT)
}

/// A dot for each round and a line for the median, as shares of the target; `None` if no row has a target but zero.
fn plot(rows: &[Row]) -> Result<Option<String>, std::fmt::Error> {
    let drawn: Vec<_> =
        rows.iter().filter_map(|row| Some((row, row.target.bound().filter(|bound| *bound > 0.0)?))).collect();
    if drawn.is_empty() {
        return Ok(None);
    }
    let height = LINE * (drawn.len() + 2);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1000\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"1000\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (share, label) in [(0.01, "1/100"), (0.1, "1/10"), (1.0, "target"), (10.0, "x 10"), (100.0, "x 100")] {
        let (at, bottom) = (place(share), height - LINE);
        let color = if share == 1.0 { "black" } else { "lightgray" };
        writeln!(svg, "<line x1=\"{at}\" x2=\"{at}\" y1=\"10\" y2=\"{bottom}\" stroke=\"{color}\"/>")?;
        writeln!(svg, "<text x=\"{at}\" y=\"{}\" text-anchor=\"middle\">{label}</text>", bottom + 16)?;
    }
    for (number, (row, bound)) in drawn.into_iter().enumerate() {
        let y = LINE * (number + 1);
        let color = if row.met() == "yes" { "seagreen" } else { "firebrick" };
        writeln!(svg, "<text x=\"10\" y=\"{}\">{}</text>", y + 4, row.title.trim())?;
        for value in row.values.all() {
            let at = place(value / bound);
            writeln!(svg, "<circle cx=\"{at:.1}\" cy=\"{y}\" r=\"3\" fill=\"{color}\" fill-opacity=\"0.4\"/>")?;
        }
        let (at, median, target) = (place(row.median() / bound), figure(row.median()), row.target.text());
        let target = target.replace('<', "&lt;").replace('>', "&gt;");
        writeln!(svg, "<path d=\"M{at:.1} {}v16\" stroke=\"{color}\" stroke-width=\"2\"/>", y - 8)?;
        writeln!(svg, "<text x=\"800\" y=\"{}\">{median} {} ({target})</text>", y + 4, row.unit)?;
    }
    svg.push_str("</svg>\n");
    Ok(Some(svg))
}
