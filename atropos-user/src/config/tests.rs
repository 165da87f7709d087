use super::*;

#[test]
fn every_embedded_preset_is_without_mistakes() {
    assert!(!embedded().is_empty());
    for (name, _) in embedded() {
        if let Err(problems) = load(name) {
            panic!("{problems}");
        }
    }
}
