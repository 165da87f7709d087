//! The verb `simulate`: what a person types becomes runs, and their results text and files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::controllers::names;
use crate::plan::Plan;
use crate::run::{self, Order};
use crate::study::Study;
use crate::{library, plot, study, table};

/// The name that stands for every controller.
const EVERY: &str = "all";

/// Arguments of `simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// Scenarios: files, names of built-in ones, `paper` (the 16 archetypes), `hard`, `innocent` or `all`
    #[arg(required_unless_present_any = ["list", "study"], value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Controllers, as `--list` lists them, or `all`
    #[arg(
        long,
        value_name = "NAME,..",
        value_delimiter = ',',
        default_value = "none,atropos,oracle",
        value_parser = PossibleValuesParser::new(known()),
        hide_possible_values = true
    )]
    controllers: Vec<String>,
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    first_seed: u64,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: u16,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the results as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Run a study in place of scenarios
    #[arg(long, value_name = "NAME", conflicts_with = "scenarios")]
    study: Option<Study>,
    /// Print what each controller decided and why with the first seed, in place of the table
    #[arg(long, conflicts_with_all = ["json", "svg"])]
    explain: bool,
    /// List scenarios and controllers
    #[arg(long)]
    list: bool,
}

/// What can go wrong with a simulation.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// A scenario has mistakes, or there is none of that name.
    #[error("{0:#}")]
    Scenario(anyhow::Error),
    /// The results cannot be written.
    #[error("{0:#}")]
    Results(anyhow::Error),
}

/// Runs what is asked for, and writes the files that are asked for; returns the text for the screen.
pub fn simulate(args: &SimulateArgs) -> Result<String, SimulateError> {
    let SimulateArgs {
        scenarios,
        controllers,
        seeds,
        first_seed,
        jobs,
        json,
        svg,
        study,
        explain,
        list,
    } = args;
    if *list {
        return library::list().map_err(SimulateError::Scenario);
    }
    let plans = plans(scenarios, *study).map_err(SimulateError::Scenario)?;
    let controllers = chosen(controllers);
    if *explain {
        return Ok(explanation(&plans, &controllers, *first_seed));
    }
    let order = Order {
        plans,
        controllers,
        seeds: *first_seed..first_seed.saturating_add(*seeds),
        job_count: usize::from(*jobs),
    };
    let lines = order.run();
    if let Some(path) = json {
        let json = serde_json::to_string_pretty(&lines).context("the results as JSON");
        json.and_then(|json| write(path, &json))
            .map_err(SimulateError::Results)?;
    }
    if let Some(path) = svg {
        write(path, &plot::plot(&lines)).map_err(SimulateError::Results)?;
    }
    Ok(table::table(&lines, *seeds))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn plans(scenarios: &[String], study: Option<Study>) -> Result<Vec<Arc<Plan>>> {
    let mut plans = study.map_or(Ok(Vec::new()), study::plans)?;
    for name in scenarios {
        plans.extend(load(name)?);
    }
    Ok(plans)
}

fn load(name: &str) -> Result<Vec<Arc<Plan>>> {
    let read = |name: &str, text: &str| {
        let plan = Plan::read(text).with_context(|| format!("scenario {name}"))?;
        Ok(Arc::new(plan))
    };
    let built_in = library::named(name);
    if !built_in.is_empty() {
        return built_in
            .into_iter()
            .map(|(name, text)| read(name, text))
            .collect();
    }
    let text = std::fs::read_to_string(name).with_context(|| {
        format!(
            "`{name}` is no built-in scenario (`atropos simulate --list` lists them), and no file that can be read"
        )
    })?;
    Ok(vec![read(name, &text)?])
}

fn known() -> impl Iterator<Item = &'static str> {
    names::ALL
        .iter()
        .map(|entry| entry.name)
        .chain(std::iter::once(EVERY))
}

/// The controllers in the order in which they were typed; `all` stands for every one.
fn chosen(typed: &[String]) -> Vec<String> {
    if typed.iter().any(|name| name == EVERY) {
        let every = names::ALL.iter().map(|entry| entry.name.to_owned());
        return every.collect();
    }
    typed.to_vec()
}

fn explanation(plans: &[Arc<Plan>], controllers: &[String], seed: u64) -> String {
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
