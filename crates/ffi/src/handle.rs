//! What C holds in place of objects: numbers with a kind and a generation, in the clothes of pointers.
//!
//! A handle is looked up on every call. One that was closed, is of another kind, or never came from here gives an error, because
//! its generation or kind does not match: nothing is ever read through it. Looking up shares the object, so that closing a handle
//! on one thread takes nothing from a call under way on another.
//!
//! 64 bits: 8 of the kind, 32 of the generation, 24 of the place. 32 bits: 4, 14 and 14. Those of the kind make the number an
//! address that no program owns on 64-bit systems.

use crate::failure::{Code, Failure, Result};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const PLACE_BITS: u32 = if usize::BITS == 64 { 24 } else { 14 };
const GENERATION_BITS: u32 = if usize::BITS == 64 { 32 } else { 14 };

/// What a handle stands for. The numbers are part of handles and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "of what a build leaves out there are none")]
pub(crate) enum Kind {
    Index = 0x8,
    Model = 0x9,
    Session = 0xA,
    Request = 0xB,
    Graph = 0xC,
    Hearer = 0xD,
    Stream = 0xE,
    Embedder = 0xF,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Index => "index",
            Kind::Model => "model",
            Kind::Session => "session",
            Kind::Request => "request",
            Kind::Graph => "graph",
            Kind::Hearer => "model that hears",
            Kind::Stream => "live transcription",
            Kind::Embedder => "model that makes vectors",
        }
    }

    fn bits(self) -> usize {
        let tag = if usize::BITS == 64 {
            0x50 | self as usize
        } else {
            self as usize
        };
        tag << (PLACE_BITS + GENERATION_BITS)
    }
}

/// All objects of one kind that C holds.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    kind: Kind,
    slots: Mutex<Slots<T>>,
}

#[derive(Debug)]
struct Slots<T> {
    all: Vec<Slot<T>>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Slot<T> {
    /// Of the object that is here, or of the next. Never 0, so that no handle is null.
    generation: usize,
    object: Option<Arc<T>>,
}

impl<T> Handles<T> {
    /// A table of its own; one for each kind.
    pub(crate) const fn new(kind: Kind) -> Handles<T> {
        Handles {
            kind,
            slots: Mutex::new(Slots {
                all: Vec::new(),
                free: Vec::new(),
            }),
        }
    }

    fn slots(&self) -> MutexGuard<'_, Slots<T>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle for `object`.
    ///
    /// # Errors
    /// Where there are as many as a handle can tell apart.
    pub(crate) fn insert(&self, object: Arc<T>) -> Result<*mut c_void> {
        let mut slots = self.slots();
        let place = match slots.free.pop() {
            Some(place) => place,
            None if slots.all.len() >> PLACE_BITS == 0 => {
                slots.all.push(Slot {
                    generation: 1,
                    object: None,
                });
                slots.all.len() - 1
            }
            None => {
                let what = format!(
                    "there are {} handles of the kind {} already",
                    slots.all.len(),
                    self.kind.name()
                );
                return Err(Failure::new(Code::System, what));
            }
        };
        let slot = &mut slots.all[place];
        slot.object = Some(object);
        let number = self.kind.bits() | slot.generation << PLACE_BITS | place;
        Ok(std::ptr::without_provenance_mut(number))
    }

    /// The object of a handle.
    ///
    /// # Errors
    /// [`Code::Handle`] as the module's documentation says.
    pub(crate) fn get(&self, handle: *mut c_void) -> Result<Arc<T>> {
        let mut slots = self.slots();
        self.slot(&mut slots, handle)?
            .object
            .clone()
            .ok_or_else(|| self.wrong(handle))
    }

    /// The object of a handle, which is none from now on.
    ///
    /// # Errors
    /// As [`Handles::get`].
    pub(crate) fn remove(&self, handle: *mut c_void) -> Result<Arc<T>> {
        let mut slots = self.slots();
        let slot = self.slot(&mut slots, handle)?;
        let object = slot.object.take().ok_or_else(|| self.wrong(handle))?;
        // A place whose generations are used up is not used again.
        if slot.generation + 1 < 1 << GENERATION_BITS {
            slot.generation += 1;
            slots.free.push(handle.addr() & ((1 << PLACE_BITS) - 1));
        }
        Ok(object)
    }

    /// Every object that C holds now.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.slots().all.iter().filter_map(|slot| slot.object.clone()).collect()
    }

    fn slot<'s>(&self, slots: &'s mut Slots<T>, handle: *mut c_void) -> Result<&'s mut Slot<T>> {
        let number = handle.addr();
        let generation = number >> PLACE_BITS & ((1 << GENERATION_BITS) - 1);
        let is_ours = number >> (PLACE_BITS + GENERATION_BITS) == self.kind.bits() >> (PLACE_BITS + GENERATION_BITS);
        let slot = slots.all.get_mut(number & ((1 << PLACE_BITS) - 1));
        slot.filter(|slot| is_ours && slot.generation == generation)
            .ok_or_else(|| self.wrong(handle))
    }

    fn wrong(&self, handle: *mut c_void) -> Failure {
        let kind = self.kind.name();
        let what = if handle.is_null() {
            format!("expected a {kind}, found NULL")
        } else {
            format!("expected a {kind} that is open, found a handle that was closed or is of something else")
        };
        Failure::new(Code::Handle, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_of_closed_other_and_no_objects_are_refused() {
        let (models, sessions) = (Handles::new(Kind::Model), Handles::new(Kind::Session));
        let a = models.insert(Arc::new(1)).unwrap();
        let b = models.insert(Arc::new(2)).unwrap();
        let s = sessions.insert(Arc::new(3)).unwrap();
        assert!(!a.is_null() && a != b);
        assert_eq!((*models.get(a).unwrap(), *models.get(b).unwrap()), (1, 2));
        assert_eq!(*models.remove(a).unwrap(), 1);
        let again = models.insert(Arc::new(4)).unwrap();
        assert_ne!(again, a, "a place gets a new generation");
        assert_eq!(*models.get(again).unwrap(), 4);
        let at = |number: usize| std::ptr::without_provenance_mut::<c_void>(number);
        let on_stack = 5;
        let wrong = [
            at(0),
            a,
            s,
            at(1),
            at(usize::MAX),
            at(b.addr() ^ 1 << (PLACE_BITS - 1)),
            at(b.addr() ^ 1 << PLACE_BITS),
            std::ptr::from_ref(&on_stack).cast_mut().cast(),
        ];
        for handle in wrong {
            assert_eq!(models.get(handle).unwrap_err().code, Code::Handle, "{handle:?}");
            assert_eq!(models.remove(handle).unwrap_err().code, Code::Handle, "{handle:?}");
        }
        assert_eq!(models.all().len(), 2);
    }
}
