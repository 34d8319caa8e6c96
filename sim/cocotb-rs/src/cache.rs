//! The cache of built models: where it is, how an entry is named, and how two builders of one entry keep apart.
//!
//! An entry is named by a hash of everything that decides its content, so it never has to be invalidated. It is built
//! in a folder beside its place and moved there by one rename, under a lock file per entry: other processes and
//! threads see it whole or not at all.

use crate::error::BuildError;
use sha2::{Digest, Sha256};
use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
};

const FOLDER: &str = "verilator-cache";

/// Content hash under construction. Fields are length-prefixed, so that no two lists of fields look alike.
pub(crate) struct Key(Sha256);

impl Key {
    pub(crate) fn new(kind: &str) -> Self {
        let mut key = Key(Sha256::new());
        key.add(kind);
        key
    }

    pub(crate) fn add(&mut self, field: impl AsRef<[u8]>) {
        let field = field.as_ref();
        self.0.update((field.len() as u64).to_le_bytes());
        self.0.update(field);
    }

    /// 128 bits in hex.
    pub(crate) fn finish(self) -> String {
        self.0.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The cache folder: `COCOTB_RS_CACHE`; else `verilator-cache` in Cargo's target folder (`CARGO_TARGET_DIR`, or the
/// one the running program was built into, or `target` beside the nearest `Cargo.lock`); else in the system's temporary folder.
pub(crate) fn folder() -> PathBuf {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = variable("COCOTB_RS_CACHE") {
        return folder;
    }
    let parent_with = |start: Option<PathBuf>, mark: &str| {
        start.and_then(|start| start.ancestors().find(|dir| dir.join(mark).is_file()).map(Path::to_owned))
    };
    variable("CARGO_TARGET_DIR")
        .or_else(|| parent_with(env::current_exe().ok(), "CACHEDIR.TAG"))
        .or_else(|| parent_with(env::current_dir().ok(), "Cargo.lock").map(|dir| dir.join("target")))
        .unwrap_or_else(env::temp_dir)
        .join(FOLDER)
}

/// Makes sure that `place` exists, calling `build` with an empty working folder to make it if it does not.
///
/// `build` returns the path, inside the working folder or the folder itself, that is to become `place`. Says whether
/// it was built now.
pub(crate) fn ensure(
    place: &Path,
    build: impl FnOnce(&Path) -> Result<PathBuf, BuildError>,
) -> Result<bool, BuildError> {
    if place.exists() {
        return Ok(false);
    }
    if let Some(parent) = place.parent() {
        fs::create_dir_all(parent).map_err(BuildError::io("create", parent))?;
    }
    let lock_path = place.with_extension("lock");
    let lock = File::create(&lock_path).map_err(BuildError::io("create", &lock_path))?;
    lock.lock().map_err(BuildError::io("lock", &lock_path))?;
    // The lock is released when `lock` is closed, also by the end of a process that is killed.
    if place.exists() {
        return Ok(false);
    }
    let work = place.with_extension("tmp");
    if work.exists() {
        fs::remove_dir_all(&work).map_err(BuildError::io("remove", &work))?;
    }
    fs::create_dir_all(&work).map_err(BuildError::io("create", &work))?;
    let result = build(&work)?;
    fs::rename(&result, place).map_err(BuildError::io("rename into place", place))?;
    if result != work {
        fs::remove_dir_all(&work).map_err(BuildError::io("remove", &work))?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn field_boundaries_are_part_of_the_key() {
        let key = |fields: &[&str]| {
            let mut key = Key::new("test");
            fields.iter().for_each(|field| key.add(field));
            key.finish()
        };
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_eq!(key(&["ab", "c"]), key(&["ab", "c"]));
        assert_eq!(key(&[]).len(), 32);
    }

    #[test]
    fn eight_builders_of_one_entry_build_it_once() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("entry");
        let (builds, made) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let built = ensure(&place, |work| {
                        builds.fetch_add(1, Ordering::SeqCst);
                        std::thread::yield_now();
                        fs::write(work.join("content"), "whole").unwrap();
                        Ok(work.to_owned())
                    });
                    made.fetch_add(u32::from(built.unwrap()), Ordering::SeqCst);
                    assert_eq!(fs::read_to_string(place.join("content")).unwrap(), "whole");
                });
            }
        });
        assert_eq!((builds.into_inner(), made.into_inner()), (1, 1));
    }

    #[test]
    fn a_failed_build_leaves_no_entry_and_the_next_one_starts_afresh() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("entry");
        let failed = ensure(&place, |work| {
            fs::write(work.join("half"), "").unwrap();
            Err(BuildError::NoVerilog { top: "t".into() })
        });
        assert!(failed.is_err() && !place.exists());
        ensure(&place, |work| Ok(work.to_owned())).unwrap();
        assert!(place.exists() && !place.join("half").exists());
    }
}
