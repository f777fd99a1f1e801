//! Policies and routes from without. One program, as each would link the whole of it.

mod hostile;
mod money;
mod whole;
