//! Makes cargo look again when the page or the documents were built: their files are embedded by name.

use std::path::Path;

/// What is embedded, and the place of its sources.
const EMBEDDED: [(&str, &str); 2] = [("page", "web/ui"), ("documents", "web/docs")];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is_release = std::env::var_os("PROFILE").is_some_and(|profile| profile == "release");
    for (what, place) in EMBEDDED {
        let built = Path::new("../..").join(place).join("dist");
        // Debug builds read the files when they run: only the folder has to be known, so that both can be built at once.
        if is_release || !built.exists() {
            println!("cargo:rerun-if-changed={}", built.display());
        }
        if is_release && !built.join("index.html").exists() {
            println!(
                "cargo:warning=the program will not have its {what}, which {place} is for: run `npm ci && npm run build` \
                 there first, or `cargo xtask run`"
            );
        }
    }
}
