//! Faults in mapped files: a page that its file no longer gives raises SIGBUS in whichever thread reads it.
//!
//! The handler looks whether the address lies in a mapping of ours. If so it puts zeros in place of the whole mapping, so
//! that the read goes on, and marks the mapping as lost; whoever computes with it asks before a result is given out. Every
//! other fault goes to the handler that was there before. libwayland and systemd treat shared memory in the same way.
//!
//! Only what may be done in a signal handler is done in it: loads and stores of atomics, `mmap`, `sigaction`, `raise`. So
//! mappings are in a list that only grows and whose places are used again, and not behind a lock.
//! [ADR 0012](../../../../docs/adr/0012-lost-mappings.md) has the reasons.

use cactus_base::knobs;
use libc::{c_int, c_void, siginfo_t};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// A place in the list of mappings. It is never freed: the handler may be looking at it.
#[derive(Debug)]
struct Slot {
    taken: AtomicBool,
    /// First address; 0 where the slot is empty. It is written last and emptied first.
    start: AtomicUsize,
    /// Bytes, of whole pages.
    len: AtomicUsize,
    /// 1 more than the offset of the first read that failed; 0 where none did.
    lost: AtomicUsize,
    next: *const Slot,
}

// SAFETY: `next` is written before a slot is in the list and never again; everything else is atomic.
unsafe impl Sync for Slot {}

static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
/// The action before ours; written before ours is installed.
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());
static WANTED: AtomicBool = AtomicBool::new(true);
static INSTALL: Once = Once::new();

/// Whether this process may get a handler of SIGBUS, which is installed when the first file is mapped; `true` where nothing
/// is said, and the knob `CACTUS_SIGBUS` is not off. To be called before that. Without the handler a mapped file that is cut
/// short, or whose disk fails, ends the process, as such a file does by default.
pub fn handle_faults(wanted: bool) {
    WANTED.store(wanted, Ordering::SeqCst);
}

/// A mapping that the handler knows. To be dropped before the memory is unmapped.
#[derive(Debug)]
pub(super) struct Guard(&'static Slot);

impl Guard {
    /// Guards `len` bytes of whole pages from `start` on, which must be a mapping of the caller's alone until the guard is
    /// dropped.
    pub(super) fn new(start: usize, len: usize) -> Guard {
        INSTALL.call_once(|| {
            let on = knobs::SIGBUS.switch().ok().flatten().unwrap_or(true);
            if on && WANTED.load(Ordering::SeqCst) {
                install();
            }
        });
        let slot = free_slot();
        slot.lost.store(0, Ordering::Relaxed);
        slot.len.store(len, Ordering::Relaxed);
        slot.start.store(start, Ordering::SeqCst);
        Guard(slot)
    }

    /// Offset of the first read that failed, where one did. The whole mapping is zeros since.
    pub(super) fn lost_at(&self) -> Option<usize> {
        self.0.lost.load(Ordering::SeqCst).checked_sub(1)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.start.store(0, Ordering::SeqCst);
        self.0.taken.store(false, Ordering::SeqCst);
    }
}

/// The slots, the newest first.
fn slots() -> impl Iterator<Item = &'static Slot> {
    let mut at = SLOTS.load(Ordering::Acquire).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: slots in the list are leaked boxes, so a pointer that is not null is valid for good.
        let slot = unsafe { at.as_ref() }?;
        at = slot.next;
        Some(slot)
    })
}

/// A slot that is nobody else's: an empty one, or a new one at the head of the list.
fn free_slot() -> &'static Slot {
    let take = |s: &&Slot| {
        s.taken
            .compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    };
    if let Some(slot) = slots().find(take) {
        return slot;
    }
    let slot = Box::leak(Box::new(Slot {
        taken: AtomicBool::new(true),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        lost: AtomicUsize::new(0),
        next: ptr::null(),
    }));
    let mut head = SLOTS.load(Ordering::Acquire);
    loop {
        slot.next = head;
        match SLOTS.compare_exchange_weak(head, slot, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return slot,
            Err(now) => head = now,
        }
    }
}

fn install() {
    let mut old = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action, sigaction only writes the current one to `old`; all zeros is a valid action.
    let old = unsafe {
        if libc::sigaction(libc::SIGBUS, ptr::null(), old.as_mut_ptr()) != 0 {
            return;
        }
        old.assume_init()
    };
    PREVIOUS.store(Box::into_raw(Box::new(old)), Ordering::SeqCst);
    // SAFETY: all zeros is a valid action, with an empty mask after sigemptyset; the handler has the signature that
    // SA_SIGINFO asks for and does only what a handler may.
    unsafe {
        let mut new = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_fault;
        new.sa_sigaction = handler as usize;
        // On the alternative stack where a thread has one: hosts such as Go ask for it.
        new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigemptyset(&raw mut new.sa_mask);
        libc::sigaction(libc::SIGBUS, &raw const new, ptr::null_mut());
    }
}

extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: with SA_SIGINFO the system passes a valid `info`.
    let (address, sent) = unsafe { ((*info).si_addr().addr(), was_sent((*info).si_code)) };
    if sent || !replace(address) {
        pass_on(signal, info, context, sent);
    }
}

/// Whether another process or thread sent the signal, so that it has no address. On Linux such codes are not positive; on
/// Apple systems and the BSDs they begin at this number, which is `SI_USER` less 1.
fn was_sent(code: c_int) -> bool {
    if cfg!(any(target_os = "linux", target_os = "android")) {
        code <= 0
    } else {
        code > 0x10000
    }
}

/// Puts zeros in place of the mapping of ours that has `address`. `false` where there is none.
fn replace(address: usize) -> bool {
    for slot in slots() {
        let start = slot.start.load(Ordering::SeqCst);
        let len = slot.len.load(Ordering::SeqCst);
        // Read twice: a slot that is given to another mapping meanwhile has a start and a length that do not belong
        // together. The one that has `address` cannot change, because its mapping is being read.
        if start == 0 || address < start || address - start >= len || slot.start.load(Ordering::SeqCst) != start {
            continue;
        }
        // Of several threads that fault, the first one's place counts.
        let _ = slot
            .lost
            .compare_exchange(0, address - start + 1, Ordering::SeqCst, Ordering::SeqCst);
        // SAFETY: the range is a mapping of ours of whole pages, alive because it is being read; readable zeros take its
        // place, so every slice of it stays valid.
        let zeros = unsafe {
            libc::mmap(
                ptr::with_exposed_provenance_mut(start),
                len,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        return zeros != libc::MAP_FAILED;
    }
    false
}

/// Does what would have been done without us.
fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void, sent: bool) {
    // SAFETY: the pointer is of a leaked box, written before this handler was installed.
    let previous = unsafe { PREVIOUS.load(Ordering::SeqCst).as_ref() };
    let (action, flags) = previous.map_or((libc::SIG_DFL, 0), |p| (p.sa_sigaction, p.sa_flags));
    match action {
        libc::SIG_IGN if sent => {}
        // A fault cannot be ignored: the instruction would fault for ever.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: sets the default action; the signal is blocked until this handler returns, and then ends the process,
            // by the instruction that faults again, or by `raise` where it was sent.
            unsafe {
                let mut default = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &raw const default, ptr::null_mut());
                if sent {
                    libc::raise(signal);
                }
            }
        }
        handler if flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: whoever installed it with SA_SIGINFO promised this signature.
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                unsafe { std::mem::transmute::<usize, _>(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: whoever installed it without SA_SIGINFO promised this signature.
            let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute::<usize, _>(handler) };
            handler(signal);
        }
    }
}
