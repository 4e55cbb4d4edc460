//! Values of a JSON, each with its path for messages.

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// A place in the JSON and what is there; null counts as nothing.
pub(super) struct Field<'a> {
    path: String,
    pub(super) value: Option<&'a Value>,
}

impl<'a> Field<'a> {
    /// The whole JSON.
    pub(super) fn root(value: &'a Value) -> Field<'a> {
        Field {
            path: String::new(),
            value: Some(value),
        }
    }

    pub(super) fn signed(&self) -> Result<Option<i64>> {
        self.read("a whole number of 64 bits", Value::as_i64)
    }

    /// A whole number that is not negative and fits `T`.
    pub(super) fn unsigned<T: TryFrom<u64>>(&self) -> Result<Option<T>> {
        let bits = 8 * size_of::<T>();
        self.read(
            &format!("a whole number of {bits} bits that is not negative"),
            |value| value.as_u64().and_then(|number| number.try_into().ok()),
        )
    }

    pub(super) fn boolean(&self) -> Result<Option<bool>> {
        self.read("true or false", Value::as_bool)
    }

    pub(super) fn text(&self) -> Result<Option<String>> {
        self.read("a string", |value| value.as_str().map(str::to_string))
    }

    /// An absent object is one without keys.
    pub(super) fn object(&self) -> Result<Object<'a>> {
        Ok(Object {
            path: self.path.clone(),
            map: self.read("an object", Value::as_object)?,
        })
    }

    /// The objects of a list; an absent list has none.
    pub(super) fn items(&self) -> Result<Vec<Object<'a>>> {
        let items = self.read("a list", Value::as_array)?;
        items
            .into_iter()
            .flatten()
            .enumerate()
            .map(|(index, value)| {
                Field {
                    path: format!("{}[{index}]", self.path),
                    value: Some(value),
                }
                .object()
            })
            .collect()
    }

    /// What `read` finds, which must be there.
    pub(super) fn required<T>(&self, read: impl Fn(&Self) -> Result<Option<T>>) -> Result<T> {
        read(self)?.ok_or_else(|| self.invalid("is missing".to_string()))
    }

    fn read<T>(
        &self,
        expected: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        match self.value {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match convert(value) {
                Some(converted) => Ok(Some(converted)),
                None => Err(self.invalid(format!("{} is not {expected}", shown(value)))),
            },
        }
    }

    fn invalid(&self, reason: String) -> Error {
        Error::InvalidResource {
            field: match self.path.as_str() {
                "" => "resources".to_string(),
                path => path.to_string(),
            },
            reason,
        }
    }
}

/// An object, maybe absent, and where it is.
pub(super) struct Object<'a> {
    path: String,
    map: Option<&'a Map<String, Value>>,
}

impl<'a> Object<'a> {
    pub(super) fn field(&self, key: &str) -> Field<'a> {
        Field {
            path: match self.path.as_str() {
                "" => key.to_string(),
                path => format!("{path}.{key}"),
            },
            value: self.map.and_then(|map| map.get(key)),
        }
    }

    pub(super) fn object(&self, key: &str) -> Result<Object<'a>> {
        self.field(key).object()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a String, Field<'a>)> {
        self.map
            .into_iter()
            .flatten()
            .map(|(key, _)| (key, self.field(key)))
    }
}

/// A value for a message: a scalar as it is, the others by their kind.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_string(),
        Value::Object(_) => "an object".to_string(),
        scalar => scalar.to_string(),
    }
}
