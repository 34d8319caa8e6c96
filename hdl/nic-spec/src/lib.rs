//! Single source of truth of the MetaRoCE card: headers, registers, descriptors, constants.
