//! The on-disk bundle: tensor files, manifests, writer, mapped reader, validation, versions.
