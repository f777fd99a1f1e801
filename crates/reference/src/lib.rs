//! A naive interpreter of every IR operation: the oracle and the constant folder.
