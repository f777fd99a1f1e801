//! The peaks that a product leaves beside its outputs, for every packing, tier, number of rows and threads.

mod support;

use cactus_base::{Pool, Step};
use cactus_kernels::matmul::PEAK_OUTPUTS;
use cactus_kernels::{Epilogue, Exec, Kernels};
use cactus_quant::{Packing, pack};
use cactus_testkit::noise;
use support::products::{linear, with_activations};

#[test]
fn peaks_are_the_largest_of_each_stretch_and_nan_where_one_is_not_finite() {
    let pool = Pool::new(2);
    let packings = [
        Packing::RowMajor,
        Packing::Int8G32,
        Packing::F16N16,
        Packing::F32N16,
        Packing::Tcq4G128,
        Packing::Tcq6G128,
    ];
    for packing in packings {
        for (n, k) in [(1, 32), (17, 96), (48, 128), (999, 640)] {
            let packed = pack(packing, n, k, &noise(n * k, 1)).unwrap();
            let w = packed.view();
            let mut bias = noise(n, 3);
            if n > 40 {
                (bias[3], bias[20], bias[40]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
            }
            for rows in [1, 2, 5, 8, 9, 17] {
                let x = noise(rows * k, 2);
                let blocks = n.div_ceil(PEAK_OUTPUTS);
                for kernels in Kernels::available() {
                    for step in [Step::inline(), pool.step(2)] {
                        let exec = Exec { kernels, step: &step };
                        let case = format!(
                            "{packing} {n}x{k} rows {rows} {} width {}",
                            kernels.tier(),
                            step.width()
                        );
                        let (mut plain, mut out) = (vec![0.0; rows * n], vec![0.0; rows * n]);
                        let mut peaks = vec![0.0; rows * blocks];
                        let epilogue = Epilogue {
                            bias: Some(&bias),
                            ..Epilogue::default()
                        };
                        linear(exec, &w, &x, rows, epilogue, &mut plain);
                        with_activations(exec, &w, &x, rows, |x| {
                            exec.linear_with_peaks(&w, x, rows, Some(&bias), &mut out, &mut peaks);
                        });
                        let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                        assert_eq!(bits(&out), bits(&plain), "{case}");
                        let stretches = out.chunks(n).flat_map(|row| row.chunks(PEAK_OUTPUTS));
                        for (i, (stretch, &peak)) in stretches.zip(&peaks).enumerate() {
                            if stretch.iter().all(|x| x.is_finite()) {
                                let largest = stretch.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                                assert_eq!(peak, largest, "{case}: peak {i}");
                            } else {
                                assert!(peak.is_nan(), "{case}: peak {i} is {peak}");
                            }
                        }
                    }
                }
            }
        }
    }
}
