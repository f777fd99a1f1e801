//! What is inside a bundle.

mod pictures;
mod sounds;
mod vectors;

use crate::args::InspectArgs;
use crate::commands::{drawing, function};
use crate::{model, output};
use anyhow::{Context, Result, anyhow, bail};
use cactus_engine::{Bundle, CONFIDENCE_PATH, DECISIONS_PATH, Fingerprint, GenerateOptions, LoadOptions, Model};
use cactus_hybrid::score::{Key, Section};
use cactus_import::WEIGHTS_TASK;
use cactus_ir::{Graph, State, StateKind};
use cactus_protocol::decisions::{Calibration, Kind};
use cactus_quality::{QUALITY_PATH, TextComparison};
use serde::Deserialize as _;
use std::collections::BTreeMap;
use std::path::Path;

pub(crate) fn run(args: &InspectArgs) -> Result<()> {
    let path = model::bundle(&args.model)?;
    let bundle = Bundle::open(&path)?;
    if args.verify {
        model::verify(&bundle)?;
    }
    if let Some(file) = &args.graph {
        return draw(&bundle, args, file);
    }
    if args.json {
        return output::json(&json(&bundle)?);
    }
    summary(&bundle, args.tensors)?;
    if args.program {
        model::needs_program(&bundle)?;
        if function::is_function(&bundle) {
            return functions(&bundle);
        }
        let loaded = Model::load(&path, &LoadOptions::default())?;
        output::line("");
        for line in loaded.program().listing() {
            output::line(line);
        }
        let m = loaded.program().memory();
        output::line(format!(
            "activations {} ({} if buffers were not shared), states {}",
            output::bytes(m.arena_bytes as u64),
            output::bytes(m.buffers_bytes as u64),
            output::bytes(m.state_bytes as u64)
        ));
    }
    Ok(())
}

/// The operations of each function in the order in which they run.
fn functions(bundle: &Bundle) -> Result<()> {
    for component in &bundle.manifest().components {
        let (graph, _) = bundle.graph(&component.name)?;
        output::line("");
        output::line(format!("component {}, one kernel call in each line", component.name));
        for (i, (_, node)) in graph.nodes().enumerate() {
            let ty = graph.ty(node.outputs[0]);
            output::line(format!("{i:>5}  {:<14} -> {ty}  {}", node.op.mnemonic(), node.path));
        }
    }
    Ok(())
}

/// Number of tensors, elements and bytes for each packing.
fn by_packing(bundle: &Bundle) -> BTreeMap<String, (usize, u64, u64)> {
    let mut out: BTreeMap<String, (usize, u64, u64)> = BTreeMap::new();
    for w in bundle.weights().values() {
        let slot = out.entry(w.packing.clone()).or_default();
        slot.0 += 1;
        slot.1 += w.dims.iter().product::<usize>() as u64;
        slot.2 += w.bytes;
    }
    out
}

fn state_text(kind: &StateKind) -> String {
    match kind {
        StateKind::Kv {
            kv_heads,
            head_dim,
            window,
        } => match window {
            Some(w) => format!("KV cache, {kv_heads} heads of {head_dim}, window {w}"),
            None => format!("KV cache, {kv_heads} heads of {head_dim}"),
        },
        StateKind::Conv { channels, rows } => format!("convolution, {rows} rows of {channels}"),
        other => format!("{other:?}"),
    }
}

/// States of one kind counted together.
fn states(states: &[State]) -> Vec<(String, usize)> {
    let mut out: Vec<(String, usize)> = Vec::new();
    for s in states {
        let text = state_text(&s.kind);
        match out.iter_mut().find(|(t, _)| *t == text) {
            Some((_, n)) => *n += 1,
            None => out.push((text, 1)),
        }
    }
    out
}

fn summary(bundle: &Bundle, tensors: bool) -> Result<()> {
    let m = bundle.manifest();
    let provenance = bundle.provenance()?;
    let elems: u64 = by_packing(bundle).values().map(|v| v.1).sum();
    let bytes: u64 = by_packing(bundle).values().map(|v| v.2).sum();
    let rows = [
        ("name", m.name.clone()),
        ("family", m.family.clone()),
        ("task", m.task.clone()),
        ("context", format!("{} tokens", m.context_tokens)),
        ("vocabulary", format!("{} tokens", m.vocab_size)),
        ("parameters", format!("{:.1} M", elems as f64 / 1e6)),
        (
            "weights",
            format!(
                "{} ({:.2} bits each)",
                output::bytes(bytes),
                bytes as f64 * 8.0 / elems.max(1) as f64
            ),
        ),
        ("format", format!("version {}", m.version)),
        (
            "source",
            format!("{} ({})", provenance.source, provenance.source_format),
        ),
        ("made by", provenance.tool.clone()),
        (
            "license",
            provenance.license.clone().unwrap_or_else(|| "not stated".into()),
        ),
    ];
    let alone = m.task == WEIGHTS_TASK;
    for (key, value) in rows {
        if alone && ["family", "context", "vocabulary"].contains(&key) {
            continue;
        }
        output::line(format!("{key:<11} {value}"));
    }
    for note in &provenance.notes {
        output::line(format!("{:<11} {note}", "note"));
    }
    if let Some(processor) = pictures::record(bundle)? {
        for line in pictures::lines(&processor) {
            output::line(format!("{:<11} {line}", "pictures"));
        }
    }
    if let Some(hearing) = bundle.hearing()? {
        for line in sounds::lines(&hearing) {
            output::line(format!("{:<11} {line}", "sounds"));
        }
    }
    if let Some(record) = bundle.embedding()? {
        for line in vectors::lines(&record) {
            output::line(format!("{:<11} {line}", "vectors"));
        }
    }
    let quality = quality(bundle)?;
    if let Some(quality) = &quality {
        output::line(format!("{:<11} {}", "quality", quality_text(quality)));
    }
    if let Some(calibration) = decisions(bundle)? {
        output::line(format!("{:<11} {}", "decisions", decisions_text(bundle, &calibration)?));
    }
    if let Some(section) = confidence(bundle)? {
        output::line(format!("{:<11} {}", "confidence", confidence_text(bundle, &section)?));
    }
    if alone {
        output::line(
            "only weights, no program to run: use them with `cactus transpile my_model.py:MyModel FOLDER --weights-dir`",
        );
    }
    output::line("");
    for c in &m.components {
        let (graph, _) = bundle.graph(&c.name)?;
        output::line(format!("component {}: {} operations", c.name, graph.order().len()));
        for p in &c.inputs {
            output::line(format!("  input  {}: {}", p.name, p.ty));
        }
        for p in &c.outputs {
            output::line(format!("  output {}: {}", p.name, p.ty));
        }
        for (text, n) in states(&c.states) {
            output::line(format!("  state  {n} x {text}"));
        }
        let counts: Vec<String> = op_counts(&graph).iter().map(|(op, n)| format!("{op} {n}")).collect();
        output::line(format!("  ops    {}", counts.join(", ")));
    }
    output::line("");
    let rows: Vec<Vec<String>> = by_packing(bundle)
        .into_iter()
        .map(|(p, (n, elems, bytes))| {
            vec![
                p,
                n.to_string(),
                elems.to_string(),
                output::bytes(bytes),
                format!("{:.2}", bytes as f64 * 8.0 / elems.max(1) as f64),
            ]
        })
        .collect();
    output::table(&["packing", "tensors", "elements", "size", "bits"], &rows);
    if tensors {
        output::line("");
        let mut entries: Vec<_> = bundle.weights().iter().collect();
        entries.sort_by_key(|(_, e)| (e.file.clone(), e.offset));
        let losses = losses(quality.as_ref());
        let rows: Vec<Vec<String>> = entries
            .into_iter()
            .map(|(name, e)| {
                vec![
                    name.clone(),
                    format!("{:?}", e.dims),
                    e.packing.clone(),
                    output::bytes(e.bytes),
                    losses
                        .get(name.as_str())
                        .map_or_else(String::new, |lost| format!("{:.3} %", 100.0 * lost)),
                    e.offset.to_string(),
                ]
            })
            .collect();
        output::table(&["tensor", "shape", "packing", "size", "error", "offset"], &rows);
    }
    Ok(())
}

/// The quality document of a bundle that has one.
fn quality(bundle: &Bundle) -> Result<Option<serde_json::Value>> {
    if !bundle.has_file(QUALITY_PATH) {
        return Ok(None);
    }
    let bytes = bundle.file(QUALITY_PATH)?;
    let quality = serde_json::from_slice(&bytes).with_context(|| format!("`{QUALITY_PATH}` is not readable"))?;
    Ok(Some(quality))
}

fn quality_text(quality: &serde_json::Value) -> String {
    let number = |name: &str| quality["comparison"][name].as_f64().unwrap_or(f64::NAN);
    let why = || quality["why"].as_str().unwrap_or("no reason given");
    let texts = TextComparison::deserialize(&quality["texts"]).ok();
    if quality["comparison"].is_null() && texts.is_none() {
        return format!("not measured ({}); `--tensors` shows the error of each matrix", why());
    }
    let calibrated = match quality["calibration"].as_str() {
        Some(text) => format!("calibrated on {text}"),
        None => "not calibrated".to_owned(),
    };
    let verdict = match quality["verdict"].as_str() {
        Some("below_floor") => format!("\n{:<11} below the floor: {}", "", why()),
        _ => String::new(),
    };
    if let Some(texts) = texts {
        return format!("{texts}; {calibrated}{verdict}");
    }
    format!(
        "divergence from the source {:.4} nats, same top token {:.1} %, perplexity {:.3} (source {:.3}); {calibrated}{verdict}",
        number("kl_mean"),
        100.0 * number("top1"),
        number("perplexity"),
        number("perplexity_reference")
    )
}

/// What the bundle has of its own confidence, if it was calibrated.
fn confidence(bundle: &Bundle) -> Result<Option<Section>> {
    if !bundle.has_file(CONFIDENCE_PATH) {
        return Ok(None);
    }
    let section = Section::from_json(&bundle.file(CONFIDENCE_PATH)?);
    Ok(Some(
        section.with_context(|| format!("`{CONFIDENCE_PATH}` is not readable"))?,
    ))
}

fn confidence_text(bundle: &Bundle, section: &Section) -> Result<String> {
    let kept = match &section.certified {
        Some(c) => format!(
            "at most {:.0} % wrong from {:.3} on, with {:.0} % certainty",
            100.0 * c.max_error,
            c.threshold,
            100.0 * (1.0 - c.delta)
        ),
        None => "no threshold with a guarantee".to_owned(),
    };
    let found = Fingerprint::of(bundle, &GenerateOptions::default())?;
    let key = Key {
        bundle: found.bundle,
        template: found.template,
        // How answers are drawn is known only when one is asked for.
        sampler: section.key.sampler.clone(),
    };
    let other = match section.holds_for(&key) {
        Ok(()) => String::new(),
        Err(why) => format!("; not used: {why}"),
    };
    Ok(format!(
        "learned from {} answers ({}); {kept}{other}",
        section.cases, section.task
    ))
}

/// What the bundle has of its decisions, if they were calibrated.
fn decisions(bundle: &Bundle) -> Result<Option<Calibration>> {
    if !bundle.has_file(DECISIONS_PATH) {
        return Ok(None);
    }
    let read = Calibration::from_json(&bundle.file(DECISIONS_PATH)?);
    Ok(Some(read.map_err(|e| anyhow!(e))?))
}

fn decisions_text(bundle: &Bundle, calibration: &Calibration) -> Result<String> {
    let kinds = [
        (Kind::Predicate, "yes or no"),
        (Kind::Choice, "choices"),
        (Kind::Score, "levels"),
    ];
    let learned = kinds.into_iter().filter_map(|(kind, name)| {
        let fitted = calibration.get(kind)?;
        Some(format!("{name} from {} questions", fitted.cases))
    });
    let learned: Vec<String> = learned.collect();
    let found = Fingerprint::of(bundle, &GenerateOptions::default())?;
    let other = match calibration.holds_for(&found) {
        true => "",
        false => "; not used: the calibration was fitted to another bundle or template: calibrate this bundle again",
    };
    Ok(format!("learned {}{other}", learned.join(", ")))
}

/// What storing each matrix changed, relative to its squares, by name.
fn losses(quality: Option<&serde_json::Value>) -> BTreeMap<&str, f64> {
    let tensors = quality.and_then(|q| q["tensors"].as_array());
    tensors
        .into_iter()
        .flatten()
        .filter_map(|t| Some((t["name"].as_str()?, t["relative"].as_f64()?)))
        .collect()
}

fn op_counts(graph: &Graph) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    for (_, node) in graph.nodes() {
        *out.entry(node.op.mnemonic()).or_default() += 1;
    }
    out
}

fn json(bundle: &Bundle) -> Result<serde_json::Value> {
    let m = bundle.manifest();
    let mut components = Vec::new();
    for c in &m.components {
        let (graph, _) = bundle.graph(&c.name)?;
        components.push(serde_json::json!({
            "name": c.name, "inputs": c.inputs, "outputs": c.outputs, "states": c.states, "ops": op_counts(&graph),
        }));
    }
    let packings: serde_json::Map<String, serde_json::Value> = by_packing(bundle)
        .into_iter()
        .map(|(p, (n, elems, bytes))| {
            let bits = bytes as f64 * 8.0 / elems.max(1) as f64;
            (
                p,
                serde_json::json!({ "tensors": n, "elements": elems, "bytes": bytes, "bits": bits }),
            )
        })
        .collect();
    Ok(serde_json::json!({
        "path": bundle.root(), "version": m.version, "name": m.name, "family": m.family, "task": m.task,
        "context_tokens": m.context_tokens, "vocab_size": m.vocab_size, "tokens": m.tokens,
        "components": components, "packings": packings, "tensors": bundle.weights(), "provenance": bundle.provenance()?,
        "quality": quality(bundle)?,
        "confidence": confidence(bundle)?,
        "decisions": decisions(bundle)?,
        "pictures": pictures::record(bundle)?,
        "sounds": bundle.hearing()?,
    }))
}

fn draw(bundle: &Bundle, args: &InspectArgs, file: &Path) -> Result<()> {
    model::needs_program(bundle)?;
    let component = match &args.component {
        Some(name) => Some(bundle.component(name)?),
        None => bundle.manifest().components.first(),
    };
    let Some(component) = component else {
        bail!("the bundle has no component to draw");
    };
    let raw = || -> Result<Graph> {
        let bytes = bundle.file(&format!("components/{}/raw_ir.json", component.name))?;
        Ok(Graph::from_json(&String::from_utf8_lossy(&bytes))?)
    };
    let graphs = match (args.raw, args.side_by_side) {
        (true, _) => vec![raw()?],
        (_, true) => vec![raw()?, bundle.graph(&component.name)?.0],
        _ => vec![bundle.graph(&component.name)?.0],
    };
    let text = match (file.extension().and_then(|e| e.to_str()), &graphs[..]) {
        (Some("svg"), [before, after]) => {
            drawing::svg(&[("before optimization", before), ("after optimization", after)])
        }
        (_, [_, _]) => bail!("`--side-by-side` draws only `.svg` files, found `{}`", file.display()),
        (Some("svg"), [graph, ..]) => drawing::svg(&[("", graph)]),
        (Some("dot"), [graph, ..]) => drawing::dot(graph),
        (Some("txt"), [graph, ..]) => graph.to_string(),
        _ => bail!(
            "the name of the file must end in `.svg`, `.dot` or `.txt`, found `{}`",
            file.display()
        ),
    };
    std::fs::write(file, text).with_context(|| format!("cannot write `{}`", file.display()))?;
    let counts: Vec<String> = graphs.iter().map(|g| g.order().len().to_string()).collect();
    output::note(format!(
        "drew {} operations to {}",
        counts.join(" and "),
        file.display()
    ));
    Ok(())
}
