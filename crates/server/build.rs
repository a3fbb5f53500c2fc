//! Makes cargo look again when the page was built: its files are embedded by name.

use std::path::Path;

const PAGE: &str = "../../web/ui/dist";

fn main() {
    println!("cargo:rerun-if-changed={PAGE}");
    // Debug builds read the page when they run.
    let is_release = std::env::var_os("PROFILE").is_some_and(|profile| profile == "release");
    if is_release && !Path::new(PAGE).join("index.html").exists() {
        println!(
            "cargo:warning=the page is not built, so this program will have none: run `npm ci && npm run build` in web/ui \
             first, or `cargo xtask run`"
        );
    }
}
