//! Which server program the harness starts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// Redis, or Valkey.
pub(crate) struct Program {
    path: PathBuf,
    /// Its name in `scripts/matrix`, such as `Redis 7.0.15`.
    pub(crate) name: String,
    /// The version of Redis that it is. Every Valkey counts as 7.0 at least, as which the first one began.
    pub(crate) version: (u32, u32),
}

impl Program {
    /// `None` if the program does not run here.
    fn of(path: PathBuf) -> Option<Self> {
        let said = Command::new(&path).arg("--version").output().ok()?.stdout;
        let said = String::from_utf8(said).ok()?;
        let (kind, rest) = said.split_once(" server v=")?;
        let version = rest.split_whitespace().next()?;
        let mut parts = version.split('.').map(|part| part.parse().unwrap_or_default());
        Some(Self { path, name: format!("{kind} {version}"), version: (parts.next()?, parts.next()?) })
    }

    pub(crate) fn command(&self) -> Command {
        Command::new(&self.path)
    }
}

/// All programs: Redis first, and then Valkey, for systems that have only that. Each is looked for on the PATH, then in `/usr/bin`.
fn all() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&path).chain([PathBuf::from("/usr/bin")]).collect();
    let named = move |name: &str| folders.iter().map(|folder| folder.join(name)).collect::<Vec<_>>();
    ["redis-server", "valkey-server"].into_iter().flat_map(named).filter(|path| path.is_file())
}

/// The program of all tests that need no TLS.
pub(crate) fn usual() -> &'static Program {
    static USUAL: LazyLock<Program> =
        LazyLock::new(|| all().find_map(Program::of).expect("redis-server or valkey-server is on the PATH"));
    &USUAL
}

/// The version of the usual program.
pub fn version() -> (u32, u32) {
    usual().version
}

/// The first program that was built with TLS. `scripts/faults` and `scripts/matrix` put servers of other versions first on the PATH,
/// which have no TLS; those behind them have it. A test by TLS may thus run on another version than the run is about. That is printed,
/// and `scripts/matrix` and `docs/faults.md` say that the test was not shown on the run's version.
pub(crate) fn with_tls() -> &'static Program {
    static SEALED: LazyLock<Program> = LazyLock::new(|| {
        let found = all().filter(|path| speaks_tls(path)).find_map(Program::of);
        found.expect("a redis-server or valkey-server with TLS is on the PATH or in /usr/bin")
    });
    if SEALED.name != usual().name {
        println!("not shown: it is built without TLS, and {} was asked instead", SEALED.name);
    }
    &SEALED
}

/// The name of the program that serves a torture test, by TLS or without.
pub fn name(is_sealed: bool) -> &'static str {
    &if is_sealed { with_tls() } else { usual() }.name
}

/// Starts the program with a TLS port and no certificate. With TLS it says that none is configured, and ends. Without TLS it ends, too:
/// the setting is unknown, or has nothing behind it (seen: Redis 6.0, 6.2, 7.0, 8.0 and 8.2, Valkey 8.1 and 9.1).
fn speaks_tls(program: &Path) -> bool {
    let said = Command::new(program).args(["--port", "0", "--tls-port", "1"]).stdin(Stdio::null()).output();
    said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("No tls-cert-file configured"))
}
