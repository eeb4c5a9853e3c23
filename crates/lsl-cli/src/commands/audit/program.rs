//! Programs that wrote a log, each as the first line of its chain says. Spec: audit §1.2, §1.4.

use std::collections::HashMap;
use std::rc::Rc;

use super::context::{Place, bytes_of, text};
use super::filter::Fields;

/// Program that recorded a line, as far as its log says.
#[derive(Debug, Clone, Default)]
pub(super) struct Program {
    /// Its GNU build id.
    pub(super) origin: Vec<u8>,
    pub(super) executable: String,
}

/// Who writes each chain.
#[derive(Debug, Default)]
pub(super) struct Programs(HashMap<String, Rc<Program>>);

impl Programs {
    /// Notes what a line says of its chain, if it begins one.
    pub(super) fn learn(&mut self, place: &Place<'_>, fields: &Fields) {
        if let (true, Some(chain)) = (place.begins_chain(), place.chain.as_deref()) {
            let program = Program {
                origin: bytes_of(&text(fields, "build_id")),
                executable: text(fields, "exe"),
            };
            self.0.insert(chain.to_owned(), Rc::new(program));
        }
    }

    /// Returns who wrote a line.
    pub(super) fn of(&self, place: &Place<'_>) -> Rc<Program> {
        let found = place.chain.as_deref().and_then(|it| self.0.get(it));
        found.cloned().unwrap_or_default()
    }
}
