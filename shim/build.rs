//! Links the shim's binary at a fixed address.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A shim is started three times for each container, and one stays: a third less of its start
    // and a part of its private memory are relocations that a position-independent executable
    // needs. Libraries, stack and heap are placed at random as before.
    println!("cargo::rustc-link-arg-bin=containerd-shim-lazycg-v1=-no-pie");
}
