//! Sets up what the checks need: Node.js and its packages, Google's Python packages, Chromium, a voice, proxies, a database, an
//! S3 server, valgrind, systemd.

use std::path::Path;
use std::process::Command;

use crate::process::{self, Log};
use crate::report::Verdict;
use crate::workspace::{Workspace, python_of};

/// Something that a check needs and a machine may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Node,
    Python,
    NewestClient,
    AdkServers,
    Mcp,
    Pipx,
    Chromium,
    Espeak,
    Proxies,
    Postgres,
    S3,
    Haproxy,
    Valgrind,
    OpenApi,
    Linters,
    Systemd,
}

/// Everything that can be set up, in order.
pub(crate) const NEEDS: &[Need] = &[
    Need::Node,
    Need::Python,
    Need::NewestClient,
    Need::AdkServers,
    Need::Mcp,
    Need::Pipx,
    Need::Chromium,
    Need::Espeak,
    Need::Proxies,
    Need::Postgres,
    Need::S3,
    Need::Haproxy,
    Need::Valgrind,
    Need::OpenApi,
    Need::Linters,
    Need::Systemd,
];

/// Where npm packages are asked for: the checks that are written in JavaScript, the library and the page.
const NODE_PACKAGES: [&str; 13] = [
    "web/conformance",
    "web/chat",
    "web/client",
    "web/ui",
    "web/docs",
    "web/e2e",
    "web/proxies",
    "web/assistant-ui",
    "web/mcp",
    "web/fleet",
    "web/lint",
    "examples",
    "packages",
];

/// Google's ADK server in TypeScript.
const TYPESCRIPT_ADK: &str = "examples/adk-typescript";

/// What Vite asks for; the AI SDK packages run on it, although the newest ones ask for more.
const MIN_NODE: Version = Version(20, 19);

/// What Google's packages ask for.
const MIN_PYTHON: Version = Version(3, 11);

/// Under these names Chromium and its relatives are installed.
const CHROMIUM_NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// Debian's server is in a directory with its version, and not on PATH.
const DEBIAN_POSTGRES: &str = "/usr/lib/postgresql/*/bin/postgres --version";

impl Need {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Python => "python",
            Self::NewestClient => "newest-client",
            Self::AdkServers => "adk-servers",
            Self::Mcp => "mcp-package",
            Self::Pipx => "pipx",
            Self::Chromium => "chromium",
            Self::Espeak => "espeak",
            Self::Proxies => "nginx",
            Self::Postgres => "postgres",
            Self::S3 => "s3-server",
            Self::Haproxy => "haproxy",
            Self::Valgrind => "valgrind",
            Self::OpenApi => "schemathesis",
            Self::Linters => "linters",
            Self::Systemd => "systemd",
        }
    }

    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Node => "set up Node.js and the AI SDK packages",
            Self::Python => "set up a Python environment with Google's packages",
            Self::NewestClient => "set up a Python environment with Google's newest client",
            Self::AdkServers => "set up Google's older ADK servers, and the one in TypeScript",
            Self::Mcp => "set up a Python environment with the official MCP package",
            Self::Pipx => "set up a Python environment with pipx",
            Self::Chromium => "set up Chromium for the browser tests",
            Self::Espeak => "set up espeak-ng, which speaks in the tests of audio",
            Self::Proxies => "set up nginx and Caddy, which the bridge is put behind",
            Self::Postgres => "set up PostgreSQL and pgbouncer, which replicas share",
            Self::S3 => "set up a Python environment with an S3 server",
            Self::Haproxy => "set up haproxy, which replicas are put behind",
            Self::Valgrind => "set up valgrind, which counts instructions",
            Self::OpenApi => "set up a Python environment with schemathesis",
            Self::Linters => "set up a Python environment with linters",
            Self::Systemd => "set up systemd-analyze, which judges units",
        }
    }
}

/// The machine that this runs on, as far as it has been prepared.
#[derive(Default)]
pub(crate) struct Machine {
    package_lists_are_new: bool,
}

/// Why something is not there.
enum Lack {
    /// It cannot be had here.
    Unavailable(String),
    /// Getting it went wrong.
    Broken(String),
}

impl Machine {
    /// Sets up one thing and says what is there.
    pub(crate) fn set_up(&mut self, need: Need, workspace: &Workspace, log: &mut Log) -> Verdict {
        let outcome = match need {
            Need::Node => self.node(workspace, log),
            Need::Python => self.python(workspace, &workspace.venv(), "requirements.txt", &[], log),
            Need::NewestClient => {
                let venv = workspace.newest_client_venv();
                self.python(workspace, &venv, "requirements-newest-client.txt", &[], log)
            }
            Need::AdkServers => self.adk_servers(workspace, log),
            Need::Mcp => {
                let venv = workspace.mcp_venv();
                self.python(workspace, &venv, "requirements-mcp.txt", &[], log)
            }
            Need::Pipx => {
                let venv = workspace.pipx_venv();
                self.python(workspace, &venv, "requirements-pipx.txt", &[], log)
            }
            Need::OpenApi => {
                let venv = workspace.openapi_venv();
                self.python(workspace, &venv, "requirements-openapi.txt", &[], log)
            }
            Need::Chromium => self.chromium(log),
            Need::Espeak => self.espeak(log),
            Need::Proxies => self.proxies(log),
            Need::Postgres => self.postgres(log),
            Need::S3 => {
                let alone = ["--no-deps", "--no-compile"];
                let venv = workspace.s3_venv();
                self.python(workspace, &venv, "requirements-s3.txt", &alone, log)
            }
            Need::Haproxy => self.haproxy(log),
            Need::Valgrind => self.valgrind(log),
            Need::Systemd => self.systemd(log),
            Need::Linters => {
                let venv = workspace.linters_venv();
                self.python(workspace, &venv, "requirements-deploy.txt", &[], log)
            }
        };
        match outcome {
            Ok(detail) => Verdict::Passed(detail),
            Err(Lack::Unavailable(reason)) => Verdict::NotRun(reason),
            Err(Lack::Broken(reason)) => Verdict::Failed(reason),
        }
    }

    fn node(&mut self, workspace: &Workspace, log: &mut Log) -> Result<String, Lack> {
        if node_version().is_none() || npm_version().is_none() {
            self.install(&["nodejs", "npm"], "Node.js with npm", log)?;
        }
        let node = node_version()
            .ok_or_else(|| Lack::Unavailable("node is not on PATH: install Node.js".into()))?;
        if Version::parse(&node).is_none_or(|version| version < MIN_NODE) {
            return Err(Lack::Unavailable(format!(
                "node {node} is too old: install Node.js {MIN_NODE} or newer"
            )));
        }
        if npm_version().is_none() {
            return Err(Lack::Unavailable("npm is not on PATH: install npm".into()));
        }
        let mut fetched = false;
        for directory in NODE_PACKAGES {
            fetched |= npm_ci(&workspace.root.join(directory), log)?;
        }
        let packages = if fetched { "installed" } else { "in place" };
        Ok(format!("node {node}, packages {packages}"))
    }

    /// Sets up the ADK servers that are used as servers only.
    fn adk_servers(&mut self, workspace: &Workspace, log: &mut Log) -> Result<String, Lack> {
        // They leave out what their servers do not need, and little of what they have is ever imported.
        let alone = ["--no-deps", "--no-compile"];
        let (oldest, newest) = (workspace.oldest_adk_venv(), workspace.newest_1_adk_venv());
        self.python(
            workspace,
            &oldest,
            "requirements-adk-oldest.txt",
            &alone,
            log,
        )?;
        let python = self.python(
            workspace,
            &newest,
            "requirements-adk-newest-1.txt",
            &alone,
            log,
        )?;
        npm_ci(&workspace.root.join(TYPESCRIPT_ADK), log)?;
        Ok(python)
    }

    /// Makes a virtual environment with the packages of a file in `python/`. `options`: those of pip.
    fn python(
        &mut self,
        workspace: &Workspace,
        venv: &Path,
        requirements: &str,
        options: &[&str],
        log: &mut Log,
    ) -> Result<String, Lack> {
        let requirements = workspace.root.join("python").join(requirements);
        let wanted = read(&requirements)?;
        let stamp = venv.join("requirements.stamp");
        let inside = python_of(venv).to_string_lossy().into_owned();
        if is_stamped(&stamp, &wanted)
            && let Some(version) = python_version(&inside)
        {
            return Ok(format!("python {version}, packages in place"));
        }
        self.make_venv(workspace, venv, log)?;
        let mut pip = Command::new(&inside);
        pip.args(["-m", "pip", "install", "--disable-pip-version-check"])
            .args(options)
            .args(["--no-input", "--requirement"])
            .arg(&requirements);
        log.run(&mut pip).map_err(Lack::Broken)?;
        write(&stamp, &wanted)?;
        let version = python_version(&inside).unwrap_or_default();
        Ok(format!("python {version}, packages installed"))
    }

    /// Creates the virtual environment again: by Python's own module, by `virtualenv`, or after installing what
    /// Debian's Python leaves out.
    fn make_venv(&mut self, workspace: &Workspace, venv: &Path, log: &mut Log) -> Result<(), Lack> {
        if python_version("python3").is_none() {
            self.install(&["python3", "python3-venv"], "Python 3", log)?;
        }
        let version = python_version("python3")
            .ok_or_else(|| Lack::Unavailable("python3 is not on PATH: install Python".into()))?;
        if Version::parse(&version).is_none_or(|version| version < MIN_PYTHON) {
            return Err(Lack::Unavailable(format!(
                "python {version} is too old: install Python {MIN_PYTHON} or newer"
            )));
        }
        if run_venv(venv, log).is_ok() {
            return Ok(());
        }
        log.note("python3 lacks its venv module: trying virtualenv");
        if run_virtualenv(workspace, venv, log).is_ok() {
            return Ok(());
        }
        self.install(&["python3-venv"], "Python's venv module", log)?;
        run_venv(venv, log).map_err(Lack::Broken)
    }

    fn chromium(&mut self, log: &mut Log) -> Result<String, Lack> {
        if let Some(version) = chromium_version() {
            return Ok(version);
        }
        self.install(&["chromium"], "Chromium", log)?;
        chromium_version()
            .ok_or_else(|| Lack::Broken("chromium was installed but does not start".into()))
    }

    fn espeak(&mut self, log: &mut Log) -> Result<String, Lack> {
        let version = || process::answer("espeak-ng", &["--version"]);
        if let Some(version) = version() {
            return Ok(version);
        }
        self.install(&["espeak-ng"], "espeak-ng", log)?;
        version().ok_or_else(|| Lack::Broken("espeak-ng was installed but does not start".into()))
    }

    fn proxies(&mut self, log: &mut Log) -> Result<String, Lack> {
        // nginx tells its version elsewhere, and ends well without a word.
        let nginx = || process::answer("nginx", &["-v"]);
        let caddy = || process::answer("caddy", &["version"]);
        if nginx().is_none() {
            self.install(&["nginx-light"], "nginx", log)?;
        }
        if caddy().is_none() {
            self.install(&["caddy"], "Caddy", log)?;
        }
        match (nginx(), caddy()) {
            (Some(_), Some(version)) => Ok(format!("nginx, Caddy {version}")),
            _ => Err(Lack::Broken(
                "nginx and Caddy were installed but do not start".into(),
            )),
        }
    }

    /// The tests start servers of their own: Debian's is only installed.
    fn postgres(&mut self, log: &mut Log) -> Result<String, Lack> {
        let postgres = || {
            let bare = process::answer("postgres", &["--version"]);
            bare.or_else(|| process::answer("sh", &["-c", DEBIAN_POSTGRES]))
        };
        let pgbouncer = || process::answer("/usr/sbin/pgbouncer", &["--version"]);
        if postgres().is_none() {
            // Without this, Debian makes a cluster and starts it.
            let settings = Path::new("/etc/postgresql-common");
            if may_use_apt() && !settings.exists() {
                write(
                    &settings.join("createcluster.conf"),
                    "create_main_cluster = false\n",
                )?;
            }
            self.install(&["postgresql"], "PostgreSQL", log)?;
        }
        if pgbouncer().is_none() {
            self.install(&["pgbouncer"], "pgbouncer", log)?;
        }
        match (postgres(), pgbouncer()) {
            (Some(postgres), Some(pgbouncer)) => {
                let pgbouncer = pgbouncer.lines().next().unwrap_or_default().to_owned();
                Ok(format!("{postgres}, {pgbouncer}"))
            }
            _ => Err(Lack::Broken(
                "PostgreSQL and pgbouncer were installed but do not start".into(),
            )),
        }
    }

    fn haproxy(&mut self, log: &mut Log) -> Result<String, Lack> {
        let version = || {
            let said = process::answer("haproxy", &["-v"])?;
            said.lines().next().map(str::to_owned)
        };
        if let Some(version) = version() {
            return Ok(version);
        }
        self.install(&["haproxy"], "haproxy", log)?;
        version().ok_or_else(|| Lack::Broken("haproxy was installed but does not start".into()))
    }

    fn valgrind(&mut self, log: &mut Log) -> Result<String, Lack> {
        let version = || process::answer("valgrind", &["--version"]);
        if let Some(version) = version() {
            return Ok(version);
        }
        self.install(&["valgrind"], "valgrind", log)?;
        version().ok_or_else(|| Lack::Broken("valgrind was installed but does not start".into()))
    }

    fn systemd(&mut self, log: &mut Log) -> Result<String, Lack> {
        let version = || {
            let said = process::answer("systemd-analyze", &["--version"])?;
            said.lines().next().map(str::to_owned)
        };
        if let Some(version) = version() {
            return Ok(version);
        }
        self.install(&["systemd"], "systemd-analyze", log)?;
        let broken = "systemd was installed but has no systemd-analyze";
        version().ok_or_else(|| Lack::Broken(broken.into()))
    }

    /// Installs Debian packages where this process may.
    fn install(&mut self, packages: &[&str], what: &str, log: &mut Log) -> Result<(), Lack> {
        if !may_use_apt() {
            return Err(Lack::Unavailable(format!(
                "{what} is missing, and only root on a Debian system can have it installed from \
                 here: install it by hand"
            )));
        }
        println!("      installing {} with apt-get", packages.join(" "));
        let apt = || {
            let mut apt = Command::new("apt-get");
            apt.env("DEBIAN_FRONTEND", "noninteractive");
            apt
        };
        if !self.package_lists_are_new {
            log.run(apt().args(["update", "--quiet"]))
                .map_err(Lack::Broken)?;
            self.package_lists_are_new = true;
        }
        let mut install = apt();
        install.args(["install", "--yes", "--no-install-recommends", "--quiet"]);
        log.run(install.args(packages)).map_err(Lack::Broken)
    }
}

/// Fetches a directory's npm packages when its lockfile differs from the last time.
///
/// Returns whether anything was fetched.
fn npm_ci(directory: &Path, log: &mut Log) -> Result<bool, Lack> {
    let lockfile = read(&directory.join("package-lock.json"))?;
    let stamp = directory.join("node_modules/.lockfile.stamp");
    if is_stamped(&stamp, &lockfile) {
        return Ok(false);
    }
    let mut npm = process::script("npm");
    npm.args(["ci", "--no-audit", "--no-fund"])
        .current_dir(directory);
    log.run(&mut npm).map_err(Lack::Broken)?;
    write(&stamp, &lockfile)?;
    Ok(true)
}

/// Fetches npm packages for a caller that has no use for the difference between the lacks.
pub(crate) fn npm_packages(directory: &Path, log: &mut Log) -> Result<(), String> {
    match npm_ci(directory, log) {
        Ok(_) => Ok(()),
        Err(Lack::Unavailable(reason) | Lack::Broken(reason)) => Err(reason),
    }
}

/// Sets up what a command needs, or says what is missing.
pub(crate) fn require(needs: &[Need], workspace: &Workspace) -> Result<(), String> {
    let mut machine = Machine::default();
    for need in needs {
        let mut log = Log::create(workspace.log(need.name()))?;
        match machine.set_up(*need, workspace, &mut log) {
            Verdict::Passed(_) => {}
            Verdict::Failed(reason) | Verdict::NotRun(reason) => return Err(reason),
        }
    }
    Ok(())
}

/// Says plainly when Node.js is missing or too old.
pub(crate) fn require_node() -> Result<(), String> {
    match (node_version(), npm_version()) {
        (Some(node), Some(_)) => match Version::parse(&node) {
            Some(version) if version >= MIN_NODE => Ok(()),
            _ => Err(format!(
                "node {node} is too old: install Node.js {MIN_NODE} or newer"
            )),
        },
        _ => Err(format!("install Node.js {MIN_NODE} or newer with npm")),
    }
}

fn run_venv(venv: &Path, log: &mut Log) -> Result<(), String> {
    let mut command = Command::new("python3");
    log.run(command.args(["-m", "venv", "--clear"]).arg(venv))
}

fn run_virtualenv(workspace: &Workspace, venv: &Path, log: &mut Log) -> Result<(), String> {
    let tool = workspace.target.join("virtualenv");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--disable-pip-version-check"])
        .args(["--no-input", "--upgrade", "--target"])
        .arg(&tool)
        .arg("virtualenv");
    log.run(&mut pip)?;
    let mut virtualenv = Command::new("python3");
    virtualenv
        .args(["-m", "virtualenv", "--clear"])
        .arg(venv)
        .env("PYTHONPATH", &tool);
    log.run(&mut virtualenv)
}

fn node_version() -> Option<String> {
    process::answer("node", &["--version"]).map(|v| v.trim_start_matches('v').to_owned())
}

fn npm_version() -> Option<String> {
    let name = if cfg!(windows) { "npm.cmd" } else { "npm" };
    process::answer(name, &["--version"])
}

fn python_version(interpreter: &str) -> Option<String> {
    let program = "import platform; print(platform.python_version())";
    process::answer(interpreter, &["-c", program])
}

fn chromium_version() -> Option<String> {
    CHROMIUM_NAMES
        .iter()
        .find_map(|name| process::answer(name, &["--version"]))
}

fn may_use_apt() -> bool {
    process::answer("id", &["-u"]).as_deref() == Some("0")
        && process::answer("apt-get", &["--version"]).is_some()
}

/// A stamp holds what its packages were installed from.
fn is_stamped(stamp: &Path, wanted: &str) -> bool {
    std::fs::read_to_string(stamp).is_ok_and(|found| found == wanted)
}

fn read(path: &Path) -> Result<String, Lack> {
    std::fs::read_to_string(path)
        .map_err(|e| Lack::Broken(format!("cannot read {}: {e}", path.display())))
}

fn write(path: &Path, text: &str) -> Result<(), Lack> {
    // npm makes no directory for a package that needs no other.
    let directory = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    directory
        .and_then(|()| std::fs::write(path, text))
        .map_err(|e| Lack::Broken(format!("cannot write {}: {e}", path.display())))
}

/// The first two numbers of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32);

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(str::parse);
        Some(Self(numbers.next()?.ok()?, numbers.next()?.ok()?))
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self(major, 0) => write!(f, "{major}"),
            Self(major, minor) => write!(f, "{major}.{minor}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        let cases = [
            ("3.9.2", MIN_PYTHON, false),
            ("3.10.14", MIN_PYTHON, false),
            ("3.11.0", MIN_PYTHON, true),
            ("3.100.1", MIN_PYTHON, true),
            ("20.18.1", MIN_NODE, false),
            ("20.20.2", MIN_NODE, true),
            ("100.0.0", MIN_NODE, true),
        ];
        for (text, minimum, enough) in cases {
            assert_eq!(Version::parse(text).unwrap() >= minimum, enough, "{text}");
        }
        assert_eq!(Version::parse("newest"), None);
    }
}
