//! `lazycg plan`: where a container would be, and why. Reads the bundle, the options and the
//! host's hierarchies; writes nothing.

use std::{fs, path::Path, process};

use containerd_shim_lazycg::{options::Options, spec::Spec};
use lazy_cgroups::container::{Container, Host, Wanted};
use serde::Serialize;

use crate::{
    PROC,
    args::PlanArgs,
    error::{Error, Result},
    place::{Place, places},
    table::table,
};

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    /// The container's id.
    id: String,
    /// Its place in each hierarchy.
    hierarchies: Vec<Place>,
}

/// Plans the bundle that `args` name.
pub(crate) fn plan(args: &PlanArgs) -> Result<String> {
    // Without a link's target or `.` there is no name to take.
    let path = fs::canonicalize(&args.bundle).map_err(Error::io("find", &args.bundle))?;
    let (config, bundle) = if path.is_dir() {
        (path.join("config.json"), path.as_path())
    } else {
        (path.clone(), path.parent().unwrap_or(Path::new("/")))
    };
    let id = args.id.clone().unwrap_or_else(|| {
        let name = bundle.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    });
    let json = fs::read_to_string(&config).map_err(Error::io("read", &config))?;
    let spec = Spec::parse(&json, bundle, &id)?;
    let options = Options::load_files(&args.config, args.runtime_options.as_deref())?;
    let wanted = Wanted {
        policy: options.policy_for(&spec.annotations)?,
        cgroups_path: spec.cgroups_path,
        resources: spec.resources,
        traits: spec.traits,
    };
    let host = Host::discover(Path::new(PROC))?;
    let caller = args
        .relative_to
        .map_or_else(|| i32::try_from(process::id()), Ok)
        .unwrap_or_default();
    let caller = host.membership(caller)?;
    let container = Container::plan(host, wanted, &caller)?;
    let report = Report {
        id,
        hierarchies: places(container.state(), &container.host().topology),
    };
    Ok(if args.json {
        format!("{}\n", serde_json::to_string_pretty(&report)?)
    } else {
        render(&report)
    })
}

fn render(report: &Report) -> String {
    let lines: Vec<[String; 4]> = report
        .hierarchies
        .iter()
        .map(|place| {
            [
                place.hierarchy.clone(),
                place.place.name().to_string(),
                place.reasons_text(),
                place.path.display().to_string(),
            ]
        })
        .collect();
    format!(
        "{}  (plan)\n{}",
        report.id,
        table(["HIERARCHY", "PLACE", "REASON", "PATH"], &lines)
    )
}
