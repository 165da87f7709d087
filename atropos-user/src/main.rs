//! The binary `atropos`.

fn main() -> std::process::ExitCode {
    atropos::cli::main()
}
