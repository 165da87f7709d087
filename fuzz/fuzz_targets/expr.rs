//! Any text as an expression: an answer, never a panic; what can be read can be bound and evaluated.
#![no_main]

use atropos::config::expr::{Bindings, Expr, NameKind};
use atropos::memory::{Fault, Memory};
use libfuzzer_sys::fuzz_target;

/// Memory in which every byte is a part of its address.
struct Echo;

impl Memory for Echo {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        into.copy_from_slice(&address.to_le_bytes()[..into.len()]);
        Ok(())
    }
}

fuzz_target!(|text: &str| {
    let expr = match Expr::parse(text) {
        Ok(expr) => expr,
        Err(error) => {
            assert!(text.get(error.offset..error.offset + error.len).is_some());
            return;
        }
    };
    let texts = |kind| expr.names(kind).into_iter().map(|name| name.text.clone());
    let mut names = Bindings::new().with_variables(texts(NameKind::Variable));
    texts(NameKind::Layout).for_each(|name| names.add_layout(&name, 8));
    texts(NameKind::Symbol).for_each(|name| names.add_symbol(&name, 0x5555_0000));
    let bound = expr.bind(&names).expect("every name has a value");
    let variables = vec![1; names.variables().len()];
    bound.eval(&variables, &Echo).expect("this memory can be read everywhere");
    let _ = bound.compile();
});
