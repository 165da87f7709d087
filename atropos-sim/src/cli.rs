//! The command line of the simulator.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;

use crate::controllers::names;
use crate::plan::Plan;
use crate::run::{self, Order};
use crate::{library, plot, study, table};

/// Runs controllers on simulated incidents and compares what the innocents got.
#[derive(Debug, Parser)]
#[command(name = "atropos-sim", max_term_width = 110)]
struct Args {
    /// Scenarios: files, names of built-in ones, `paper` (the 16 archetypes), `hard`, `innocent` or `all`
    #[arg(required_unless_present_any = ["list", "study"])]
    scenarios: Vec<String>,
    /// Controllers, or `all`
    #[arg(long, value_delimiter = ',', default_value = "none,atropos,oracle")]
    controllers: Vec<String>,
    /// How many seeds
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// Threads
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the results as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Run a study instead of scenarios: `progress` (wrong progress), `culprits` (many at once) or `retries`
    #[arg(long, value_name = "NAME", conflicts_with = "scenarios")]
    study: Option<String>,
    /// Print what each controller decided and why with the first seed, instead of the table
    #[arg(long)]
    explain: bool,
    /// List scenarios and controllers
    #[arg(long)]
    list: bool,
}

/// Runs the command line `args`, the program's name first.
#[expect(
    clippy::print_stderr,
    reason = "the one place where an error becomes text"
)]
pub fn main_from(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = Args::parse_from(args);
    match simulate(&args) {
        Ok(text) => {
            // Whoever reads may go away.
            let _ = io::Write::write_all(&mut io::stdout(), text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("atropos-sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn simulate(args: &Args) -> Result<String> {
    if args.list {
        return library::list();
    }
    let mut plans = match &args.study {
        Some(name) => study::plans(name)?,
        None => Vec::new(),
    };
    for name in &args.scenarios {
        plans.extend(load(name)?);
    }
    let controllers = controllers(&args.controllers)?;
    ensure!(args.seeds > 0, "--seeds must be at least 1");
    if args.explain {
        return Ok(explain(&plans, &controllers, args.first_seed));
    }
    let order = Order {
        plans,
        controllers,
        seeds: args.first_seed..args.first_seed + args.seeds,
        job_count: args.jobs,
    };
    let lines = order.run();
    if let Some(path) = &args.json {
        let json = serde_json::to_string_pretty(&lines)?;
        write(path, &json)?;
    }
    if let Some(path) = &args.svg {
        write(path, &plot::plot(&lines))?;
    }
    Ok(table::table(&lines, args.seeds))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("could not write {}", path.display()))
}

fn load(name: &str) -> Result<Vec<Arc<Plan>>> {
    let built_in = library::named(name);
    if !built_in.is_empty() {
        return built_in
            .into_iter()
            .map(|(name, text)| {
                Ok(Arc::new(
                    Plan::read(text).with_context(|| format!("scenario {name}"))?,
                ))
            })
            .collect();
    }
    let text = std::fs::read_to_string(name).with_context(|| {
        format!("`{name}` is no built-in scenario (see --list), and no file that can be read")
    })?;
    Ok(vec![Arc::new(
        Plan::read(&text).with_context(|| format!("scenario {name}"))?,
    )])
}

fn controllers(typed: &[String]) -> Result<Vec<String>> {
    if typed == ["all"] {
        return Ok(names::ALL
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect());
    }
    for name in typed {
        if !names::ALL.iter().any(|(known, _)| known == name) {
            bail!("no controller is called `{name}` (see --list)");
        }
    }
    Ok(typed.to_vec())
}

fn explain(plans: &[Arc<Plan>], controllers: &[String], seed: u64) -> String {
    let mut text = String::new();
    for plan in plans {
        for controller in controllers {
            let (_, said, happening_count) = run::one(plan, controller, seed);
            let name = &plan.scenario.name;
            let _ = writeln!(text, "{name} under {controller}: {happening_count} events");
            for line in said {
                let _ = writeln!(text, "  {line}");
            }
        }
    }
    text
}
