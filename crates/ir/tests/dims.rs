//! Sizes as expressions: equal ones are written the same.

use cactus_ir::{Bindings, Dim};

#[test]
fn a_quotient_of_a_quotient_is_one_quotient() {
    let cases = [("(((x+1)//2+1)//2+1)//2", "(x+7)//8"), ("((x-1)//3)//5", "(x-1)//15")];
    for (nested, flat) in cases {
        let [nested, flat]: [Dim; 2] = [nested, flat].map(|text| text.parse().unwrap());
        assert_eq!(nested, flat);
    }
    let by_hand = |x: usize| (x.div_ceil(2).div_ceil(2)).div_ceil(2);
    let nested: Dim = cases[0].0.parse().unwrap();
    for x in 1..100 {
        assert_eq!(
            nested.eval(&Bindings::from([("x".to_owned(), x)])).unwrap(),
            by_hand(x),
            "{x}"
        );
    }
}
