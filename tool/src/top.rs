//! `redlatch top`: all locks full-screen, those with most waiters first.

mod asker;

use crate::cli::{Cli, Top};
use crate::list::row;
use crate::out::{Failed, IO, plain};
use crate::run::stop_with_the_others;
use crate::show;
use crate::status::Known;
use asker::{Board, Told};
use crossbeam_channel::{Receiver, Sender, bounded};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::Constraint;
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Row, Table};
use ratatui::{DefaultTerminal, Frame};
use redlatch::inspect::{Inspector, Sight};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::cmp::Reverse;
use std::io::IsTerminal;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use unicode_width::UnicodeWidthStr;

/// All locks are gone through again after so long, and for at most a tenth of the time.
const SCANS_EVERY: Duration = Duration::from_secs(5);
const SHARE: u32 = 10;

/// A signal is heard, and what was found is shown, within so long.
const TICK: Duration = Duration::from_millis(100);

/// So many locks are kept between scans. The others are counted.
const KEPT: usize = 1_000;

/// The columns. The last one has the age of the oldest wait.
const HEAD: [&str; 6] = ["NAME", "HOLDER", "ASKED", "ENDS IN", "WAITING", "OLDEST"];

/// A terminal with fewer columns has no room for the age of a wait.
const WIDE: u16 = 80;

/// What was found last.
#[derive(Default)]
struct Found {
    locks: Vec<Sight>,
    count: usize,
    trouble: Option<String>,
}

/// Looks at the servers, on a thread of its own: a server that does not answer must not keep a key or a signal waiting.
struct Finder {
    inspector: Inspector,
    pattern: String,
    board: Board,
    known: Known,
    locks: Vec<Sight>,
    count: usize,
    next_scan: Instant,
}

/// What is on the screen.
struct View {
    found: Found,
    board: Board,
    /// The first lock that is shown.
    from: usize,
}

pub(crate) fn top(cli: &Cli, args: &Top) -> Result<u8, Failed> {
    if !std::io::stdout().is_terminal() {
        return Err(Failed::usage("top needs a terminal: use list or watch"));
    }
    let (inspector, board) = (Inspector::new(&cli.server.client()?), Board::default());
    let mut finder = Finder::new(inspector.clone(), args.r#match.clone(), board.clone());
    let found = match finder.scan() {
        Err(error) if finder.locks.is_empty() => return Err(error.into()),
        done => finder.found(done),
    };
    let mut view = View { found, board: board.clone(), from: 0 };
    // The screen shows the same trouble.
    log::set_max_level(log::LevelFilter::Off);
    let is_told = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let flag = signal_hook::flag::register(signal, Arc::clone(&is_told));
        flag.map_err(|error| Failed::new(1, format!("cannot handle signals: {error}")))?;
    }
    let (wishes, found) = finder.start();
    asker::start(inspector, board);
    let mut terminal = ratatui::init();
    let shown = show(&mut terminal, &mut view, args.every, &is_told, &wishes, &found);
    ratatui::restore();
    shown.map(|()| 0).map_err(|error| Failed::new(IO, format!("the terminal fails: {error}")))
}

/// Until the user is done, or a signal ends it.
fn show(
    terminal: &mut DefaultTerminal,
    view: &mut View,
    every: Duration,
    is_told: &AtomicBool,
    wishes: &Sender<Range<usize>>,
    found: &Receiver<Found>,
) -> std::io::Result<()> {
    let mut next = Instant::now() + every;
    loop {
        terminal.draw(|frame| view.draw(frame))?;
        let left = next.saturating_duration_since(Instant::now());
        if is_told.load(SeqCst) {
            return Ok(());
        }
        if event::poll(TICK.min(left))? {
            match view.hear(&event::read()?) {
                Wish::Stay => {}
                Wish::End => return Ok(()),
                Wish::Stop => {
                    ratatui::restore();
                    let _ = stop_with_the_others();
                    *terminal = ratatui::init();
                }
            }
        }
        if let Ok(found) = found.try_recv() {
            view.found = found;
            view.from = view.from.min(view.found.locks.len().saturating_sub(1));
        }
        if Instant::now() >= next {
            next = Instant::now() + every;
            // While it is still looking, one more wish is kept for it, and others are as good.
            let _ = wishes.try_send(view.from..view.from + usize::from(terminal.size()?.height));
        }
    }
}

/// What a key is for.
enum Wish {
    Stay,
    End,
    /// Ctrl-Z.
    Stop,
}

impl Finder {
    fn new(inspector: Inspector, pattern: String, board: Board) -> Self {
        let (known, next_scan) = (Known::default(), Instant::now());
        Self { inspector, pattern, board, known, locks: Vec::new(), count: 0, next_scan }
    }

    /// Takes wishes for a range of the screen's lines, until there is no screen.
    fn start(mut self) -> (Sender<Range<usize>>, Receiver<Found>) {
        let ((wishes, wished), (sender, found)) = (bounded(1), bounded(1));
        thread::spawn(move || {
            for shown in wished {
                let done = if Instant::now() >= self.next_scan { self.scan() } else { self.look(shown) };
                if sender.send(self.found(done)).is_err() {
                    return;
                }
            }
        });
        (wishes, found)
    }

    fn found(&self, done: redlatch::Result<()>) -> Found {
        let trouble = done.err().map(|error| plain(&error.to_string()));
        Found { locks: self.locks.clone(), count: self.count, trouble }
    }

    fn scan(&mut self) -> redlatch::Result<()> {
        let began = Instant::now();
        let done = self.scan_all();
        self.next_scan = Instant::now() + SCANS_EVERY.max(began.elapsed() * SHARE);
        done
    }

    /// Keeps those with most waiters. A server of a cluster that does not answer keeps none of the others away.
    fn scan_all(&mut self) -> redlatch::Result<()> {
        let (mut all, mut count, mut done, waits) = (Vec::new(), 0, Ok(()), self.board.waits());
        for page in self.inspector.scan(&self.pattern)? {
            match page {
                Ok(page) => {
                    count += page.locks.len();
                    all.extend(page.locks);
                }
                Err(error) => done = Err(error),
            }
            if all.len() > 2 * KEPT {
                keep(&mut all, &waits);
            }
        }
        keep(&mut all, &waits);
        self.known.name(&mut all, &self.inspector);
        (self.locks, self.count) = (all, count);
        done
    }

    /// Looks again at what is on the screen.
    fn look(&mut self, shown: Range<usize>) -> redlatch::Result<()> {
        let all = self.locks.len();
        let mut shown = self.locks[shown.start.min(all)..shown.end.min(all)].iter_mut();
        let done = shown.try_for_each(|sight| self.inspector.look(&sight.name).map(|now| *sight = now));
        self.locks.retain(Sight::is_held);
        keep(&mut self.locks, &self.board.waits());
        self.known.name(&mut self.locks, &self.inspector);
        done
    }
}

impl View {
    fn hear(&mut self, event: &Event) -> Wish {
        let Event::Key(key) = event else { return Wish::Stay };
        if key.kind != KeyEventKind::Press {
            return Wish::Stay;
        }
        let last = self.found.locks.len().saturating_sub(1);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Wish::End,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Wish::End,
            KeyCode::Char('z') if key.modifiers.contains(KeyModifiers::CONTROL) => return Wish::Stop,
            KeyCode::Down | KeyCode::Char('j') => self.from = (self.from + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => self.from = self.from.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.from = (self.from + 20).min(last),
            KeyCode::PageUp => self.from = self.from.saturating_sub(20),
            KeyCode::Home => self.from = 0,
            _ => {}
        }
        Wish::Stay
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let (Found { locks, count, trouble }, waits) = (&self.found, self.board.waits());
        let has_oldest = waits.are_told() && frame.area().width >= WIDE;
        let shown = locks.iter().skip(self.from).take(usize::from(frame.area().height));
        let style = |sight: &Sight| if waits.count(sight) > 0 { Style::new().yellow() } else { Style::new() };
        let shown: Vec<_> = shown.map(|sight| (cells(sight, &waits, has_oldest), style(sight))).collect();
        // Whom to call is what is looked for: a long name is cut, a holder only on a very narrow terminal.
        let holder = shown.iter().map(|(cells, _)| cells[1].width()).max().unwrap_or(0).clamp(6, 60);
        let rows = shown.into_iter().map(|(cells, style)| Row::new(cells.into_iter().map(Cell::from)).style(style));
        let holder = Constraint::Length(u16::try_from(holder).unwrap_or(60));
        let widths = [Constraint::Min(12), holder].into_iter().chain([8, 8, 7, 7].map(Constraint::Length));
        let columns = if has_oldest { HEAD.len() } else { HEAD.len() - 1 };
        let head = Row::new(HEAD[..columns].iter().copied()).style(Style::new().bold());
        let waited_for = locks.iter().filter(|sight| waits.count(sight) > 0).count();
        let title = format!(" {count} locks, {waited_for} of them waited for ");
        let foot = trouble
            .as_ref()
            .map_or_else(|| Line::from(" q: end, arrows: move "), |trouble| Line::from(format!(" {trouble} ")).red());
        let block = Block::bordered().title(title).title_bottom(foot);
        frame.render_widget(Table::new(rows, widths.take(columns)).header(head).block(block), frame.area());
    }
}

/// The cells of a lock: as `list` has them, and with what the clients tell of their waits.
fn cells(sight: &Sight, waits: &Told, has_oldest: bool) -> Vec<String> {
    let mut cells = row(sight);
    if let count @ 1.. = waits.count(sight) {
        cells[4] = count.to_string();
    }
    if has_oldest {
        cells.push(waits.oldest(sight).map_or_else(String::new, |began| show::ago(Some(began))));
    }
    cells
}

/// Those with most waiters, and among them those that were asked for first.
fn keep(locks: &mut Vec<Sight>, waits: &Told) {
    let asked = |sight: &Sight| sight.holders().iter().filter_map(|holder| holder.asked).min();
    locks.sort_by_cached_key(|sight| (Reverse(waits.count(sight)), asked(sight)));
    locks.truncate(KEPT);
}
