//! One file for each command.

mod again;
mod asking;
mod auth;
mod bench;
mod bench_streams;
mod calibrate;
mod convert;
mod corpus;
mod download;
mod drawing;
mod embed;
mod eval;
mod extract;
mod function;
mod function_bench;
mod inspect;
mod kernels;
mod list;
mod listen;
pub(crate) mod policy;
mod profile;
mod route;
mod run;
mod score;
mod serve;
mod show;
mod tokenize;
mod transcribe;
mod transpile;

mod vad;
mod watch;

use crate::args::{Cli, Command};
use anyhow::Result;
use std::process::ExitCode;

pub(crate) fn dispatch(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Run(a) => return run::run(&a),
        Command::Transcribe(a) if a.mic => listen::run(&a.at_the_microphone()?)?,
        Command::Transcribe(a) => transcribe::run(&a)?,
        Command::Listen(a) => listen::run(&a)?,
        Command::Vad(a) => vad::run(&a)?,
        Command::Embed(a) => embed::embed(&a)?,
        Command::Rerank(a) => embed::rerank(&a)?,
        Command::Index(a) => return corpus::unless_stopped(corpus::index(&a)),
        Command::Search(a) => return corpus::unless_stopped(corpus::search(&a)),
        Command::Ask(a) => return corpus::unless_stopped(corpus::ask(&a)),
        Command::Serve(a) => serve::run(&a)?,
        Command::Convert(a) => convert::run(&a)?,
        Command::Transpile(a) => return transpile::run(&a),
        Command::Inspect(a) => inspect::run(&a)?,
        Command::Bench(a) => bench::run(&a)?,
        Command::Kernels(a) => kernels::run(&a)?,
        Command::List(a) => list::run(&a)?,
        Command::Download(a) => download::run(&a)?,
        Command::Remove(a) => list::remove(&a)?,
        Command::Tokenize(a) => tokenize::run(&a)?,
        Command::Score(a) => score::run(&a)?,
        Command::Eval(a) => eval::run(&a)?,
        Command::Route(a) => route::run(&a)?,
        Command::Auth(a) => auth::run(&a)?,
        Command::Calibrate(a) => calibrate::run(&a)?,
        Command::ExtractPdf(a) => return extract::run(&a),
    }
    Ok(ExitCode::SUCCESS)
}
