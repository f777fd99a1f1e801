//! The `cactus` command: convert, run, inspect and measure models on this machine.
//!
//! It is the outermost crate: the only one that prints, adds hints to errors and decides exit codes. Data goes to
//! standard output, everything else to standard error. It deliberately holds no logic that another front end would want.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod commands;
mod film_file;
mod hint;
mod model;
mod npy;
mod output;
mod picture_file;
mod progress;
mod python;

use clap::Parser;
use std::process::ExitCode;

/// Exit code for wrong arguments, as `clap` has it.
const WRONG_ARGUMENT: u8 = 2;

fn main() -> ExitCode {
    let cli = args::Cli::parse();
    match commands::dispatch(cli) {
        Ok(code) => code,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            match error.downcast_ref::<args::WrongArgument>() {
                Some(_) => ExitCode::from(WRONG_ARGUMENT),
                None => ExitCode::FAILURE,
            }
        }
    }
}
