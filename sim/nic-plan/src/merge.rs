//! Laying one table over another: what a case or a transport changes in a plan.

use toml::{Table, Value};

/// Puts every key of `over` into `base`; tables in both are merged, anything else is replaced.
pub(crate) fn merge(base: &mut Table, over: &Table) {
    for (key, value) in over {
        match (base.get_mut(key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            _ => drop(base.insert(key.clone(), value.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_merged_and_everything_else_is_replaced() {
        let read = |text: &str| text.parse::<Table>().expect("TOML");
        let mut base = read("a = 1\nlist = [1, 2]\n[t]\nx = 1\n[t.u]\ny = 2\n");
        merge(&mut base, &read("list = [3]\n[t]\nz = 4\n[t.u]\ny = 5\n[new]\nw = 6\n"));
        assert_eq!(base, read("a = 1\nlist = [3]\n[t]\nx = 1\nz = 4\n[t.u]\ny = 5\n[new]\nw = 6\n"));
    }
}
