use atropos_common::site::{ArgSpec, Base};
use proptest::prelude::*;

use super::{Location, Machine, Operand, Register, Start, parse};

fn one(text: &str, machine: Machine) -> Operand {
    let mut found = parse(text, machine);
    assert_eq!(found.len(), 1, "{text}: {found:?}");
    found.remove(0)
}

fn start(text: &str) -> Result<Start, String> {
    one(text, Machine::X86_64).start(0x1000, &|name| (name == "counter").then_some(0x5000))
}

fn begins(base: Base, add: i64, load: bool, size: u8) -> Start {
    Start {
        base,
        add,
        load,
        size,
    }
}

const S: u8 = ArgSpec::SIGNED;

#[test]
fn operands_of_x86_become_what_the_kernel_half_begins_with() {
    let cases = [
        ("8@%rax", begins(Base::Ret, 0, false, 8)),
        ("-4@%r14d", begins(Base::R14, 0, false, 4 | S)),
        ("1@%dil", begins(Base::Arg0, 0, false, 1)),
        ("1@%al", begins(Base::Ret, 0, false, 1)),
        ("-2@%r8w", begins(Base::Arg4, 0, false, 2 | S)),
        ("8@%ebx", begins(Base::Rbx, 0, false, 4)),
        ("%rbp", begins(Base::Rbp, 0, false, 8)),
        ("-4@$-1", begins(Base::None, -1, false, 8)),
        ("4@$-1", begins(Base::None, -1, false, 4)),
        ("4@$4000000000", begins(Base::None, -294_967_296, false, 4)),
        ("1@$0x1ff", begins(Base::None, 0xff, false, 8)),
        ("-1@$255", begins(Base::None, -1, false, 8)),
        ("8@-144(%rbp)", begins(Base::Rbp, -144, true, 8)),
        ("4@(%r12)", begins(Base::R12, 0, true, 4)),
        ("-8@0x10(%rsp)", begins(Base::Stack, 16, true, 8 | S)),
        ("-4@counter(%rip)", begins(Base::Site, 0x4000, true, 4 | S)),
        ("4@40+counter(%rip)", begins(Base::Site, 0x4028, true, 4)),
        ("4@counter-8(%rip)", begins(Base::Site, 0x3ff8, true, 4)),
        ("4@4096", begins(Base::None, 4096, true, 4)),
    ];
    for (text, wanted) in cases {
        assert_eq!(start(text), Ok(wanted), "{text}");
    }
}

#[test]
fn what_the_kernel_half_cannot_evaluate_is_refused_with_a_reason() {
    let cases = [
        ("8@(%rax,%rbx,8)", "an index register"),
        ("8@(,%rbx,8)", "an index register"),
        ("8@%xmm0", "no general one"),
        ("8f@%xmm0", "floating-point"),
        ("1@%ah", "second byte"),
        ("8@%fs:40", "segment"),
        ("4@missing(%rip)", "does not export `missing`"),
        ("4@counter@GOTPCREL(%rip)", "@GOTPCREL"),
        ("4@counter", "absolute address"),
        ("8@12(%rip)", "not named"),
        ("16@%rax", "`16` bytes"),
        ("8@(%eax)", "less than 8 bytes"),
        ("8@(%rax,%rbx,3)", "scale `3`"),
        ("8@(%rax", "not closed"),
        ("8@$counter", "no number"),
        ("8@", "nothing"),
        ("8@a+b(%rip)", "no displacement"),
        ("8@(%rax,%rbx,8,9)", "too many parts"),
    ];
    for (text, wanted) in cases {
        let reason = start(text).expect_err(text);
        assert!(reason.contains(wanted), "{text}: {reason}");
    }
}

#[test]
fn operands_of_aarch64_are_read() {
    let x = |number| Register {
        number,
        bytes: 8,
        high: false,
    };
    let memory = |base, displacement, index, scale| Location::Memory {
        displacement,
        symbol: None,
        base: Some(x(base)),
        index,
        scale,
    };
    let text =
        "8@x0 -4@w19 8@[x1] 4@[sp, 24] -8@[x29, -16] 8@[x0, x1, lsl 3] 4@5 -4@-1 8@xzr 8@[sp,#8]";
    let found: Vec<_> = parse(text, Machine::Aarch64)
        .into_iter()
        .map(|operand| operand.location)
        .collect();
    let w19 = Register { bytes: 4, ..x(19) };
    let wanted = [
        Location::Register(x(0)),
        Location::Register(w19),
        memory(1, 0, None, 1),
        memory(31, 24, None, 1),
        memory(29, -16, None, 1),
        memory(0, 0, Some(x(1)), 8),
        Location::Constant(5),
        Location::Constant(-1),
        Location::Register(x(32)),
        memory(31, 8, None, 1),
    ];
    assert_eq!(found, wanted.map(Ok));
    for bad in [
        "8@x31",
        "8@q0",
        "8@[x0",
        "8@[x0, 8, lsl 3]",
        "8@[x0, x1, lsl 4]",
        "8@x+1",
        "8@é",
    ] {
        assert!(one(bad, Machine::Aarch64).location.is_err(), "{bad}");
    }
}

/// What the text of a place should be read as.
fn written() -> impl Strategy<Value = (String, Location)> {
    let general = prop::sample::select(vec![
        ("rax", 0_u8),
        ("rbx", 3),
        ("rsp", 4),
        ("rdi", 7),
        ("r8", 8),
        ("r15", 15),
    ]);
    let register = |number| Register {
        number,
        bytes: 8,
        high: false,
    };
    let index = prop::option::of((
        prop::sample::select(vec![("rcx", 1_u8), ("r9", 9)]),
        prop::sample::select(vec![1_u8, 2, 4, 8]),
    ));
    prop_oneof![
        any::<i64>().prop_map(|value| (format!("${value}"), Location::Constant(value))),
        general.clone().prop_map(move |(name, number)| (
            format!("%{name}"),
            Location::Register(register(number))
        )),
        (any::<i32>(), general, index).prop_map(move |(displacement, (base, number), index)| {
            let tail = index.map_or(String::new(), |((name, _), scale)| {
                format!(",%{name},{scale}")
            });
            let location = Location::Memory {
                displacement: displacement.into(),
                symbol: None,
                base: Some(register(number)),
                index: index.map(|((_, number), _)| register(number)),
                scale: index.map_or(1, |(_, scale)| scale),
            };
            (format!("{displacement}(%{base}{tail})"), location)
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(
        places in prop::collection::vec((written(), prop::sample::select(vec![1_u8, 2, 4, 8]), any::<bool>()), 0..12),
    ) {
        let texts: Vec<_> = places
            .iter()
            .map(|((text, _), bytes, signed)| format!("{}{bytes}@{text}", if *signed { "-" } else { "" }))
            .collect();
        let found = parse(&texts.join(" "), Machine::X86_64);
        prop_assert_eq!(found.len(), places.len());
        for (found, ((_, location), bytes, signed)) in found.iter().zip(&places) {
            prop_assert_eq!((found.bytes, found.signed), (*bytes, *signed));
            prop_assert_eq!(found.location.as_ref(), Ok(location));
        }
    }

    #[test]
    fn any_text_is_read_without_a_panic(text in "([-0-9@$%(),x\\[\\] +a-z:#_.]|\\PC){0,60}") {
        for machine in [Machine::X86_64, Machine::Aarch64] {
            for operand in parse(&text, machine) {
                let _ = operand.start(u64::MAX, &|_| Some(0));
            }
        }
    }
}
