//! Hollow methods, in a build with the feature `faults` only: a method of the task service that
//! answers an empty success and does nothing. `hack/hollow.sh` makes each of them hollow in its
//! turn and demands that a test fails.

use std::{collections::HashMap, env};

use async_trait::async_trait;
use containerd_shim_protos::ttrpc::{
    self, Request, Response,
    r#async::{MethodHandler, Service, TtrpcContext},
};

/// The environment variable that names the method. A name that no method has changes nothing.
pub const VARIABLE: &str = "LAZYCG_HOLLOW";

struct Hollow;

#[async_trait]
impl MethodHandler for Hollow {
    /// An empty payload is every message with all its fields at their defaults.
    async fn handler(&self, _: TtrpcContext, _: Request) -> ttrpc::Result<Response> {
        Ok(Response::default())
    }
}

/// Makes the method that [`VARIABLE`] names hollow in each of these services.
pub(crate) fn hollow_out(mut services: HashMap<String, Service>) -> HashMap<String, Service> {
    let name = env::var(VARIABLE).unwrap_or_default();
    for service in services.values_mut() {
        if let Some(method) = service.methods.get_mut(&name) {
            log::warn!("{name} answers an empty success and does nothing");
            *method = Box::new(Hollow);
        }
    }
    services
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use containerd_shim_protos::shim_async::{Task, create_task};

    struct Nothing;

    impl Task for Nothing {}

    #[test]
    fn each_method_has_its_test_in_the_script() {
        let methods: BTreeSet<String> = create_task(Arc::new(Nothing))
            .into_values()
            .flat_map(|service| service.methods.into_keys())
            .collect();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../hack/hollow.sh");
        let script = std::fs::read_to_string(script).unwrap();
        let table = script
            .lines()
            .skip_while(|line| !line.ends_with("<< 'TABLE'"))
            .skip(1)
            .take_while(|line| *line != "TABLE");
        let rows: BTreeSet<String> = table
            .filter_map(|row| row.split_whitespace().next())
            .map(str::to_owned)
            .collect();
        assert_eq!(rows, methods);
    }
}
