use crate::args::{ListArgs, RemoveArgs};
use crate::{model, output};
use anyhow::Result;
use cactus_hub::{ItemKind, catalog};

pub(crate) fn run(args: &ListArgs) -> Result<()> {
    let hub = model::hub(None, true)?;
    let items = hub.list()?;
    if args.json {
        let known: Vec<_> = catalog()
            .iter()
            .map(|e| {
                serde_json::json!({
                    "id": e.id, "title": e.title, "description": e.description, "license": e.license,
                    "chat": e.chat, "download_bytes": e.download_bytes(), "upstream": e.upstream,
                })
            })
            .collect();
        let cached: Vec<_> = items
            .iter()
            .map(|i| serde_json::json!({ "key": i.key, "kind": kind(&i.kind), "bytes": i.bytes, "path": i.path }))
            .collect();
        return output::json(&serde_json::json!({ "cache": hub.cache().root(), "known": known, "cached": cached }));
    }
    let rows: Vec<Vec<String>> = catalog()
        .iter()
        .map(|e| {
            vec![
                e.id.to_owned(),
                output::bytes(e.download_bytes()),
                e.license.to_owned(),
                e.description.to_owned(),
            ]
        })
        .collect();
    output::table(&["known model", "download", "license", "description"], &rows);
    output::line("");
    if items.is_empty() {
        output::note(format!("the cache is empty ({})", hub.cache().root().display()));
        return Ok(());
    }
    let rows: Vec<Vec<String>> = items
        .iter()
        .map(|i| vec![i.key.clone(), kind(&i.kind), output::bytes(i.bytes)])
        .collect();
    output::table(&["cached", "kind", "size"], &rows);
    output::note(format!("the cache is {}", hub.cache().root().display()));
    Ok(())
}

fn kind(kind: &ItemKind) -> String {
    match kind {
        ItemKind::Source => "source".to_owned(),
        ItemKind::Bundle { variant } => format!("bundle {variant}"),
        ItemKind::Partial => "unfinished download".to_owned(),
        _ => "other".to_owned(),
    }
}

pub(crate) fn remove(args: &RemoveArgs) -> Result<()> {
    let hub = model::hub(None, true)?;
    for item in hub.remove(&args.model)? {
        output::note(format!(
            "removed {} ({}, {})",
            item.key,
            kind(&item.kind),
            output::bytes(item.bytes)
        ));
    }
    Ok(())
}
