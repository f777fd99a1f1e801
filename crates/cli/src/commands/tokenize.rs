use crate::args::TokenizeArgs;
use crate::{model, output};
use anyhow::{Context, Result, bail};
use cactus_engine::{Bundle, Model};

pub(crate) fn run(args: &TokenizeArgs) -> Result<()> {
    if args.text.is_none() && args.file.is_none() && args.decode.is_empty() {
        bail!("nothing to tokenize: give `--text TEXT`, `--file FILE` or `--decode IDS`");
    }
    let bundle = Bundle::open(&model::bundle(&args.model)?)?;
    let (tokenizer, _) = Model::load_text(&bundle)?;
    if !args.decode.is_empty() {
        let text = tokenizer.decode(&args.decode, false);
        bundle.intact()?;
        if args.json {
            return output::json(&serde_json::json!({ "ids": args.decode, "text": text }));
        }
        output::line(text);
        return Ok(());
    }
    let text = match (&args.text, &args.file) {
        (Some(t), _) => model::text_or_stdin(t)?,
        (None, Some(path)) => {
            let bytes = std::fs::read(path).with_context(|| format!("`--file`: cannot read `{}`", path.display()))?;
            model::utf8(bytes, &format!("`{}`", path.display()))?
        }
        (None, None) => String::new(),
    };
    let ids = tokenizer.encode(&text, !args.no_special)?;
    bundle.intact()?;
    if args.json {
        let tokens: Vec<_> = ids
            .iter()
            .map(|&id| serde_json::json!({ "id": id, "token": tokenizer.token_text(id) }))
            .collect();
        return output::json(&serde_json::json!({ "count": ids.len(), "tokens": tokens }));
    }
    for id in &ids {
        output::line(format!("{id:>8}  {:?}", tokenizer.token_text(*id).unwrap_or_default()));
    }
    output::note(format!("{} tokens", ids.len()));
    Ok(())
}
