//! Host driver of the MetaRoCE card.
