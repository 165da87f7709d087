//! The expression grammar: what texts mean, and that the kernel half's steps mean the same.

use atropos::config::expr::{Bindings, Expr, NameKind, PROBE_VARIABLES};
use atropos::memory::{Fault, Memory};
use atropos_common::limits::MAX_STEPS;
use atropos_common::site::{ArgSpec, Base};
use proptest::prelude::*;

/// Memory without end whose every byte depends on its address; one address in eight cannot be read.
struct Fake;

impl Memory for Fake {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        if (address >> 4) % 8 == 7 {
            return Err(Fault { address });
        }
        for (at, byte) in (0u64..).zip(into.iter_mut()) {
            *byte = (address.wrapping_add(at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        }
        Ok(())
    }
}

/// Memory in which every read is a mistake of the test.
struct Unread;

impl Memory for Unread {
    fn read(&self, address: u64, _: &mut [u8]) -> Result<(), Fault> {
        panic!("read at {address:#x}")
    }
}

/// Memory with a few bytes at 0x1000.
struct At0x1000(&'static [u8]);

impl Memory for At0x1000 {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        let start = address.checked_sub(0x1000).ok_or(Fault { address })? as usize;
        let end = start.checked_add(into.len()).ok_or(Fault { address })?;
        into.copy_from_slice(self.0.get(start..end).ok_or(Fault { address })?);
        Ok(())
    }
}

/// An expression without mistakes.
fn expr(text: &str) -> Expr {
    Expr::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Its value over variables a = 10, b = 3.
fn value(text: &str, memory: &dyn Memory) -> Result<u64, Fault> {
    let mut names = Bindings::new().with_variables(["a", "b"]);
    names.add_layout("eight", 8);
    names.add_symbol("start", 0x1000);
    expr(text)
        .bind(&names)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .eval(&[10, 3], memory)
}

#[test]
fn operators_bind_as_documented() {
    let cases = [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("a - b - 1", 6),
        ("a & 6 + 1", 2),
        ("a & 2 == 2", 1),
        ("a == 10 && b == 4", 0),
        ("a == 9 || b == 3", 1),
        ("0 && 0 || 1", 1),
        ("1 || 0 && 0", 1),
        ("7 && 2", 1),
        ("a < b", 0),
        ("a <= 10", 1),
        ("a > b", 1),
        ("b >= 4", 0),
        ("a != b", 1),
        ("0x10 + 0XfF", 271),
        ("1_000", 1000),
        ("@eight * b", 24),
        ("symbol(start) + @eight", 0x1008),
        ("symbol( start )", 0x1000),
        ("a+b", 13),
        ("b - -a", 13),
        ("2*-1 + 3", 1),
    ];
    for (text, expected) in cases {
        assert_eq!(value(text, &Unread), Ok(expected), "{text}");
    }
}

#[test]
fn arithmetic_wraps_at_64_bits_and_is_unsigned() {
    assert_eq!(value("b - a", &Unread), Ok(7u64.wrapping_neg()));
    assert_eq!(value("b - a > a", &Unread), Ok(1));
    assert_eq!(value("0xffffffffffffffff + 2", &Unread), Ok(1));
    assert_eq!(value("0xffffffffffffffff * 2", &Unread), Ok(u64::MAX - 1));
}

#[test]
fn loads_read_little_endian_bytes_of_their_width() {
    let memory = At0x1000(&[0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8]);
    let cases = [
        ("u8(symbol(start))", 0xf1),
        ("u16(symbol(start) + 1)", 0xf3f2),
        ("u32(symbol(start))", 0xf4f3_f2f1),
        ("i32(symbol(start))", 0xffff_ffff_f4f3_f2f1),
        ("u64(symbol(start))", 0xf8f7_f6f5_f4f3_f2f1),
        ("*symbol(start)", 0xf8f7_f6f5_f4f3_f2f1),
    ];
    for (text, expected) in cases {
        assert_eq!(value(text, &memory), Ok(expected), "{text}");
    }
    assert_eq!(
        value("u8(symbol(start) + 8)", &memory),
        Err(Fault { address: 0x1008 })
    );
}

#[test]
fn a_floating_point_number_is_cut_to_a_whole_one() {
    let cut = |number: f64| {
        let bytes = Box::leak(Box::new(number.to_le_bytes()));
        value("f64(symbol(start))", &At0x1000(bytes))
    };
    assert_eq!(cut(100_000.0), Ok(100_000));
    assert_eq!(cut(2486.997), Ok(2486));
    assert_eq!(cut(-1.0), Ok(0));
    assert_eq!(cut(f64::NAN), Ok(0));
    assert_eq!(cut(1e300), Ok(u64::MAX));
}

#[test]
fn a_star_loads_in_front_of_a_term_and_multiplies_behind_one() {
    let memory = At0x1000(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0]);
    assert_eq!(value("3 * *symbol(start)", &memory), Ok(6));
    assert_eq!(value("3 **symbol(start)", &memory), Ok(6));
    assert_eq!(value("**(symbol(start) + 8)", &memory), Ok(2));
    assert_eq!(value("*symbol(start) * *symbol(start)", &memory), Ok(4));
    assert_eq!(
        value("*symbol(start) + 5", &memory),
        Ok(7),
        "a load binds tighter than an addition"
    );
}

#[test]
fn the_right_side_is_not_read_when_the_left_side_decides() {
    assert_eq!(value("a == 0 && *a", &Unread), Ok(0));
    assert_eq!(value("a != 0 || *a", &Unread), Ok(1));
    assert_eq!(
        value("0 && *0", &Unread),
        Ok(0),
        "nor when the left side is constant"
    );
}

#[test]
fn an_inner_name_hides_an_outer_one() {
    let names = Bindings::new().with_variables(["ticket", "node", "ticket"]);
    assert_eq!(
        expr("ticket")
            .bind(&names)
            .unwrap()
            .eval(&[1, 2, 3], &Unread),
        Ok(3)
    );
}

#[test]
fn a_name_without_a_value_is_an_error_that_names_it() {
    let error = |text: &str| expr(text).bind(&Bindings::new()).unwrap_err();
    assert_eq!(
        (error("1 + x").kind, error("1 + x").name.offset),
        (NameKind::Variable, 4)
    );
    assert_eq!(error("@x").to_string(), "layout number `x` has no value");
    assert_eq!(error("symbol(x)").to_string(), "symbol `x` has no value");
}

#[test]
fn too_few_variables_are_a_fault_and_not_a_panic() {
    let bound = expr("b")
        .bind(&Bindings::new().with_variables(["a", "b"]))
        .unwrap();
    assert_eq!(bound.eval(&[1], &Unread), Err(Fault { address: 0 }));
}

/// The steps of a probe expression.
fn compile(text: &str) -> Result<ArgSpec, String> {
    let mut names = Bindings::new().with_variables(PROBE_VARIABLES);
    names.add_layout("mdl", 0x160);
    expr(text).bind(&names).unwrap().compile()
}

#[test]
fn a_probe_expression_becomes_the_steps_of_the_kernel_half() {
    let steps = |base: Base, add: &[i32], deref: u8, size: u8| {
        let mut spec = ArgSpec {
            base: base as u8,
            steps: add.len() as u8,
            deref,
            size,
            ..ArgSpec::NONE
        };
        spec.add[..add.len()].copy_from_slice(add);
        Ok(spec)
    };
    assert_eq!(compile("arg0"), steps(Base::Arg0, &[], 0, 8));
    assert_eq!(compile("tid"), steps(Base::Tid, &[], 0, 8));
    assert_eq!(compile("arg0 - @mdl"), steps(Base::Arg0, &[-0x160], 0, 8));
    assert_eq!(compile("*(arg0 + 8)"), steps(Base::Arg0, &[8], 1, 8));
    assert_eq!(
        compile("8 + *(*(stack + 8) - 16)"),
        steps(Base::Stack, &[8, -16, 8], 3, 8)
    );
    assert_eq!(compile("u16(*arg5 + 2)"), steps(Base::Arg5, &[0, 2], 3, 2));
    assert_eq!(
        compile("i32(arg1 + 4)"),
        steps(Base::Arg1, &[4], 1, 4 | ArgSpec::SIGNED)
    );
    assert_eq!(compile("(arg0 + 8) - 8"), steps(Base::Arg0, &[], 0, 8));
    assert_eq!(compile("7"), steps(Base::None, &[7], 0, 8));
    assert_eq!(compile("0"), Ok(ArgSpec::NONE));
}

#[test]
fn what_the_kernel_half_cannot_do_is_refused() {
    let refused = [
        "arg0 * 8",
        "8 - arg0",
        "arg0 + arg1",
        "arg0 & 7",
        "arg0 == 1",
        "arg0 + 0x80000000",
        "*u32(arg0)",
        "u32(arg0) + 1",
        "i32(arg0) + 1",
        "*i32(arg0)",
        "f64(arg0)",
        "*****arg0",
        "****arg0 + 1",
        "arg0 && 1",
    ];
    for text in refused {
        assert!(compile(text).is_err(), "{text}");
    }
    assert!(compile("****arg0").is_ok());
    assert!(compile("arg0 + 0x7fffffff").is_ok());
}

/// What the kernel half does with the steps, as `atropos-ebpf` does it.
fn interpret(spec: &ArgSpec, registers: &[u64], memory: &dyn Memory) -> Option<u64> {
    let mut value = match spec.base {
        0 => 0,
        base => registers[usize::from(base) - 1],
    };
    let size = usize::from(spec.size & !ArgSpec::SIGNED);
    for step in 0..MAX_STEPS.min(spec.steps.into()) {
        value = value.wrapping_add_signed(spec.add[step].into());
        if spec.deref & (1 << step) != 0 {
            let last = step + 1 == usize::from(spec.steps);
            let mut bytes = [0; 8];
            memory
                .read(value, &mut bytes[..if last { size } else { 8 }])
                .ok()?;
            value = u64::from_le_bytes(bytes);
        }
    }
    let shift = 64 - 8 * size;
    let high = value << shift;
    Some(if spec.size & ArgSpec::SIGNED == 0 {
        high >> shift
    } else {
        (high.cast_signed() >> shift).cast_unsigned()
    })
}

/// Texts that are mostly chains of additions and loads from a register.
fn chain() -> impl Strategy<Value = String> {
    let base = prop_oneof![
        prop::sample::select(PROBE_VARIABLES.to_vec()).prop_map(str::to_owned),
        Just("64".to_owned())
    ];
    base.prop_recursive(6, 8, 1, |inner| {
        prop_oneof![
            (inner.clone(), 0..5000u64).prop_map(|(inner, add)| format!("({inner} + {add})")),
            (inner.clone(), 0..5000u64).prop_map(|(inner, add)| format!("({add} + {inner})")),
            (inner.clone(), 0..5000u64).prop_map(|(inner, take)| format!("({inner} - {take})")),
            inner.clone().prop_map(|inner| format!("*{inner}")),
            (
                prop::sample::select(vec!["u8", "u16", "u32", "u64", "i32", "f64"]),
                inner
            )
                .prop_map(|(load, inner)| format!("{load}({inner})")),
        ]
    })
}

/// A random expression as text with its value, worked out beside the grammar. Fully parenthesised or by precedence.
#[derive(Clone, Debug)]
enum Tree {
    Number(u64),
    Load(Box<Tree>),
    Binary(&'static str, Box<Tree>, Box<Tree>),
}

impl Tree {
    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Load(inner) => format!("u16({})", inner.text()),
            Self::Binary(op, left, right) => format!("({} {op} {})", left.text(), right.text()),
        }
    }

    fn value(&self) -> Option<u64> {
        let (op, left, right) = match self {
            Self::Number(number) => return Some(*number),
            Self::Load(inner) => {
                let mut bytes = [0; 2];
                Fake.read(inner.value()?, &mut bytes).ok()?;
                return Some(u16::from_le_bytes(bytes).into());
            }
            Self::Binary(op, left, right) => (*op, left.value()?, right),
        };
        match op {
            "&&" if left == 0 => return Some(0),
            "||" if left != 0 => return Some(1),
            _ => {}
        }
        let right = right.value()?;
        Some(match op {
            "+" => left.wrapping_add(right),
            "-" => left.wrapping_sub(right),
            "*" => left.wrapping_mul(right),
            "&" => left & right,
            "==" => (left == right).into(),
            "<" => (left < right).into(),
            _ => (right != 0).into(),
        })
    }
}

fn tree() -> impl Strategy<Value = Tree> {
    (0..200u64)
        .prop_map(Tree::Number)
        .prop_recursive(5, 24, 2, |inner| {
            let op = prop::sample::select(vec!["+", "-", "*", "&", "==", "<", "&&", "||"]);
            prop_oneof![
                inner.clone().prop_map(|inner| Tree::Load(Box::new(inner))),
                (op, inner.clone(), inner).prop_map(|(op, left, right)| Tree::Binary(
                    op,
                    Box::new(left),
                    Box::new(right)
                )),
            ]
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_kernel_half_s_steps_give_the_same_value(text in chain(), registers in prop::array::uniform10(0..0x7fff_ffff_ffffu64)) {
        let bound = expr(&text).bind(&Bindings::new().with_variables(PROBE_VARIABLES)).unwrap();
        if let Ok(spec) = bound.compile() {
            prop_assert_eq!(interpret(&spec, &registers, &Fake), bound.eval(&registers, &Fake).ok(), "{} as {:?}", text, spec);
        }
    }

    #[test]
    fn an_expression_has_the_value_of_its_tree(tree in tree()) {
        let text = tree.text();
        prop_assume!(text.len() < 1000);
        let bound = expr(&text).bind(&Bindings::new()).unwrap();
        prop_assert_eq!(bound.eval(&[], &Fake).ok(), tree.value(), "{}", text);
    }
}
