//! The only unsafe code of the crate: loads a model's shared object and calls the functions of its shim.
//!
//! Everything crosses as whole arrays of 64-bit words whose lengths were compared with the object's own when it was
//! loaded, so no pointer into the model ever reaches the rest of the crate.
#![allow(unsafe_code)]

use crate::error::BuildError;
use libloading::Library;
use std::{
    ffi::{c_char, c_int, c_void, CString},
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError},
};

/// A model in memory: its functions, and the library that must stay loaded while they are used.
pub(crate) struct Object {
    new: unsafe extern "C" fn(c_int, c_int) -> *mut c_void,
    delete: unsafe extern "C" fn(*mut c_void),
    add_clock: unsafe extern "C" fn(*mut c_void, u64) -> c_int,
    settle: unsafe extern "C" fn(*mut c_void, *const u64, *mut u64) -> u32,
    edge: unsafe extern "C" fn(*mut c_void, *const u64, *mut u64, u64, u64, u64, c_int) -> u32,
    take_text: unsafe extern "C" fn(*mut c_void, c_int, *mut c_char, usize) -> usize,
    open_trace: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
    close_trace: unsafe extern "C" fn(*mut c_void),
    write_coverage: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
    input_words: usize,
    output_words: usize,
    _library: Library,
}

/// What became of a request that only some variants of a model can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    Done,
    NotInThisVariant,
    CannotWrite,
}

impl Served {
    fn of(code: c_int) -> Self {
        match code {
            1 => Served::Done,
            0 => Served::NotInThisVariant,
            _ => Served::CannotWrite,
        }
    }
}

impl Object {
    /// Loads a shared object built from [`crate::shim::source`] for these numbers of words.
    pub(crate) fn load(path: &Path, input_words: usize, output_words: usize) -> Result<Arc<Self>, BuildError> {
        let load_error = |source| BuildError::Load { path: path.into(), source };
        // SAFETY: the initialisers of the object are those of the C++ standard library and of the Verilator runtime,
        // which have no preconditions; the object was built by this crate and lies in the cache it manages.
        let library = unsafe { Library::new(path) }.map_err(load_error)?;
        macro_rules! symbol {
            ($name:literal, $signature:ty) => {
                // SAFETY: the shim, whose version is part of the cache key, defines the symbol with this signature.
                *unsafe { library.get::<$signature>(concat!($name, "\0").as_bytes()) }.map_err(load_error)?
            };
        }
        let layout = symbol!("cocotb_rs_layout", unsafe extern "C" fn(*mut u64));
        let mut words = [0_u64; 2];
        // SAFETY: `layout` writes exactly two words.
        unsafe { layout(words.as_mut_ptr()) };
        if words != [input_words as u64, output_words as u64] {
            let reason = format!("the object has {words:?} words, its port list {:?}", [input_words, output_words]);
            return Err(BuildError::DamagedCache { path: path.into(), reason });
        }
        Ok(Arc::new(Object {
            new: symbol!("cocotb_rs_new", unsafe extern "C" fn(c_int, c_int) -> *mut c_void),
            delete: symbol!("cocotb_rs_delete", unsafe extern "C" fn(*mut c_void)),
            add_clock: symbol!("cocotb_rs_add_clock", unsafe extern "C" fn(*mut c_void, u64) -> c_int),
            settle: symbol!("cocotb_rs_settle", unsafe extern "C" fn(*mut c_void, *const u64, *mut u64) -> u32),
            edge: symbol!(
                "cocotb_rs_edge",
                unsafe extern "C" fn(*mut c_void, *const u64, *mut u64, u64, u64, u64, c_int) -> u32
            ),
            take_text: symbol!(
                "cocotb_rs_take_text",
                unsafe extern "C" fn(*mut c_void, c_int, *mut c_char, usize) -> usize
            ),
            open_trace: symbol!("cocotb_rs_open_trace", unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int),
            close_trace: symbol!("cocotb_rs_close_trace", unsafe extern "C" fn(*mut c_void)),
            write_coverage: symbol!(
                "cocotb_rs_write_coverage",
                unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int
            ),
            input_words,
            output_words,
            _library: library,
        }))
    }
}

/// One instance of a model. Not `Send`: the shim keeps the instance in use per thread.
pub(crate) struct Instance {
    object: Arc<Object>,
    handle: NonNull<c_void>,
}

impl Instance {
    /// Constructs an instance and settles it once with these inputs, so that its initial blocks have run.
    ///
    /// `reset_kind` is Verilator's: 0 all zero, 1 all one, 2 random by `seed` (not 0). Gives the status of the settling
    /// beside the instance, or `None` if the model's constructor failed.
    pub(crate) fn new(
        object: &Arc<Object>,
        reset_kind: i32,
        seed: i32,
        inputs: &[u64],
        outputs: &mut [u64],
    ) -> Option<(Self, u32)> {
        // Seeding an instance reseeds every thread's generator of the same object, so two constructions at a time
        // would disturb each other's random initial values.
        static CONSTRUCTION: Mutex<()> = Mutex::new(());
        let _one_at_a_time = CONSTRUCTION.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: takes plain integers; gives null or an instance that only `delete` ends.
        let handle = NonNull::new(unsafe { (object.new)(reset_kind, seed) })?;
        let mut instance = Instance { object: object.clone(), handle };
        let status = instance.settle(inputs, outputs);
        Some((instance, status))
    }

    /// Makes the one-bit input at that word a clock, with the next free index. False if there is no such input.
    pub(crate) fn add_clock(&mut self, input_word: usize) -> bool {
        // SAFETY: the handle is live, and the shim checks the word.
        unsafe { (self.object.add_clock)(self.handle.as_ptr(), input_word as u64) == 0 }
    }

    fn check_lengths(&self, inputs: &[u64], outputs: &[u64]) {
        assert_eq!((inputs.len(), outputs.len()), (self.object.input_words, self.object.output_words));
    }

    /// Loads inputs, evaluates, stores outputs.
    pub(crate) fn settle(&mut self, inputs: &[u64], outputs: &mut [u64]) -> u32 {
        self.check_lengths(inputs, outputs);
        // SAFETY: the handle is live; the shim reads and writes exactly the lengths checked above; `&mut self` keeps
        // the instance, and `&mut outputs` the target, from other users.
        unsafe { (self.object.settle)(self.handle.as_ptr(), inputs.as_ptr(), outputs.as_mut_ptr()) }
    }

    /// Settles as [`Instance::settle`] does, then raises the clocks in the mask and evaluates again.
    pub(crate) fn edge(
        &mut self,
        inputs: &[u64],
        outputs: &mut [u64],
        rising_mask: u64,
        settle_ps: u64,
        edge_ps: u64,
        dump: bool,
    ) -> u32 {
        self.check_lengths(inputs, outputs);
        // SAFETY: as in `settle`.
        unsafe {
            (self.object.edge)(
                self.handle.as_ptr(),
                inputs.as_ptr(),
                outputs.as_mut_ptr(),
                rising_mask,
                settle_ps,
                edge_ps,
                c_int::from(dump),
            )
        }
    }

    /// What the design printed since the last call.
    pub(crate) fn take_output(&mut self) -> String {
        self.take_text(0)
    }

    /// Why the design stopped, finished or failed.
    pub(crate) fn take_reason(&mut self) -> String {
        self.take_text(1)
    }

    fn take_text(&mut self, what: c_int) -> String {
        let mut text = Vec::new();
        let mut buffer = [0_u8; 4096];
        loop {
            // SAFETY: the handle is live, and the shim writes at most the capacity given.
            let length = unsafe {
                (self.object.take_text)(self.handle.as_ptr(), what, buffer.as_mut_ptr().cast(), buffer.len())
            };
            text.extend_from_slice(&buffer[..length]);
            if length < buffer.len() {
                return String::from_utf8_lossy(&text).into_owned();
            }
        }
    }

    /// Opens an FST file; edges with `dump` go there.
    pub(crate) fn open_trace(&mut self, path: &Path) -> Served {
        let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return Served::CannotWrite };
        // SAFETY: the handle is live and the string ends in NUL; the shim does not keep the pointer.
        Served::of(unsafe { (self.object.open_trace)(self.handle.as_ptr(), path.as_ptr()) })
    }

    /// Completes the FST file.
    pub(crate) fn close_trace(&mut self) {
        // SAFETY: the handle is live; closing twice is allowed.
        unsafe { (self.object.close_trace)(self.handle.as_ptr()) }
    }

    /// Writes the coverage counted so far in Verilator's format.
    pub(crate) fn write_coverage(&mut self, path: &Path) -> Served {
        let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return Served::CannotWrite };
        // SAFETY: as in `open_trace`.
        Served::of(unsafe { (self.object.write_coverage)(self.handle.as_ptr(), path.as_ptr()) })
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: the handle is live and not used again; the object outlives this call because we hold it.
        unsafe { (self.object.delete)(self.handle.as_ptr()) }
    }
}
