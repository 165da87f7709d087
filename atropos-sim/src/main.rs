//! Runs the simulator's command line.

fn main() -> std::process::ExitCode {
    atropos_sim::cli::main_from(std::env::args_os())
}
