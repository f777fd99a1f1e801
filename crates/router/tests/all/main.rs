//! Requests, targets and records of the router. One program, as each would link the whole of it.

mod fault_list;
mod forms;
mod hearing;
mod records;
mod routes;
mod targets;
