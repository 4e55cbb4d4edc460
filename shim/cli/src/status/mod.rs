//! `lazycg status`: where containers are, and why. The records say where they should be; the
//! kernel is asked where they are.

mod facts;
mod report;
mod text;

use std::path::Path;

use containerd_shim_lazycg::record::{Record, Records};
use lazy_cgroups::container::Host;
use serde::Serialize;

use self::{facts::Facts, report::ContainerStatus};
use crate::{
    Outcome, PROC,
    args::{Containerd, StatusArgs},
    error::{Error, Result},
};

/// Shows the container that `args` name, or all.
pub(crate) fn status(containerd: &Containerd, args: &StatusArgs) -> Result<Outcome> {
    let records = Records::of(&args.records_root, &containerd.address);
    let host = Host::discover(Path::new(PROC))?;
    let namespace = &containerd.namespace;
    let (text, well) = match &args.id {
        Some(id) => {
            let recorded = match records.read(namespace, id)? {
                Some(record) => look(&host, &records, &record)?,
                None => None,
            };
            let status = recorded.ok_or_else(|| Error::NoRecord {
                namespace: namespace.clone(),
                record: records.path(namespace, id),
            })?;
            let text = if args.json {
                json(&status)?
            } else {
                text::one(&status)
            };
            (text, status.is_well())
        }
        None => {
            let mut statuses = Vec::new();
            for record in records.list(namespace)? {
                statuses.extend(look(&host, &records, &record)?);
            }
            let text = if args.json {
                json(&statuses)?
            } else {
                text::list(&statuses)
            };
            (text, statuses.iter().all(ContainerStatus::is_well))
        }
    };
    Ok(Outcome { text, well })
}

/// Looks at one container; none if it was deleted meanwhile. One that was changed meanwhile
/// is looked at again, since what its record said of the moment before is not a problem.
fn look(host: &Host, records: &Records, record: &Record) -> Result<Option<ContainerStatus>> {
    let status =
        |record: &Record| report::assemble(record, &host.topology, Facts::read(host, record));
    let first = status(record);
    let now = records.read(&record.namespace, &record.id)?;
    Ok(now.map(|now| if now == *record { first } else { status(&now) }))
}

fn json(value: &impl Serialize) -> Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(value)?))
}
