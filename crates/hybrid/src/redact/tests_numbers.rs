//! Numbers and addresses as people write them: other digits, other separators, other words before them.

use super::tests::found;
use super::*;
use serde_json::json;

#[track_caller]
fn one(kind: Kind, text: &str, matched: &str) {
    assert_eq!(found(text), [(kind, matched)], "{text:?}");
}

#[test]
fn digits_and_letters_of_other_forms_are_found() {
    for (kind, text) in [
        (Kind::Card, "６０１１ １１１１ １１１１ １１１７"),
        (Kind::Card, "４１１１１１１１１１１１１１１１"),
        (Kind::Card, "٤١١١ ١١١١ ١١١١ ١١١١"),
        (Kind::Card, "4111\u{200b}1111\u{200b}1111\u{200b}1111"),
        (Kind::Card, "4111\u{2011}1111\u{2011}1111\u{2011}1111"),
        (Kind::Phone, "+٤٩ ٣٠ ١٢٣٤٥٦٧"),
        (Kind::Phone, "＋４９　３０　１２３４５６７"),
        (Kind::Phone, "०१७१ २३४५६७८"),
        (Kind::Iban, "ＤＥ89 3704 0044 0532 0130 00"),
        (Kind::Iban, "DE89\u{ad}3704\u{ad}0044\u{ad}0532\u{ad}0130\u{ad}00"),
        (Kind::Email, "jo\u{ad}hn@exam\u{200b}ple.com"),
        (Kind::Email, "john\u{2060}@example.com"),
        (Kind::Ip, "１９２.168.17.4"),
        (Kind::NationalId, "５３６-９０-４３９９"),
    ] {
        one(kind, &format!("see {text}, then"), text);
        let mut redactor = Redactor::default();
        let said = format!("a {text} b");
        let redacted = redactor.redact(&said).unwrap();
        assert_eq!(redacted, format!("a [{}_1] b", kind.label()));
        assert_eq!(redactor.restore(&redacted), said);
    }
}

#[test]
fn cards_are_found_whatever_stands_between_their_groups() {
    for text in [
        "4111\t1111\t1111\t1111",
        "4111 1111\n1111 1111",
        "4111 1111\r\n1111 1111",
        "4111  1111  1111  1111",
        "4111_1111_1111_1111",
        "4111,1111,1111,1111",
        "4111, 1111, 1111, 1111",
        "4111/1111/1111/1111",
        "41 11 11 11 11 11 11 11",
        "41-11-11-11-11-11-11-11",
        "3782\t822463\t10005",
        "6011 0009 9013 9424",
    ] {
        one(Kind::Card, &format!("card {text} of Jo"), text);
        one(Kind::Card, &format!("pay,{text},123"), text);
    }
    one(Kind::Card, "Karte4111 1111 1111 1111", "4111 1111 1111 1111");
    one(Kind::Card, "(Visa4111111111111111)", "4111111111111111");
}

#[test]
fn phones_and_accounts_are_found_over_a_line_break() {
    one(Kind::Phone, "+49 30\n1234567 is it", "+49 30\n1234567");
    one(Kind::Phone, "call +1 (415)\r\n555-0100", "+1 (415)\r\n555-0100");
    one(
        Kind::Iban,
        "DE89 3704 0044\n0532 0130 00",
        "DE89 3704 0044\n0532 0130 00",
    );
    one(
        Kind::Iban,
        "DE89 3704 0044 \r\n0532 0130 00",
        "DE89 3704 0044 \r\n0532 0130 00",
    );
    one(Kind::Iban, "DE89.3704.0044.0532.0130.00", "DE89.3704.0044.0532.0130.00");
    one(Kind::Phone, "+49 30 1234567\n12 apples", "+49 30 1234567");
}

#[test]
fn phones_behind_words_of_many_languages_are_found() {
    for (word, number) in [
        ("手机号:", "13800138000"),
        ("我的手机号码是", "13800138000"),
        ("电话：", "1088888888"),
        ("電話番号：", "312345678"),
        ("전화번호는 ", "212345678"),
        ("телефон ", "89123456789"),
        ("Телефон: ", "8 9123456789"),
        ("тел. ", "8-912-345-67-89"),
        ("номер телефона — ", "9123456789"),
        ("teléfono: ", "612345678"),
        ("Mi número de móvil es ", "612345678"),
        ("cellulare ", "347 123 4567"),
        ("téléphone : ", "612345678"),
        ("Tél. ", "6 12 34 56 78"),
        ("komórka ", "600 123 456"),
        ("celular: ", "11912345678"),
        ("cep telefonu: ", "532 123 45 67"),
        ("điện thoại: ", "912345678"),
        ("هاتف: ", "501234567"),
        ("puhelin ", "401234567"),
        ("phone_number=", "4155552671"),
        ("phoneNumber: ", "4155552671"),
        ("work mobile: ", "98765 43210"),
    ] {
        one(Kind::Phone, &format!("{word}{number}."), number);
    }
}

#[test]
fn forms_of_single_countries_are_found_without_a_word() {
    for number in [
        "138-0013-8000",
        "138 0013 8000",
        "(11) 91234-5678",
        "(11) 3456-7890",
        "11 91234-5678",
        "8-912-345-67-89",
        "8 (912) 345-67-89",
        "612 34 56 78",
        "1-415-555-0100",
        "1 (415) 555-0100",
        "090-1234-5678",
        "010-1234-5678",
    ] {
        one(Kind::Phone, &format!("write to {number}, please"), number);
    }
}

#[test]
fn addresses_in_scripts_without_spaces_are_found() {
    one(Kind::Email, "用户@例子.公司", "用户@例子.公司");
    one(Kind::Email, "我是 用户@例子.公司。", "用户@例子.公司");
    one(Kind::Email, "用户@例子.公司です", "用户@例子.公司");
    one(Kind::Email, "連絡先は田中@example.jpです", "田中@example.jp");
    one(Kind::Email, "김@example.kr", "김@example.kr");
    one(Kind::Email, "메일은 김철수@example.kr로", "김철수@example.kr");
    one(Kind::Email, "สมชาย@example.co.th", "สมชาย@example.co.th");
    one(Kind::Email, "请联系zhang@example.com吧", "zhang@example.com");
    one(Kind::Email, "git@example.com", "git@example.com");
}

#[test]
fn insurance_numbers_in_small_letters_are_found_behind_their_name() {
    one(Kind::NationalId, "NI number: ab123456c", "ab123456c");
    one(
        Kind::NationalId,
        "my national insurance no. is ab 12 34 56 c",
        "ab 12 34 56 c",
    );
    one(Kind::NationalId, "nino=ab123456c", "ab123456c");
    assert_eq!(found("the order ab123456c, uni ab123456c"), []);
}

#[test]
fn keys_of_json_name_phones() {
    let all = json!({"phone": "415 5552671", "mobileNumber": 4155552671u64, "contact": {"tel": "5552671"}, "nino": "ab123456c",
        "phone_count": 12345678, "fax": "12345", "cells": 1234567890, "telemetry": 12345678, "tel": "none"});
    let mut redactor = Redactor::default();
    let mut sent = all.clone();
    redactor.redact_json(&mut sent).unwrap();
    let expected = json!({"phone": "[PHONE_1]", "mobileNumber": "[PHONE_2]", "contact": {"tel": "[PHONE_3]"}, "nino": "[ID_1]",
        "phone_count": 12345678, "fax": "12345", "cells": 1234567890, "telemetry": 12345678, "tel": "none"});
    assert_eq!(sent, expected);
    redactor.restore_json(&mut sent);
    assert_eq!(sent, all);
}

#[test]
fn ordinary_numbers_and_addresses_are_left() {
    for text in [
        "git@github.com:owner/repo.git and ssh://git@github.com/owner/repo",
        "1.0000, 2.0000 and 12.5000, 13.2500",
        "2021\t2022\t2023\t2024, 1990 1991 1992 1993 in all",
        "4111\t1111\t1111\t1111\t1111\t1111",
        "41 11 11 11 11 11 11 11 4c 01",
        "371,449,635,398,431 and 4,111,111,111,111,111",
        "a4111111111111111b, x4111111111111111, deadbeef4111111111111112",
        "16 GiB are 17179869184 bytes, 13800138000 of them",
        "12345 67890, 60601 90210, 98765 43210",
        "600-123-456, 612 345 678, 1-2-3-4",
        "phone 2026-11-22 10:30, phones 12345678 and phone calls 1234567",
        "telemetry 12345678, hotel 12345678, excel 1234567, motel: 1234567",
        "uuid\n12\n34\n56\n78\n90\n12\n34\n56",
        "a@b.c、例え@です。 @用户 用户@例子",
        "x = [1, 2, 3, 4111, 1111, 1111, 1111, 5555]",
    ] {
        assert_eq!(found(text), [], "{text}");
    }
}
