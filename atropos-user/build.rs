//! Builds the kernel half when the feature `ebpf` is on.

fn main() -> anyhow::Result<()> {
    #[cfg(feature = "ebpf")]
    ebpf::build()?;
    Ok(())
}

#[cfg(feature = "ebpf")]
mod ebpf {
    use aya_build::{Package, Toolchain, build_ebpf};

    /// The toolchain comes from `ATROPOS_EBPF_TOOLCHAIN` (`cargo xtask` sets it), else `nightly`.
    pub(crate) fn build() -> anyhow::Result<()> {
        println!("cargo:rerun-if-env-changed=ATROPOS_EBPF_TOOLCHAIN");
        println!("cargo:rerun-if-changed=../atropos-common/src");
        let name = std::env::var("ATROPOS_EBPF_TOOLCHAIN").unwrap_or_else(|_| "nightly".to_owned());
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../atropos-ebpf");
        build_ebpf(
            [Package { name: "atropos-ebpf", root_dir: root, ..Default::default() }],
            Toolchain::Custom(&name),
        )
    }
}
