use crate::args::DownloadArgs;
use crate::{model, output};
use anyhow::Result;
use cactus_hub::Format;

pub(crate) fn run(args: &DownloadArgs) -> Result<()> {
    let hub = model::hub(args.token.clone(), false)?;
    let model = match model::named(args.model.as_deref(), args.small) {
        Some(name) => name.to_owned(),
        None => model::meant(&hub)?,
    };
    let fetched = model::fetch(&hub, &model)?;
    if args.json {
        return output::json(&serde_json::json!({
            "model": model,
            "path": fetched.path,
            "format": format_name(fetched.format),
            "license": fetched.record.as_ref().and_then(|r| r.license.clone()),
            "from_cache": fetched.from_cache,
        }));
    }
    if let Some(license) = fetched.record.as_ref().and_then(|r| r.license.as_deref()) {
        output::note(format!("license: {license}"));
    }
    output::line(fetched.path.display());
    Ok(())
}

fn format_name(format: Format) -> &'static str {
    match format {
        Format::Gguf => "gguf",
        Format::Ggml => "ggml",
        Format::CTranslate2 => "ctranslate2",
        Format::Ort => "onnxruntime",
        Format::HuggingFace => "huggingface",
        Format::Safetensors => "safetensors",
        Format::Onnx => "onnx",
        Format::Bundle => "bundle",
        _ => "other",
    }
}
