//! Prints the name of the suites' image and the path of its archive, for scripts that run
//! `ctr images import`.

use lazycg_tests::image;

fn main() {
    println!("{} {}", image::NAME, image::image().archive.display());
}
