//! Logs to standard error, as text or JSON. Never logs the content of sessions.
use clap::{Args, ValueEnum};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

/// The target of our crates. Other crates may log what they send, including keys, so their output is dropped.
const OURS: &str = "outlast";

/// The logging flags.
#[derive(Args)]
pub(crate) struct LogArgs {
    /// Write logs to standard error, as text or as JSON lines; default: no logs
    #[arg(long = "log", global = true, env = "OUTLAST_LOG", value_name = "FORMAT", value_enum)]
    format: Option<LogFormat>,
    /// Level of the messages to log
    #[arg(
        long = "log-level",
        global = true,
        env = "OUTLAST_LOG_LEVEL",
        value_name = "LEVEL",
        value_enum,
        default_value_t = LogLevel::Info
    )]
    level: LogLevel,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogArgs {
    /// Installs the subscriber, if logging is enabled.
    pub(crate) fn start(&self) {
        let level = match self.level {
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
            LogLevel::Trace => LevelFilter::TRACE,
        };
        let ours = Targets::new().with_target(OURS, level);
        let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(false);
        match self.format {
            None => {}
            Some(LogFormat::Text) => registry().with(lines.with_filter(ours)).init(),
            Some(LogFormat::Json) => {
                let lines = lines.json().flatten_event(true).with_current_span(true).with_span_list(false);
                registry().with(lines.with_filter(ours)).init();
            }
        }
    }
}
