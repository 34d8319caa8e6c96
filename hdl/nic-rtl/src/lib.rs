//! The MetaRoCE card's RTL.
