//! The record of how pictures become the input of a model (`vision.json`), from what its folder says of its
//! image processor.
//!
//! Every step that the folder asks for is done or refused by its name: a picture that is prepared in another way gives a worse vector
//! and no error.

mod films;
mod views;

use crate::fields::Fields;
use crate::{Error, Result};
use cactus_models::{ModelDef, PicturesDef};
use cactus_vision::processor::{Channels, Layout, PatchOrder, Processor, SizeRule, VERSION, Values};
use cactus_vision::{Alpha, Filter};
use serde_json::Value;

/// Whose fields they are.
const OF: &str = "image processor";
/// Steps that are known.
const STEPS: [&str; 5] = [
    "do_resize",
    "do_center_crop",
    "do_rescale",
    "do_normalize",
    "do_convert_rgb",
];
/// Pillow's numbers of filters.
const FILTERS: [(u64, Filter); 3] = [(1, Filter::Lanczos), (2, Filter::Bilinear), (3, Filter::Bicubic)];
/// Where a folder does not say it, a byte becomes a number up to 1.
const USUAL_SCALE: f64 = 1.0 / 255.0;

/// The record of the model `def`, whose folder says `front_end` of pictures; none where it sees nothing, or the folder does not say how.
///
/// # Errors
/// What is not supported, naming the field.
pub(crate) fn record(def: &ModelDef, front_end: &Value) -> Result<Option<Processor>> {
    let fields = match front_end.as_object() {
        Some(map) if !map.is_empty() => Fields { of: OF, map },
        _ => return Ok(None),
    };
    if let Some(sees) = &def.sees {
        return views::record(&fields, sees).map(Some);
    }
    let Some(pictures) = def.pictures else { return Ok(None) };
    fields.refuse_other_steps(&STEPS)?;
    let record = Processor {
        version: VERSION,
        alpha: Alpha::White,
        size: fields.size_rule()?,
        filter: fields.filter()?,
        values: fields.values()?,
        patch: pixels(pictures.patch),
        merge: 1,
        layout: Layout::Patches {
            order: PatchOrder::Raster,
            channels: Channels::First,
            copies: 1,
        },
        places: None,
        marks: None,
        films: None,
    };
    fits(&record, pictures)?;
    Ok(Some(record))
}

/// A side that no record allows where it is none.
fn pixels(side: usize) -> u32 {
    u32::try_from(side).unwrap_or(u32::MAX)
}

/// Whether pictures become as large as the encoder takes them.
fn fits(record: &Processor, pictures: PicturesDef) -> Result<()> {
    let plan = record.plan(100, 150).map_err(|e| Error::malformed(e.to_string()))?;
    let view = &plan.views[0];
    let side = |found: u32| found as usize == pictures.side;
    if side(view.width) && side(view.height) && plan.views.len() == 1 {
        return Ok(());
    }
    let what = format!(
        "the image processor makes pictures of {} x {} pixels, and the model takes {side} x {side}",
        view.width,
        view.height,
        side = pictures.side
    );
    Err(Error::unsupported(what))
}

impl Fields<'_> {
    /// How bytes become numbers.
    fn values(&self) -> Result<Values> {
        self.values_of(self.step("do_normalize")?)
    }

    /// The same, `normalized` or not.
    fn values_of(&self, normalized: bool) -> Result<Values> {
        let numbers = |key: &str, usual: f64| match normalized {
            true => self.three(key),
            false => Ok([usual; 3]),
        };
        let scale = match self.step("do_rescale")? {
            true => self.number("rescale_factor", USUAL_SCALE)?,
            false => 1.0,
        };
        Ok(Values {
            scale,
            mean: numbers("image_mean", 0.0)?,
            std: numbers("image_std", 1.0)?,
        })
    }

    fn refuse_other_steps(&self, steps: &[&str]) -> Result<()> {
        let asked = |(key, value): (&String, &Value)| {
            let step = key.starts_with("do_") && value.as_bool() != Some(false) && !value.is_null();
            (step && !steps.contains(&key.as_str())).then(|| key.clone())
        };
        match self.map.iter().find_map(asked) {
            Some(key) => Err(self.refuse(&key, "false; this step is not supported")),
            None if !self.step("do_resize")? => Err(self.refuse("do_resize", "true; pictures have many sizes")),
            None => Ok(()),
        }
    }

    /// A step, which is done where nothing is said of it.
    fn step(&self, key: &str) -> Result<bool> {
        self.flag(key, true)
    }

    fn three(&self, key: &str) -> Result<[f64; 3]> {
        let list = self.get(key).and_then(Value::as_array);
        let numbers: Option<Vec<f64>> = list.and_then(|list| list.iter().map(Value::as_f64).collect());
        let three = numbers.and_then(|numbers| <[f64; 3]>::try_from(numbers).ok());
        three.ok_or_else(|| self.refuse(key, "three numbers"))
    }

    fn filter(&self) -> Result<Filter> {
        let number = self.get("resample").and_then(Value::as_u64);
        let filter = FILTERS.iter().find(|(of, _)| Some(*of) == number);
        filter
            .map(|(_, filter)| *filter)
            .ok_or_else(|| self.refuse("resample", "1 (Lanczos), 2 (bilinear) or 3 (bicubic)"))
    }

    /// A field with two sides in pixels, or one number for both.
    fn sides(&self, key: &str) -> Result<Option<[u32; 2]>> {
        let side = |value: &Value| value.as_u64().and_then(|n| u32::try_from(n).ok());
        let expected = || self.refuse(key, "a number of pixels, or `height` and `width`");
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(sides)) => {
                let of = |name: &str| sides.get(name).and_then(side).ok_or_else(expected);
                Ok(Some([of("width")?, of("height")?]))
            }
            Some(one) => Ok(Some([side(one).ok_or_else(expected)?; 2])),
        }
    }

    fn size_rule(&self) -> Result<SizeRule> {
        // One that is silent of it crops only if it says what to.
        let crops = self.step("do_center_crop")?;
        let crop = if crops { self.sides("crop_size")? } else { None };
        let edge = match self.get("size") {
            Some(Value::Object(size)) => size.get("shortest_edge").filter(|v| !v.is_null()),
            Some(number) => crop.is_some().then_some(number),
            None => None,
        };
        if let Some(edge) = edge {
            let edge = edge.as_u64().and_then(|n| u32::try_from(n).ok());
            let edge = edge.ok_or_else(|| self.refuse("size", "a number of pixels as `shortest_edge`"))?;
            let [crop_width, crop_height] =
                crop.ok_or_else(|| self.refuse("crop_size", "the sides of the middle that is kept"))?;
            return Ok(SizeRule::ShortestEdge {
                edge,
                crop_width,
                crop_height,
            });
        }
        let sides = self.sides("size")?.ok_or_else(|| self.refuse("size", "a size"))?;
        if crop.is_some_and(|crop| crop != sides) {
            return Err(self.refuse("crop_size", "the same as `size`, which has two sides"));
        }
        let [width, height] = sides;
        Ok(SizeRule::Fixed { width, height })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn size(fields: Value) -> std::result::Result<SizeRule, String> {
        let fields = fields.as_object().unwrap().clone();
        let fields = Fields { of: OF, map: &fields };
        fields
            .refuse_other_steps(&STEPS)
            .and_then(|()| fields.size_rule())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn size_of_processors_is_what_they_do() {
        let shortest = |edge, crop_width, crop_height| SizeRule::ShortestEdge {
            edge,
            crop_width,
            crop_height,
        };
        let fixed = |width, height| SizeRule::Fixed { width, height };
        let cases = [
            // As the first checkpoints of CLIP have it.
            (
                json!({"size": 224, "crop_size": 224, "do_center_crop": true}),
                shortest(224, 224, 224),
            ),
            (
                json!({"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 192}}),
                shortest(256, 192, 224),
            ),
            (json!({"size": {"height": 384, "width": 256}}), fixed(256, 384)),
            (json!({"size": 224, "do_center_crop": false}), fixed(224, 224)),
            (
                json!({"size": {"height": 224, "width": 224}, "crop_size": 224, "do_pad": null}),
                fixed(224, 224),
            ),
        ];
        for (fields, expected) in cases {
            assert_eq!(size(fields.clone()).unwrap(), expected, "{fields}");
        }
    }

    #[test]
    fn size_of_what_is_not_done_names_the_field() {
        let cases = [
            (json!({"size": 224, "do_pad": true}), "`do_pad`"),
            (json!({"size": 224, "do_resize": false}), "`do_resize`"),
            (
                json!({"size": {"shortest_edge": 224}, "do_center_crop": false}),
                "`crop_size`",
            ),
            (
                json!({"size": {"height": 224, "width": 224}, "crop_size": 200}),
                "`crop_size`",
            ),
            (json!({"size": {"longest_edge": 224}}), "`size`"),
            (json!({"size": -1}), "`size`"),
            (json!({}), "`size`"),
        ];
        for (fields, named) in cases {
            let error = size(fields.clone()).unwrap_err();
            assert!(error.contains(named), "{fields}: {error}");
        }
    }
}
