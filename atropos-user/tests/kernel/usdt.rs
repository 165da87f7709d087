//! USDT sites of a fixture with hand-made notes: each operand's value, and the semaphore's way up and down.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests; one talks to the test that runs it"
)]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use atropos::config::expr::{Bindings, Expr, USDT_VARIABLES};
use atropos::elf::Image;
use atropos::elf::operand::{Machine, Start};
use atropos::elf::stapsdt::Usdt;
use atropos::kernel::{Decoded, Kernel, SiteAt, SiteLink};
use atropos_common::op::Op;
use atropos_common::scope::Scope;
use atropos_common::site::{ArgSpec, SiteSpec};

use super::fixture::Fixture;
use super::{Bench, common, spec};

/// Which program the helper of the killed agent attaches to.
const PROGRAM: &str = "ATROPOS_TEST_PROGRAM";

/// The steps of an expression at a site with these operands.
fn compiled(text: &str, operands: &[Result<Start, String>]) -> Result<ArgSpec, String> {
    let names = Bindings::new().with_variables(USDT_VARIABLES);
    Expr::parse(text)
        .unwrap()
        .bind(&names)
        .unwrap()
        .compile_at(operands)
}

/// Attaches every site of a probe of the fixture: session, instance and value are its arguments.
fn attach(kernel: &mut Kernel, program: &Path, name: &str) -> Vec<SiteLink> {
    let bytes = std::fs::read(program).unwrap();
    let image = Image::parse(&bytes).unwrap();
    let symbol = |name: &str| image.data_symbol(name).ok().map(|symbol| symbol.vaddr);
    let sites = image.usdt().unwrap();
    let attach = |(index, site): (usize, &Usdt)| {
        let operands: Vec<_> = site
            .operands(Machine::X86_64)
            .iter()
            .map(|operand| operand.start(site.vaddr, &symbol))
            .collect();
        let spec = SiteSpec {
            session: compiled("arg0", &operands).unwrap(),
            instance: compiled("arg1", &operands).unwrap(),
            value: compiled("arg2", &operands).unwrap(),
            ..spec(Op::Killed, SiteSpec::EMIT)
        };
        let offset = image.usdt_site(site.vaddr).unwrap().file_offset;
        let semaphore = |vaddr| image.layout().file_offset(vaddr).unwrap();
        let attached = kernel.attach(&SiteAt {
            cookie: u16::try_from(index + 1).unwrap(),
            spec,
            file: program,
            offset,
            semaphore_offset: site.semaphore_vaddr.map(semaphore),
        });
        attached.unwrap_or_else(|error| panic!("{error:#}"))
    };
    sites
        .iter()
        .filter(|site| site.name == name)
        .enumerate()
        .map(attach)
        .collect()
}

fn semaphore(fixture: &mut Fixture) -> u32 {
    fixture.ask("semaphore").parse().unwrap()
}

/// Waits until the semaphore has a value: links of a dead process are closed by the kernel in its own time, and a program that a test
/// beside this one starts has a copy of ours for a moment.
fn wait_for_semaphore(fixture: &mut Fixture, wanted: u32) {
    common::wait_for("the semaphore", || {
        (semaphore(fixture) == wanted).then_some(())
    });
}

#[test]
fn every_operand_has_the_value_that_the_program_passed() {
    let mut bench = Bench::with(Fixture::usdt());
    let program = bench.target.program().to_owned();
    bench.links = attach(&mut bench.kernel, &program, "mixed");
    let minus = |value: i64| value.cast_unsigned();
    let cases = [
        ("constant", [minus(-7), 4_000_000_000, 0xff]),
        (
            "registers 18446744073709551613",
            [minus(-3), 0xfffd, minus(-3)],
        ),
        ("registers 257", [1, 257, 257]),
        (
            "registers_whole 18364758544493064720",
            [0xfedc_ba98_7654_3210, 0x10, 0x3210],
        ),
        ("registers_whole 32769", [32769, 1, minus(-32767)]),
        ("memory_signed", [minus(-1), minus(-3), minus(-4)]),
        ("memory_more", [0xfb, minus(-6), 0xffff_fff9]),
        ("rip 58", [minus(-42), 1, 2]),
    ];
    for (command, wanted) in cases {
        bench.target.tell(command);
        let records = bench.records();
        assert_eq!(records.len(), 1, "{command}");
        let record = records[0].record;
        assert_eq!(
            [record.session, record.instance, record.value],
            wanted,
            "{command}"
        );
        assert_eq!(record.flags, 0, "{command}");
    }
    bench.target.tell("memory_rest");
    let record = bench.records()[0].record;
    assert_eq!((record.session, record.instance), (0xfffe, minus(-8)));
    assert_ne!(record.value, 0, "the address of the values");
}

#[test]
fn an_argument_that_is_an_address_can_be_followed() {
    let mut bench = Bench::with(Fixture::usdt());
    let bytes = std::fs::read(bench.target.program()).unwrap();
    let image = Image::parse(&bytes).unwrap();
    let sites = image.usdt().unwrap();
    let site = sites
        .iter()
        .find(|site| site.arguments.ends_with("8@%r9"))
        .unwrap();
    let operands: Vec<_> = site
        .operands(Machine::X86_64)
        .iter()
        .map(|operand| operand.start(site.vaddr, &|_| None))
        .collect();
    let spec = SiteSpec {
        session: compiled("i32(arg2 + 4)", &operands).unwrap(),
        instance: compiled("*(arg2 + 24)", &operands).unwrap(),
        value: compiled("arg2", &operands).unwrap(),
        ..spec(Op::Killed, SiteSpec::EMIT)
    };
    let offset = image.usdt_site(site.vaddr).unwrap().file_offset;
    let program = bench.target.program().to_owned();
    let semaphore = image.layout().file_offset(site.semaphore_vaddr.unwrap());
    let link = bench.kernel.attach(&SiteAt {
        cookie: 1,
        spec,
        file: &program,
        offset,
        semaphore_offset: Some(semaphore.unwrap()),
    });
    bench.links = vec![link.unwrap()];
    bench.target.tell("memory_rest");
    let record = bench.records()[0].record;
    assert_eq!(
        (record.session, record.instance),
        ((-3_i64).cast_unsigned(), (-8_i64).cast_unsigned())
    );
    let refused = compiled("arg0 + 1", &operands).unwrap_err();
    assert!(refused.contains("less than 8 bytes"), "{refused}");
    let refused = compiled("arg3", &operands).unwrap_err();
    assert!(refused.contains("has 3 arguments"), "{refused}");
}

#[test]
fn a_site_without_a_semaphore_is_attached_and_an_index_register_is_refused() {
    let mut bench = Bench::with(Fixture::usdt());
    let program = bench.target.program().to_owned();
    bench.links = attach(&mut bench.kernel, &program, "bare");
    bench.target.tell("bare");
    let record = bench.records()[0].record;
    assert_eq!(
        [record.session, record.instance, record.value],
        [11, 12, 13]
    );
    let bytes = std::fs::read(&program).unwrap();
    let sites = Image::parse(&bytes).unwrap().usdt().unwrap();
    let indexed = sites.iter().find(|site| site.name == "indexed").unwrap();
    let refused = indexed.operands(Machine::X86_64)[0].start(indexed.vaddr, &|_| None);
    assert!(refused.unwrap_err().contains("index register"));
}

#[test]
fn the_semaphore_goes_up_with_the_links_and_down_with_them() {
    let mut bench = Bench::with(Fixture::usdt());
    assert_eq!(semaphore(&mut bench.target), 0);
    let program = bench.target.program().to_owned();
    let mut links = attach(&mut bench.kernel, &program, "mixed");
    let sites = u32::try_from(links.len()).unwrap();
    assert_eq!(semaphore(&mut bench.target), sites, "one for each site");
    links.truncate(1);
    wait_for_semaphore(&mut bench.target, 1);
    drop(links);
    wait_for_semaphore(&mut bench.target, 0);
    bench.target.tell("constant");
    assert!(bench.records().is_empty());
}

#[test]
fn a_process_that_starts_later_finds_the_semaphore_raised() {
    let mut bench = Bench::with(Fixture::usdt());
    let program = bench.target.program().to_owned();
    let links = attach(&mut bench.kernel, &program, "mixed");
    let mut later = Fixture::run(program);
    assert_eq!(semaphore(&mut later) as usize, links.len());
    later.tell("constant");
    assert!(bench.records().is_empty(), "it is not in scope");
    bench.kernel.watch(later.pid(), Scope::ALONE).unwrap();
    later.tell("constant");
    assert_eq!(bench.records().len(), 1);
    drop(links);
    wait_for_semaphore(&mut later, 0);
}

#[test]
fn a_forked_child_passes_usdt_sites_as_well() {
    let mut bench = Bench::with(Fixture::usdt());
    let program = bench.target.program().to_owned();
    bench.links = attach(&mut bench.kernel, &program, "mixed");
    bench
        .kernel
        .follow_forks()
        .unwrap_or_else(|e| panic!("{e:#}"));
    bench.watch(Scope::FOLLOW_FORKS);
    let child: u32 = bench.target.ask("fork").parse().unwrap();
    bench.target.tell("child");
    let record = bench.wait_for(Op::Killed);
    assert_eq!((record.pid, record.instance), (child, 4_000_000_000));
    bench.target.tell("reap");
}

#[test]
fn an_agent_that_is_killed_leaves_the_semaphore_at_zero() {
    let mut fixture = Fixture::usdt();
    let mut agent = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "usdt::attach_until_killed",
            "--ignored",
            "--nocapture",
        ])
        .env(PROGRAM, fixture.program())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(agent.stdout.take().unwrap()).lines();
    let attached = lines
        .map_while(Result::ok)
        .any(|line| line.ends_with("attached"));
    let raised = semaphore(&mut fixture);
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert!(
        attached && raised > 0,
        "the semaphore was {raised} while the agent lived"
    );
    wait_for_semaphore(&mut fixture, 0);
    fixture.tell("constant");
}

#[test]
#[ignore = "run by `an_agent_that_is_killed_leaves_the_semaphore_at_zero`, which kills it"]
fn attach_until_killed() {
    let Some(program) = std::env::var_os(PROGRAM) else {
        return;
    };
    let (mut kernel, _ring, _counters) = Kernel::load().unwrap_or_else(|e| panic!("{e:#}"));
    let _links = attach(&mut kernel, Path::new(&program), "mixed");
    println!("attached");
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn the_marks_of_the_crate_are_passed_while_somebody_watches() {
    use usdt_probes::mark;

    let mut bench = Bench::start();
    bench
        .kernel
        .watch(std::process::id(), Scope::ALONE)
        .unwrap();
    let own = std::env::current_exe().unwrap();
    mark::wait_begin(1, 2, 3, 4);
    bench.links = attach(&mut bench.kernel, &own, "wait_begin");
    mark::wait_begin(5, 6, 7, 8);
    mark::wait_end(5, 6, 7);
    assert_eq!(marks(&mut bench), [(5, 6, 7)]);
    bench.links.clear();
    common::wait_for("nobody to watch", || {
        mark::wait_begin(9, 10, 11, 12);
        marks(&mut bench).is_empty().then_some(())
    });
}

/// What this process has told by its marks since the last look.
fn marks(bench: &mut Bench) -> Vec<(u64, u64, u64)> {
    let records = bench.records();
    let marks = records.iter().filter(|decoded| decoded.op == Op::Killed);
    marks
        .map(|Decoded { record, .. }| {
            assert_eq!(record.pid, std::process::id());
            (record.session, record.instance, record.value)
        })
        .collect()
}
