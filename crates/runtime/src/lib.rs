//! Lowering, memory plan, states, execution and profile of a bundle on this CPU.
