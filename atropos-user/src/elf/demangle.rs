//! C++ names: the demangled path of a symbol (`MDL_context::acquire_lock`), and cheap questions to the mangled name that
//! save demangling tens of thousands of symbols.

use cpp_demangle::{DemangleOptions, Symbol};

/// Identifiers that mangled names abbreviate, so that their letters may be absent from a name that has them.
const ABBREVIATED: [&str; 12] = [
    "std",
    "string",
    "allocator",
    "basic_string",
    "istream",
    "ostream",
    "iostream",
    "operator",
    "anonymous",
    "namespace",
    "char_traits",
    "char",
];

/// Whether this is the mangled name of a C++ (or Rust, legacy scheme) symbol.
pub(super) fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z")
}

/// The demangled name without parameters, return type and qualifiers, or `None` for other names. Clones that the compiler
/// split off (`foo.cold`, `foo.part.0`) are not the function and have no path.
pub(super) fn path(mangled: &str) -> Option<String> {
    if !is_mangled(mangled) || mangled.contains('.') {
        return None;
    }
    let symbol = Symbol::new(mangled).ok()?;
    let text = symbol
        .demangle_with_options(&DemangleOptions::new().no_params().no_return_type())
        .ok()?;
    let mut path = text.as_str();
    for qualifier in [" &&", " &", " const", " volatile"] {
        path = path.strip_suffix(qualifier).unwrap_or(path);
    }
    Some(without_rust_hash(path).to_owned())
}

/// The whole demangled name, parameters included; other names as they are.
pub(super) fn full(name: &str) -> String {
    Symbol::new(name)
        .ok()
        .filter(|_| is_mangled(name))
        .and_then(|symbol| symbol.demangle().ok())
        .unwrap_or_else(|| name.to_owned())
}

fn without_rust_hash(path: &str) -> &str {
    match path.rsplit_once("::h") {
        Some((rest, hash))
            if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
        {
            rest
        }
        _ => path,
    }
}

/// Pieces that the mangled name of anything with this path contains, whatever its parameters are. Template arguments are
/// left out (`foo<int>` has an `i`, not an `int`), so are names that the mangling abbreviates.
pub(super) fn needed_pieces(path: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let outside = move |c: char| {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > 0 || !(c.is_ascii_alphanumeric() || c == '_')
    };
    path.split(outside)
        .filter(|piece| !piece.is_empty() && !ABBREVIATED.contains(piece))
        .collect()
}

/// `Outer::inner` of a mangled name by its length-prefixed identifiers alone: wrong for operators and templates, right for
/// most, and fast enough for every symbol of a server. For suggestions only.
pub(super) fn rough_path(mangled: &str) -> Option<String> {
    let mut rest = mangled.strip_prefix("_Z")?;
    let nested = rest.strip_prefix('N');
    rest = nested.unwrap_or(rest).trim_start_matches(['K', 'V', 'L']);
    let mut parts: Vec<&str> = Vec::new();
    loop {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let Ok(length) = rest[..digits].parse::<usize>() else {
            break;
        };
        let Some(part) = rest[digits..].get(..length) else {
            break;
        };
        rest = &rest[digits + length..];
        parts.push(part);
        if nested.is_none() {
            break;
        }
    }
    match rest.as_bytes() {
        [b'C', b'1'..=b'5', ..] if nested.is_some() => parts.push(parts.last().copied()?),
        [b'D', b'0'..=b'5', ..] if nested.is_some() => {
            return Some(format!("{}::~{}", parts.join("::"), parts.last()?));
        }
        _ => {}
    }
    (!parts.is_empty()).then(|| parts.join("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_no_parameters_return_type_or_qualifiers() {
        for (mangled, wanted) in [
            (
                "_ZN11MDL_context12acquire_lockEP11MDL_requestd",
                "MDL_context::acquire_lock",
            ),
            (
                "_Z16dispatch_command19enum_server_commandP3THDPcjb",
                "dispatch_command",
            ),
            ("_ZNK3THD9is_killedEv", "THD::is_killed"),
            ("_ZN3THDD1Ev", "THD::~THD"),
            ("_ZN3THDC2Ey", "THD::THD"),
            ("_ZN3app4main17h0123456789abcdefE", "app::main"),
        ] {
            assert_eq!(path(mangled).as_deref(), Some(wanted), "{mangled}");
        }
        assert_eq!(path("main"), None);
        assert_eq!(path("_ZN3THD9is_killedEv.cold"), None);
    }

    #[test]
    fn every_needed_piece_is_in_the_mangled_name() {
        for mangled in [
            "_ZN11MDL_context12acquire_lockEP11MDL_requestd",
            "_ZNSt6vectorIiSaIiEE9push_backERKi",
            "_ZN12_GLOBAL__N_16hiddenEv",
            "_ZN3THDD1Ev",
            "_ZNSsC1EPKc",
            "_ZN1AltERKS_",
        ] {
            let path = path(mangled).unwrap();
            for piece in needed_pieces(&path) {
                assert!(mangled.contains(piece), "{piece} of {path} in {mangled}");
            }
        }
        assert_eq!(
            needed_pieces("MDL_context::acquire_*"),
            ["MDL_context", "acquire_"]
        );
    }

    #[test]
    fn rough_paths_agree_with_the_demangler_on_plain_names() {
        for mangled in [
            "_ZN11MDL_context12acquire_lockEP11MDL_requestd",
            "_Z16dispatch_command19enum_server_commandP3THDPcjb",
            "_ZNK3THD9is_killedEv",
            "_ZN3THDD1Ev",
            "_ZN3THDC2Ey",
        ] {
            assert_eq!(rough_path(mangled), path(mangled), "{mangled}");
        }
        for odd in [
            "_Z",
            "_ZN",
            "_Z99x",
            "_ZN999999999999999999999999a",
            "_ZD1",
            "_ZNC1",
            "main",
        ] {
            rough_path(odd);
        }
    }
}
