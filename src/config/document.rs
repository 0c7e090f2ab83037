//! Reads a document of any format that serde speaks as a JSON tree, within bounds.
//!
//! Why not the format's own value type: it stops at the first key that stands twice, and it lets a few lines of aliases
//! grow to gigabytes. Here every duplicate is named, and the tree is charged for before it is kept.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, EnumAccess, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::tree::join;

/// Most bytes a document may come to once its aliases are followed: its values, and for each key its path.
const MAX_TREE_BYTES: usize = 4 << 20;

/// A document as read.
#[derive(Debug)]
pub(super) struct Document {
    /// What it says. What JSON lacks has become text (`.nan`), which no setting takes for a number.
    pub(super) tree: Value,
    /// The paths of keys that stand more than once; the last value is in the tree.
    pub(super) duplicates: Vec<String>,
}

impl Document {
    /// Reads all that `deserializer` gives.
    pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes_left = Cell::new(MAX_TREE_BYTES);
        let duplicates = RefCell::new(Vec::new());
        let top = Node { path: String::new(), bytes_left: &bytes_left, duplicates: &duplicates };
        let tree = top.deserialize(deserializer)?;
        Ok(Self { tree, duplicates: duplicates.into_inner() })
    }
}

/// Reads the node at a path.
struct Node<'a> {
    path: String,
    bytes_left: &'a Cell<usize>,
    duplicates: &'a RefCell<Vec<String>>,
}

impl Node<'_> {
    fn child(&self, path: String) -> Node<'_> {
        Node { path, bytes_left: self.bytes_left, duplicates: self.duplicates }
    }

    /// Charges for `bytes` and the node that holds them.
    fn charge<E: Error>(&self, bytes: usize) -> Result<(), E> {
        let left = self.bytes_left.get().checked_sub(bytes + 1).ok_or_else(|| {
            E::custom(format_args!("more than {MAX_TREE_BYTES} bytes once aliases are followed"))
        })?;
        self.bytes_left.set(left);
        Ok(())
    }

    fn keep<E: Error>(&self, value: impl Into<Value>) -> Result<Value, E> {
        self.charge(0)?;
        Ok(value.into())
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a section, a list or a value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.keep(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.keep(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.keep(value)
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Value, E> {
        self.visit_f64(value as f64)
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<Value, E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        match Number::from_f64(value) {
            Some(number) => self.keep(Value::Number(number)),
            None if value.is_nan() => self.keep(".nan"),
            None if value > 0.0 => self.keep(".inf"),
            None => self.keep("-.inf"),
        }
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.charge(value.len())?;
        Ok(value.into())
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        self.keep(Value::Null)
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.keep(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.charge(0)?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.child(String::new()))? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        self.charge(0)?;
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let path = join(&self.path, &key);
            self.charge(path.len())?;
            if map.contains_key(&key) {
                self.duplicates.borrow_mut().push(path.clone());
            }
            let value = entries.next_value_seed(self.child(path))?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, _: A) -> Result<Value, A::Error> {
        Err(A::Error::custom("a tag, which no setting takes"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Result<Document, serde_json::Error> {
        Document::read(&mut serde_json::Deserializer::from_str(text))
    }

    #[test]
    fn every_duplicate_is_named_by_its_path() {
        let document =
            read(r#"{"a": {"b": 1, "b": 2.5, "c": [null, true]}, "a": {"b": -1, "b": -2}}"#).unwrap();
        assert_eq!(document.duplicates, ["a.b", "a", "a.b"]);
        assert_eq!(document.tree, json!({"a": {"b": -2}}));
    }

    #[test]
    fn a_tree_is_charged_for_its_values_and_paths() {
        let text = "x".repeat(MAX_TREE_BYTES);
        let error = read(&format!("{text:?}")).unwrap_err().to_string();
        assert!(error.starts_with("more than 4194304 bytes"), "{error}");
        let text = &text[1..];
        assert_eq!(read(&format!("{text:?}")).unwrap().tree, text);
        assert!(read(&format!("[{text:?}]")).is_err());
    }
}
