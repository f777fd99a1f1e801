//! Convolutions in tiles: equal bits on every tier and thread count, close to `f64`, at edge shapes.

mod support;

use cactus_kernels::dense::{Tiles, Window};
use cactus_kernels::{Epilogue, UnaryOp};
use support::{Random, assert_close, same_everywhere};

/// Three by three taps over a plane, with zeros before and after.
fn window([height, width]: [usize; 2], before: [usize; 2], after: [usize; 2]) -> Window {
    let out = |size: usize, i: usize| size + before[i] + after[i] - 2;
    Window {
        size: [1, height, width],
        out: [1, out(height, 0), out(width, 1)],
        kernel: [1, 3, 3],
        stride: [1; 3],
        before: [0, before[0], before[1]],
        dilation: [1; 3],
    }
}

#[test]
fn tiles_match_the_definition() {
    for (size, before, after, channels, filters) in [
        ([14, 14], [1, 1], [1, 1], 16, 16),
        // Odd planes; more filters than a strip has, and more channels than a part.
        ([13, 17], [1, 1], [1, 1], 19, 53),
        // No padding, and unequal padding that is larger than a tile.
        ([12, 19], [0, 0], [0, 0], 33, 24),
        ([9, 16], [4, 0], [1, 5], 17, 25),
        // Rows of one tile, and rows of many; more tiles than a stripe has.
        ([70, 2], [1, 1], [1, 1], 16, 16),
        ([3, 150], [1, 1], [1, 1], 16, 17),
        ([17, 18], [1, 1], [1, 1], 200, 16),
        // One block.
        ([7, 7], [1, 1], [1, 1], 32, 24),
    ] {
        let w = window(size, before, after);
        let tiles = Tiles::of(&w, channels, filters).unwrap();
        let [_, height, width] = w.out;
        let mut random = Random::new((height * width * filters) as u64);
        let x = random.floats(channels * size[0] * size[1], 1.0);
        let weight = random.floats(filters * channels * 9, 1.0);
        let bias = random.floats(filters, 1.0);
        let relu = filters % 2 == 0;
        let epilogue = Epilogue {
            bias: Some(&bias),
            activation: relu.then_some(UnaryOp::Relu),
            ..Epilogue::default()
        };
        let found = same_everywhere(&format!("tiles {size:?} {channels} {filters}"), |exec| {
            let mut scratch = vec![f32::NAN; exec.conv_tiles_scratch_elems(&tiles)];
            let mut out = vec![f32::NAN; filters * height * width];
            exec.conv_tiles(&tiles, &x, &weight, epilogue, &mut scratch, &mut out);
            out
        });
        let mut exact = Vec::new();
        for f in 0..filters {
            for (row, column) in (0..height).flat_map(|row| (0..width).map(move |column| (row, column))) {
                let mut sum = f64::from(bias[f]);
                for (c, tap) in (0..channels).flat_map(|c| (0..9).map(move |tap| (c, tap))) {
                    let at = |place: usize, tap: usize, axis: usize| {
                        let at = (place + tap).checked_sub(before[axis])?;
                        (at < size[axis]).then_some(at)
                    };
                    if let (Some(y), Some(z)) = (at(row, tap / 3, 0), at(column, tap % 3, 1)) {
                        let v = f64::from(x[(c * size[0] + y) * size[1] + z]);
                        sum += v * f64::from(weight[(f * channels + c) * 9 + tap]);
                    }
                }
                exact.push(if relu { sum.max(0.0) } else { sum });
            }
        }
        assert_close(
            &format!("tiles {size:?} {channels} {filters}"),
            &found,
            &exact,
            1e-5,
            1e-4,
        );
    }
}

#[test]
fn other_convolutions_have_no_tiles() {
    let w = window([14, 14], [1, 1], [1, 1]);
    assert!(Tiles::of(&w, 16, 16).is_some());
    for (other, channels) in [
        (Window { stride: [1, 2, 1], ..w }, 16),
        (
            Window {
                dilation: [1, 1, 2],
                ..w
            },
            16,
        ),
        (Window { kernel: [1, 3, 5], ..w }, 16),
        (Window { kernel: [3, 3, 3], ..w }, 16),
        (w, 3),
        (window([6, 5], [1, 1], [1, 1]), 64),
    ] {
        assert!(Tiles::of(&other, channels, 16).is_none(), "{other:?} {channels}");
    }
}
