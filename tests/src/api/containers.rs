//! Containers: what a task is made from.

use containerd_client::services::v1::{
    Container, CreateContainerRequest, DeleteContainerRequest, GetContainerRequest,
    container::Runtime as ContainerRuntime, containers_client::ContainersClient,
};
use containerd_shim_protos::{protobuf::Message, shim::oci};
use prost_types::Any;
use serde_json::Value;

use super::{Api, Result};
use crate::builder::{OciRuntime, Runtime};

/// The Any type under which clients send config.json.
const SPEC_TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/Spec";

/// A container to be made.
#[derive(Clone, Debug)]
pub struct NewContainer {
    /// Its id.
    pub id: String,
    /// Its containerd runtime.
    pub runtime: Runtime,
    /// What the runtime's shim gets: see [`options`].
    pub options: Option<Any>,
    /// config.json.
    pub spec: Value,
}

/// The options that make a shim use `oci_runtime`: each shim has its own kind.
pub fn options(runtime: Runtime, oci_runtime: OciRuntime) -> Any {
    let binary = oci_runtime.binary();
    let binary = binary.to_str().expect("a path in UTF-8");
    match runtime {
        Runtime::Stock => runc_options(|options| options.binary_name = binary.to_string()),
        Runtime::Lazycg => toml_options(&format!("runtime = {binary:?}\n")),
    }
}

/// A `containerd.runc.v1.Options` with what `edit` sets: the stock shim's own, which lazycg
/// takes too.
pub fn runc_options(edit: impl FnOnce(&mut oci::Options)) -> Any {
    let mut options = oci::Options::new();
    edit(&mut options);
    Any {
        type_url: "containerd.runc.v1.Options".to_string(),
        value: options.write_to_bytes().expect("encode options"),
    }
}

/// A `runtimeoptions.v1.Options` that holds this TOML.
fn toml_options(toml: &str) -> Any {
    // Its only field that is needed: config_body, number 3, bytes.
    let mut value = vec![3 << 3 | 2];
    let mut length = toml.len();
    while length >= 0x80 {
        value.push(0x80 | (length & 0x7f) as u8);
        length >>= 7;
    }
    value.push(length as u8);
    value.extend_from_slice(toml.as_bytes());
    Any {
        type_url: "runtimeoptions.v1.Options".to_string(),
        value,
    }
}

impl Api {
    fn containers(&self) -> ContainersClient<containerd_client::tonic::transport::Channel> {
        ContainersClient::new(self.channel.clone())
    }

    /// Makes a container; no process runs yet.
    pub fn create_container(&self, new: &NewContainer) -> Result<()> {
        let container = Container {
            id: new.id.clone(),
            runtime: Some(ContainerRuntime {
                name: new.runtime.name().to_string(),
                options: new.options.clone(),
            }),
            spec: Some(Any {
                type_url: SPEC_TYPE.to_string(),
                value: new.spec.to_string().into_bytes(),
            }),
            ..Container::default()
        };
        let request = self.request(CreateContainerRequest {
            container: Some(container),
        });
        self.call(self.containers().create(request)).map(drop)
    }

    /// Looks for a container.
    pub fn get_container(&self, id: &str) -> Result<()> {
        let request = self.request(GetContainerRequest { id: id.to_string() });
        self.call(self.containers().get(request)).map(drop)
    }

    /// Removes a container. Its task goes first.
    pub fn delete_container(&self, id: &str) -> Result<()> {
        let request = self.request(DeleteContainerRequest { id: id.to_string() });
        self.call(self.containers().delete(request)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_toml_has_a_length_of_two_bytes() {
        let any = toml_options(&"x".repeat(300));
        assert_eq!(any.value[..3], [26, 0xac, 2]);
        assert_eq!(any.value.len(), 303);
        assert_eq!(toml_options("ab").value, [26, 2, b'a', b'b']);
    }
}
