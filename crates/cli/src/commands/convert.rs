use crate::args::ConvertArgs;
use crate::{model, output};
use anyhow::{Result, bail};
use cactus_hub::Format;
use cactus_import::ConvertOptions;
use cactus_passes::Policy;

pub(crate) fn run(args: &ConvertArgs) -> Result<()> {
    let hub = model::hub(args.token.clone(), args.offline)?;
    let fetched = model::fetch(&hub, &args.source)?;
    if fetched.format == Format::Bundle {
        bail!("`{}` is a bundle already", fetched.path.display());
    }
    let mut options = ConvertOptions {
        policy: Policy::uniform(args.bits.precision()),
        replace: args.force,
        name: fetched.record.as_ref().map(|r| r.id.clone()),
        license: fetched.record.as_ref().and_then(|r| r.license.clone()),
        ..ConvertOptions::default()
    };
    let switches = [
        (args.no_fuse_rms_norm, "fuse_rms_norm"),
        (args.no_fuse_rope, "fuse_rope"),
        (args.no_fuse_attention, "fuse_attention"),
    ];
    for (off, pass) in switches {
        if off {
            options.passes = options.passes.without(pass);
        }
    }
    let outcome = model::convert(&fetched.path, &args.destination, &options)?;
    if args.explain {
        output::note(&outcome.explanation);
    }
    if args.json {
        return output::json(&outcome);
    }
    output::note(format!(
        "{} tensors, {}, in {:.1} s",
        outcome.tensors,
        output::bytes(outcome.weights_bytes),
        outcome.seconds
    ));
    output::line(outcome.path.display());
    Ok(())
}
