//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, builder::NonEmptyStringValueParser};
use lazy_cgroups::limit::Limit;

use crate::{device::DeviceValue, quantity};

/// Show and change in which cgroup controllers lazycg's containers are.
///
/// A container of the runtime io.containerd.lazycg.v1 has its own cgroup only in the
/// hierarchies where there is a reason for one, such as a limit, and is in the root of the
/// others. It joins another one when an update limits it there, and leaves it with its last
/// limit.
#[derive(Debug, Parser)]
#[command(name = "lazycg", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) containerd: Containerd,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which containerd, and what of it.
#[derive(Debug, Args)]
pub(crate) struct Containerd {
    /// containerd's gRPC socket, as containerd itself was given it
    #[arg(
        short, long, global = true, value_name = "SOCKET", env = "CONTAINERD_ADDRESS",
        default_value = "/run/containerd/containerd.sock", value_parser = socket
    )]
    pub(crate) address: String,

    /// Namespace of the containers
    #[arg(
        short, long, global = true, value_name = "NAMESPACE", env = "CONTAINERD_NAMESPACE",
        default_value = "default", value_parser = NonEmptyStringValueParser::new()
    )]
    pub(crate) namespace: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Status(StatusArgs),
    Plan(PlanArgs),
    Update(Box<UpdateArgs>),
}

/// Show where containers are, and why
///
/// Without ID one line for each container of the namespace. With ID one line for each
/// hierarchy: whether the container has its own cgroup there or is in the root, the reasons,
/// the path, the number of its processes, and the limits in force as the kernel shows them.
///
/// The init process's real cgroups are compared with the record. A difference is shown below
/// the table, and the exit code is 1.
#[derive(Debug, Args)]
#[command(after_long_help = STATUS_JSON)]
pub(crate) struct StatusArgs {
    /// The container; all of the namespace without it
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) id: Option<String>,

    /// Print JSON: an object for a container, a list of them without ID
    #[arg(long)]
    pub(crate) json: bool,

    /// Folder of the records
    #[arg(long, hide = true, value_name = "FOLDER", default_value = containerd_shim_lazycg::record::RECORDS)]
    pub(crate) records_root: PathBuf,
}

/// The shape of `--json`. Fields may be added; these stay.
const STATUS_JSON: &str = "\
JSON of a container (? may be absent):
  id, namespace
  pid            its init process; null if there is none
  hierarchies    a list, in the order of the host's mounts:
    hierarchy    its controllers, a name (name=systemd), or unified
    place        own or root
    reasons      a list of: reason, controller?, file? (of ancestor), with? (of co-mounted)
    path         the cgroup
    real_path?   where the init process is, if that is somewhere else
    processes    how many of the container's processes are there
    limits       an object: the runtime-spec's field, such as memory.limit, and its value, a
                 string, in bytes or microseconds; kernel defaults are left out
  changing       a list of hierarchies that it is joining or leaving at this moment
  problems       a list of texts: what is not as recorded or could not be read";

/// Show where a container would be, and why; does nothing
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// A bundle (a folder with config.json) or a config.json
    #[arg(value_name = "BUNDLE|CONFIG.JSON")]
    pub(crate) bundle: PathBuf,

    /// The container's id: names its cgroup if config.json does not [default: the bundle's
    /// name]
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) id: Option<String>,

    /// Options of the runtime (TOML), as containerd would pass them (ctr run
    /// --runtime-config-path)
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) runtime_options: Option<PathBuf>,

    /// The operator's options
    #[arg(long, value_name = "FILE.toml", default_value = containerd_shim_lazycg::options::CONFIG_FILE)]
    pub(crate) config: PathBuf,

    /// Process that a relative cgroupsPath is relative to: the shim, which is in containerd's
    /// cgroups [default: this process]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) relative_to: Option<i32>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Change the limits of a running, created or paused container
///
/// What is not named stays as it is. The container joins each controller that it was not in
/// and that is limited now; it leaves one when its last limit there is taken away. Either all
/// of it happens or nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
SIZE is a number of bytes, perhaps with a unit b, k, m, g, t or p (multiples of 1024): 64m, \
1.5g. DEVICE is a block device's file or its number: /dev/sda:10mb, 8:0:10mb.")]
pub(crate) struct UpdateArgs {
    /// The container
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) id: String,

    /// The runtime-spec's linux.resources as JSON, from a file or (-) from standard input,
    /// instead of the options below
    #[arg(long, value_name = "FILE|-", conflicts_with = "Limits")]
    pub(crate) resources: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) limits: Option<Limits>,
}

/// The limits, with docker's names.
#[derive(Debug, Args)]
pub(crate) struct Limits {
    /// Memory; -1 is unlimited
    #[arg(
        short, long, value_name = "SIZE", allow_negative_numbers = true,
        value_parser = quantity::size_limit, help_heading = "Memory"
    )]
    pub(crate) memory: Option<Limit>,

    /// Memory and swap together; -1 is unlimited
    #[arg(
        long, value_name = "SIZE", allow_negative_numbers = true,
        value_parser = quantity::size_limit, help_heading = "Memory"
    )]
    pub(crate) memory_swap: Option<Limit>,

    /// Memory down to which it is reclaimed when the host is short of it; -1 is unlimited
    #[arg(
        long, value_name = "SIZE", allow_negative_numbers = true,
        value_parser = quantity::size_limit, help_heading = "Memory"
    )]
    pub(crate) memory_reservation: Option<Limit>,

    /// How readily its memory is swapped, 0 to 100
    #[arg(
        long, value_name = "NUMBER", value_parser = quantity::count, help_heading = "Memory"
    )]
    pub(crate) memory_swappiness: Option<u64>,

    /// Processors, such as 1.5; 0 is no limit
    #[arg(
        long, value_name = "NUMBER", conflicts_with_all = ["cpu_quota", "cpu_period"],
        allow_negative_numbers = true, value_parser = quantity::cpus, help_heading = "Processors"
    )]
    pub(crate) cpus: Option<Limit>,

    /// Weight against other cgroups; the kernel's default is 1024
    #[arg(
        short, long, value_name = "NUMBER", value_parser = quantity::positive,
        help_heading = "Processors"
    )]
    pub(crate) cpu_shares: Option<u64>,

    /// Microseconds of processor time per period; -1 is unlimited
    #[arg(
        long, value_name = "MICROSECONDS", allow_negative_numbers = true,
        value_parser = quantity::count_limit, help_heading = "Processors"
    )]
    pub(crate) cpu_quota: Option<Limit>,

    /// Length of the period
    #[arg(
        long, value_name = "MICROSECONDS", value_parser = quantity::positive,
        help_heading = "Processors"
    )]
    pub(crate) cpu_period: Option<u64>,

    /// Processors to run on
    #[arg(
        long, value_name = "LIST", value_parser = NonEmptyStringValueParser::new(),
        help_heading = "Processors"
    )]
    pub(crate) cpuset_cpus: Option<String>,

    /// Memory nodes to allocate from
    #[arg(
        long, value_name = "LIST", value_parser = NonEmptyStringValueParser::new(),
        help_heading = "Processors"
    )]
    pub(crate) cpuset_mems: Option<String>,

    /// Processes and threads; -1 is unlimited
    #[arg(
        long, value_name = "NUMBER", allow_negative_numbers = true,
        value_parser = quantity::count_limit, help_heading = "Processes"
    )]
    pub(crate) pids_limit: Option<Limit>,

    /// Weight of its block I/O against that of its siblings, 10 to 1000
    #[arg(
        long, value_name = "NUMBER", value_parser = quantity::positive,
        help_heading = "Block I/O"
    )]
    pub(crate) blkio_weight: Option<u64>,

    /// The same for one device; may be given several times
    #[arg(
        long, value_name = "DEVICE:NUMBER", value_parser = device_weight,
        help_heading = "Block I/O"
    )]
    pub(crate) blkio_weight_device: Vec<DeviceValue>,

    /// Bytes read from a device per second; 0 is no limit; may be given several times
    #[arg(
        long, value_name = "DEVICE:SIZE", value_parser = device_bytes,
        help_heading = "Block I/O"
    )]
    pub(crate) device_read_bps: Vec<DeviceValue>,

    /// Bytes written to a device per second; 0 is no limit; may be given several times
    #[arg(
        long, value_name = "DEVICE:SIZE", value_parser = device_bytes,
        help_heading = "Block I/O"
    )]
    pub(crate) device_write_bps: Vec<DeviceValue>,

    /// Reads from a device per second; 0 is no limit; may be given several times
    #[arg(
        long, value_name = "DEVICE:NUMBER", value_parser = device_count,
        help_heading = "Block I/O"
    )]
    pub(crate) device_read_iops: Vec<DeviceValue>,

    /// Writes to a device per second; 0 is no limit; may be given several times
    #[arg(
        long, value_name = "DEVICE:NUMBER", value_parser = device_count,
        help_heading = "Block I/O"
    )]
    pub(crate) device_write_iops: Vec<DeviceValue>,
}

/// The socket's path; other clients also take it as a URL.
fn socket(text: &str) -> Result<String, String> {
    match text.strip_prefix("unix://").unwrap_or(text) {
        "" => Err("an empty address".to_string()),
        path => Ok(path.to_string()),
    }
}

fn device_weight(text: &str) -> Result<DeviceValue, String> {
    DeviceValue::parse(text, quantity::positive)
}

fn device_bytes(text: &str) -> Result<DeviceValue, String> {
    DeviceValue::parse(text, quantity::bytes)
}

fn device_count(text: &str) -> Result<DeviceValue, String> {
    DeviceValue::parse(text, quantity::count)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn containerds_options_may_stand_before_and_after_the_command() {
        for line in [
            "lazycg -a unix:///c.sock -n k8s.io status x",
            "lazycg status -a /c.sock --namespace k8s.io x",
        ] {
            let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
            assert_eq!(cli.containerd.address, "/c.sock", "{line}");
            assert_eq!(cli.containerd.namespace, "k8s.io", "{line}");
        }
    }

    #[test]
    fn resources_exclude_the_flags() {
        let parse = |line: &str| Cli::try_parse_from(line.split_whitespace());
        assert!(parse("lazycg update x --resources -").is_ok());
        assert!(parse("lazycg update x --resources - --memory 64m").is_err());
        assert!(parse("lazycg update x --device-read-bps 8:0:1 --resources f").is_err());
        assert!(parse("lazycg update --memory 64m").is_err());
    }
}
