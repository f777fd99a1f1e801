use crate::args::{ListArgs, RemoveArgs};
use crate::{model, output};
use anyhow::Result;
use cactus_hub::{ItemKind, catalog, preferred};

pub(crate) fn run(args: &ListArgs) -> Result<()> {
    let hub = model::hub(None, true)?;
    cactus_store::remove_abandoned(&hub);
    let items = hub.list()?;
    let best = preferred();
    if args.json {
        let first = serde_json::json!({
            "id": best.id, "title": best.title, "description": best.description, "license": best.license,
            "chat": true, "download_bytes": best.file_bytes, "upstream": best.repo.repo,
        });
        let known: Vec<_> = std::iter::once(first)
            .chain(catalog().iter().map(|e| {
                serde_json::json!({
                    "id": e.id, "title": e.title, "description": e.description, "license": e.license,
                    "chat": e.chat, "download_bytes": e.download_bytes(), "upstream": e.upstream,
                })
            }))
            .collect();
        let cached: Vec<_> = items
            .iter()
            .map(|i| serde_json::json!({ "key": i.key, "kind": kind(&i.kind), "bytes": i.bytes, "path": i.path }))
            .collect();
        return output::json(&serde_json::json!({ "cache": hub.cache().root(), "known": known, "cached": cached }));
    }
    let row = |id: &str, bytes: u64, license: &str, description: &str| {
        let cells = [id, &output::bytes(bytes), license, description];
        cells.map(str::to_owned).to_vec()
    };
    let first = row(best.id, best.file_bytes, best.license, best.description);
    let rows: Vec<Vec<String>> = std::iter::once(first)
        .chain(
            catalog()
                .iter()
                .map(|e| row(e.id, e.download_bytes(), e.license, e.description)),
        )
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
    cactus_store::remove_abandoned(&hub);
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
