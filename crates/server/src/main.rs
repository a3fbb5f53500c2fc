//! The command line of `adk-bridge`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use adk_bridge::audit::seal::SealMark;
use adk_bridge::config::{Overrides, Span};
use adk_bridge::{
    allocator, audit, backup, check_config, doctor, fake_gemini, migrate_store, serve, translate,
};
use adk_bridge_protocol::dialect::Dialect;
use clap::{Args, Parser, Subcommand};

/// Lets any AI SDK front end talk to Google ADK agents.
#[derive(Debug, Parser)]
#[command(name = "adk-bridge", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Starts the server.
    ///
    /// SIGHUP loads the configuration again, if there is no terminal: keys, limits, agents and origins change without a
    /// dropped connection.
    Serve {
        #[command(flatten)]
        settings: Settings,
    },
    /// Says everything that is wrong with a configuration.
    ///
    /// The exit code is 0 if nothing is, 1 if the configuration cannot be used, and 2 if something that it names cannot be
    /// reached.
    CheckConfig {
        #[command(flatten)]
        settings: Settings,
        /// Also reaches for the agents, the MCP servers, the store and the files.
        #[arg(long)]
        reach: bool,
    },
    /// Copies the data directory to another one, while the bridge runs.
    ///
    /// It can be repeated in the same place. To restore it, start the bridge with a copy of it as its data directory.
    Backup {
        /// The directory for the backup.
        target: PathBuf,
        #[command(flatten)]
        settings: Settings,
    },
    /// Looks at this machine and a configuration, and says what to do.
    ///
    /// The exit code is 0 if all is well, 1 if there are only warnings, and 2 if there is a problem.
    Doctor {
        #[command(flatten)]
        settings: Settings,
    },
    /// Shows the stream that a front end would get for recorded ADK events.
    ///
    /// The recording holds one event per line, as JSON or as SSE `data:` lines, or is a JSON array of events. A chunk log of
    /// adk-stream-protocol is shown as its streams, whatever the dialect.
    Translate {
        /// The dialect of the stream: "native", "adk" or "held".
        #[arg(long, default_value = "native")]
        dialect: Dialect,
        /// The id of the message that the stream belongs to.
        #[arg(long, default_value = "message-1")]
        message_id: String,
        /// The recording, or - for standard input.
        file: PathBuf,
    },
    /// Moves a data directory into PostgreSQL, for several replicas.
    ///
    /// The bridge must not run meanwhile. Chats, open approvals, the audit and everything else that the database holds is
    /// moved, and the source stays as it is. After an interruption, run it again: it goes on where it was.
    MigrateStore {
        /// The data directory, or the SQLite database.
        from: PathBuf,
        /// postgres://USER@HOST/DATABASE; by default what ADK_BRIDGE__STORE__URL says, where others cannot read a
        /// password.
        to: Option<String>,
        /// Copies the content of files, too, to what files.url may be: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or a
        /// directory.
        ///
        /// A bucket is reached as ADK_BRIDGE__FILES__ENDPOINT, …__PATH_STYLE and …__ALLOW_HTTP say. Everything that is copied
        /// is read back and compared; what is there already is not copied again.
        #[arg(long, value_name = "WHERE")]
        files: Option<String>,
        /// Where the content of files is, if not in the data directory: what files.url was.
        #[arg(long, value_name = "WHERE", requires = "files")]
        files_from: Option<String>,
    },
    /// Checks or exports the audit, whether or not a bridge is running.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Serves a scripted Gemini that Google's own clients can talk to.
    FakeGemini {
        /// The address to listen on; port 0 picks one.
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        /// The time between two pieces of an answer.
        #[arg(long, default_value = "30ms")]
        pace: Span,
        /// How long a live connection lasts.
        #[arg(long, default_value = "10m")]
        live_limit: Span,
    },
}

/// Where the configuration is, and what the command line adds to it.
#[derive(Debug, Args)]
struct Settings {
    /// The configuration file; by default adk-bridge.toml, if it exists.
    #[arg(long)]
    config: Option<PathBuf>,
    /// The address to listen on; port 0 picks one.
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// The directory for chats and files.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// The kind of agent: "demo", "gemini", "openai" or "adk".
    #[arg(long, value_name = "KIND")]
    agent: Option<String>,
}

impl Settings {
    fn parts(self) -> (Option<PathBuf>, Overrides) {
        let overrides = Overrides {
            listen: self.listen,
            data_dir: self.data_dir,
            agent: self.agent,
        };
        (self.config, overrides)
    }
}

/// Where the audit is; by default what the configuration says.
#[derive(Debug, Args)]
struct AuditSource {
    /// A data directory, a SQLite database, an export, or postgres://USER@HOST/DATABASE.
    from: Option<String>,
    /// The configuration file; by default adk-bridge.toml, if it exists and the audit is not named.
    #[arg(long)]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Finds the first row that was changed, is missing, or was put in.
    ///
    /// The exit status is 3 if there is one, and 1 if the audit cannot be read. ADK_BRIDGE__AUDIT__KEY, or audit.key of the
    /// configuration, is the key that signed the seals.
    Verify {
        #[command(flatten)]
        source: AuditSource,
        /// A seal that was noted elsewhere, as the log or an earlier check showed it: shows that the end was not cut off, and
        /// that the audit was not rebuilt.
        #[arg(long, value_name = "NUMBER:HASH")]
        seal: Option<SealMark>,
        /// An environment variable with a key that signed seals; it can be repeated, for keys of before.
        #[arg(long, value_name = "VARIABLE")]
        key_env: Vec<String>,
    },
    /// Writes the audit as JSON lines, which can be checked as well.
    Export {
        #[command(flatten)]
        source: AuditSource,
        /// Only the rows after the one with this id.
        #[arg(long, default_value_t = 0, value_name = "ID")]
        after: u64,
        /// The file to write; by default standard output.
        #[arg(long)]
        output: Option<PathBuf>,
    },
}

impl AuditSource {
    fn asked(&self) -> audit::command::Asked<'_> {
        audit::command::Asked {
            from: self.from.as_deref(),
            config: self.config.as_deref(),
        }
    }
}

fn audit_command(command: &AuditCommand) -> anyhow::Result<ExitCode> {
    match command {
        AuditCommand::Verify {
            source,
            seal,
            key_env,
        } => audit::command::verify(&source.asked(), seal.clone(), key_env),
        AuditCommand::Export {
            source,
            after,
            output,
        } => audit::command::export(&source.asked(), *after, output.as_deref()),
    }
}

fn main() -> ExitCode {
    allocator::set_up();
    let done = match Arguments::parse().command {
        Command::Serve { settings } => {
            let (file, overrides) = settings.parts();
            serve::run(file.as_deref(), &overrides)
        }
        Command::CheckConfig { settings, reach } => {
            let (file, overrides) = settings.parts();
            check_config::run(file.as_deref(), &overrides, reach)
        }
        Command::Backup { target, settings } => {
            let (file, overrides) = settings.parts();
            backup::run(&target, file.as_deref(), &overrides)
        }
        Command::Doctor { settings } => {
            let (file, overrides) = settings.parts();
            doctor::run(file.as_deref(), &overrides)
        }
        Command::Translate {
            dialect,
            message_id,
            file,
        } => translate::run(dialect, &message_id, &file),
        Command::MigrateStore {
            from,
            to,
            files,
            files_from,
        } => migrate_store::run(
            &from,
            to.as_deref(),
            files.as_deref(),
            files_from.as_deref(),
        ),
        Command::Audit(command) => audit_command(&command),
        Command::FakeGemini {
            listen,
            pace,
            live_limit,
        } => fake_gemini::run(listen, pace, live_limit),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("adk-bridge: {error:#}");
            ExitCode::FAILURE
        }
    }
}
