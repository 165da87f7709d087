//! Puts the symbols of the sample server into its dynamic symbol table, where they stay when the binary is stripped.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-rdynamic");
}
