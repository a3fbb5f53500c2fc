//! Makes cargo look again when the page was built: its files are embedded by name.

fn main() {
    println!("cargo:rerun-if-changed=../../web/ui/dist");
}
