//! Where an alternative of a probe lies in a file: the site of a function or of an address, or all sites of a USDT probe.

use crate::config::{Alternative, Location, nearest};
use crate::elf::operand::{Machine, Start};
use crate::elf::stapsdt::Usdt;
use crate::elf::{Image, Site, SymbolPattern};
use crate::target::{MappedFile, Process};

/// What was found.
pub(super) struct Found {
    /// Symbol or USDT probe.
    pub(super) symbol: String,
    /// Its sites. Never empty.
    pub(super) sites: Vec<FoundSite>,
}

/// One site.
pub(super) struct FoundSite {
    /// Where, and at what cost.
    pub(super) site: Site,
    /// File offset of its semaphore.
    pub(super) semaphore_offset: Option<u64>,
    /// Its arguments, if it is one of a USDT probe.
    pub(super) operands: Option<Vec<Result<Start, String>>>,
}

impl Found {
    /// A site whose arguments are in the registers of a call.
    fn plain(symbol: String, site: Site) -> Self {
        let site = FoundSite {
            site,
            semaphore_offset: None,
            operands: None,
        };
        Self {
            symbol,
            sites: vec![site],
        }
    }
}

/// The alternative in a library that the process maps.
pub(super) fn in_library<'a>(
    alternative: &Alternative,
    library: &str,
    process: &Process,
    files: &'a [MappedFile],
) -> Result<(Found, &'a MappedFile), String> {
    let file = files
        .iter()
        .find(|file| {
            file.path_in_target
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(library))
        })
        .ok_or_else(|| format!("the process maps no library {library}"))?;
    let parts = process
        .file_parts(file)
        .map_err(|error| error.to_string())?;
    let image = Image::parse(&parts).map_err(|error| error.to_string())?;
    in_image(alternative, &image, file).map(|found| (found, file))
}

/// The alternative in one file.
pub(super) fn in_image(
    alternative: &Alternative,
    image: &Image<'_>,
    file: &MappedFile,
) -> Result<Found, String> {
    match &alternative.location.value {
        Location::Symbol { pattern, offset } => {
            let symbol = image
                .find(&SymbolPattern::new(pattern))
                .map_err(|error| error.to_string())?;
            let site = image
                .site(symbol.vaddr + offset)
                .map_err(|error| format!("{}: {error}", symbol.name))?;
            Ok(Found::plain(symbol.name, site))
        }
        Location::Address { address, build_id } => {
            let actual = file
                .build_id
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default();
            if !actual.starts_with(build_id.as_str()) {
                return Err(format!(
                    "the address {address:#x} is of build {build_id}, this is build {actual}"
                ));
            }
            let site = image
                .site(*address)
                .map_err(|error| format!("{address:#x}: {error}"))?;
            Ok(Found::plain(format!("{address:#x}"), site))
        }
        Location::Usdt { pattern } => usdt(pattern, image)
            .map_err(|reason| format!("{reason} in {}", file.path_in_target.display())),
    }
}

/// Every site of the USDT probes that fit a pattern.
fn usdt(pattern: &str, image: &Image<'_>) -> Result<Found, String> {
    let all = image.usdt().map_err(|error| error.to_string())?;
    let wanted: Vec<&Usdt> = all.iter().filter(|usdt| usdt.fits(pattern)).collect();
    if wanted.is_empty() {
        return Err(missing(pattern, &all));
    }
    let mut names: Vec<String> = wanted.iter().map(|usdt| usdt.full_name()).collect();
    names.sort_unstable();
    names.dedup();
    let mut sites = Vec::new();
    for usdt in wanted {
        // The linker drops functions that nobody calls, but not their notes, which then point nowhere.
        if image.layout().file_offset(usdt.vaddr).is_some() && usdt.vaddr != 0 {
            sites.push(found_site(usdt, image)?);
        }
    }
    if sites.is_empty() {
        return Err(format!(
            "no code at the notes of USDT probe `{pattern}`: the linker dropped it"
        ));
    }
    Ok(Found {
        symbol: names.join(", "),
        sites,
    })
}

/// One site of a USDT probe.
fn found_site(usdt: &Usdt, image: &Image<'_>) -> Result<FoundSite, String> {
    let site = image
        .usdt_site(usdt.vaddr)
        .map_err(|error| format!("{}: {error}", usdt.full_name()))?;
    let semaphore_offset = match usdt.semaphore_vaddr {
        None => None,
        Some(vaddr) => Some(image.layout().file_offset(vaddr).ok_or_else(|| {
            format!(
                "{}: the semaphore at {vaddr:#x} is not kept",
                usdt.full_name()
            )
        })?),
    };
    let symbol = |name: &str| image.data_symbol(name).ok().map(|symbol| symbol.vaddr);
    let operands = usdt
        .operands(Machine::X86_64)
        .iter()
        .map(|operand| {
            operand
                .start(usdt.vaddr, &symbol)
                .map_err(|reason| format!("`{operand}`, {reason}"))
        })
        .collect();
    Ok(FoundSite {
        site,
        semaphore_offset,
        operands: Some(operands),
    })
}

/// Why no note fits.
fn missing(pattern: &str, all: &[Usdt]) -> String {
    let names: Vec<String> = all.iter().map(Usdt::full_name).collect();
    let closest = nearest(pattern, names.iter().map(String::as_str))
        .map(|name| format!("; closest: `{name}`"))
        .unwrap_or_default();
    format!("no USDT note `{pattern}` ({} others{closest})", names.len())
}
