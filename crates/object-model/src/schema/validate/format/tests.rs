use super::*;

#[track_caller]
fn check(format: &str, good: &[&str], bad: &[&str]) {
    let f = Format::parse(format, Some(&JsonType::String)).expect("a known format");
    for text in good {
        assert!(f.accepts(text), "{format} should accept {text:?}");
    }
    for text in bad {
        assert!(!f.accepts(text), "{format} should refuse {text:?}");
    }
}

#[test]
fn formats_count_only_beside_their_type() {
    assert!(Format::parse("date-time", None).is_some());
    assert!(Format::parse("int32", None).is_none());
    assert!(Format::parse("int32", Some(&JsonType::Integer)).is_some());
    assert!(Format::parse("uint32", Some(&JsonType::Integer)).is_none());
    assert!(Format::parse("double", Some(&JsonType::Number)).is_some());
    assert!(Format::parse("date", Some(&JsonType::Object)).is_none());
    assert!(Format::parse("binary", Some(&JsonType::String)).is_none());
}

#[test]
fn times() {
    check(
        "date",
        &["2024-02-29", "0000-01-01"],
        &["2023-02-29", "2024-2-29", "2024-13-01", "2024-01-00", "é24-02-291", ""],
    );
    check(
        "date-time",
        &["2014-12-15T19:30:20.000Z", "2014-12-15t19:30:20z", "2014-12-15T19:30:20+01:00", "2014-12-15T19:30:20,5Z"],
        &[
            "2014-12-15",
            "2014-12-15T24:00:00Z",
            "2014-12-15T19:60:00Z",
            "2014-12-15T19:30:20",
            "2014-12-15 19:30:20Z",
            "T",
        ],
    );
    check(
        "duration",
        &["22 ns", "1h30m", "1.5h", "-2s", "0", "3 weeks", "1 day", "5 µs", "12hr", "2 Minutes", ".5s"],
        &["", "abc", "1", "1x", "-", "s", "."],
    );
}

#[test]
fn addresses() {
    check(
        "ipv4",
        &["192.168.0.1", "010.0.0.1", "::ffff:1.2.3.4"],
        &["1.2.3", "1.2.3.4.5", "256.0.0.1", "::1", "1.2.3.a", ""],
    );
    check("ipv6", &["::1", "2001:db8::1", "::ffff:1.2.3.4"], &["1.2.3.4", "::g", "fe80::1%eth0", ""]);
    check(
        "cidr",
        &["10.0.0.0/8", "2001:db8::/32", "010.1.1.1/24"],
        &["10.0.0.0", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "/8"],
    );
    check(
        "mac",
        &["01:23:45:67:89:ab", "01-23-45-67-89-AB", "0123.4567.89ab", "01:23:45:67:89:ab:cd:ef"],
        &["01:23:45:67:89", "01:23:45:67:89:zz", "0123456789ab", ""],
    );
    check(
        "hostname",
        &["somewhere.com", "localhost", "a-b.example.london", "xn--p1ai.рф", "1host"],
        &["-a.com", "a..b", "a_b.com", "somewhere.com!", "", "a.1"],
    );
    check(
        "uri",
        &[
            "http://www.example.com/a?b=c",
            "/path",
            "mailto:a@b",
            "https://[::1]:8080/x",
            "*",
            "urn:x:y",
            "http://u:p@h/",
        ],
        &[
            "",
            "relative/path",
            "http://a b/",
            "//%zz",
            "http://[::1",
            "http://[abc]/",
            "http://a:b:80/",
            "http://h:port/",
            ":x",
            "a\u{1}",
        ],
    );
    check(
        "email",
        &[
            "a@b.c",
            "A B <a@b>",
            "\"x y\"@z.org",
            "<a@b>",
            "a@[1.2.3.4]",
            "jos\u{e9}@example.org",
            "Joe (comment) <j@x>",
        ],
        &["", "a", "a@", "@b", "a@b c", "a..b@c", "A <a@b", "a@b>", "\"a@b", "(a@b"],
    );
}

#[test]
fn numbers_and_colours() {
    check(
        "uuid",
        &["d491fd00-0ab1-4bd4-8a6b-3c4a7b0d0c3e", "D491FD000AB14BD48A6B3C4A7B0D0C3E"],
        &["d491fd00", "", "g491fd00-0ab1-4bd4-8a6b-3c4a7b0d0c3e"],
    );
    check("uuid4", &["d491fd00-0ab1-4bd4-8a6b-3c4a7b0d0c3e"], &["d491fd00-0ab1-3bd4-8a6b-3c4a7b0d0c3e"]);
    check("isbn", &["0321751043", "978-0321751041", "080442957X"], &["0321751044", "9780321751042", "", "X"]);
    check("creditcard", &["4111-1111-1111-1111", "5500005555555559"], &["4111111111111112", "123", ""]);
    check("ssn", &["111-11-1111", "111 11 1111"], &["111111111", "111-11-111a"]);
    check("hexcolor", &["#FFFFFF", "fff"], &["#ffff", "#ggg", ""]);
    check(
        "rgbcolor",
        &["rgb(255,255,255)", "rgb( 0 , 10 ,100)"],
        &["rgb(300,0,0)", "rgb(0,0)", "rgb(00,0,0)", "rgb(,,)"],
    );
    check("byte", &["aGk=", "YQ==", "abcd"], &["", "a", "a=", "ab==c", "a-_="]);
    check("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f", "zz7f1f77bcf86cd799439011"]);
    check("k8s-short-name", &["a-b", "0"], &["a.b", "A", "-a", "a-", "", &"a".repeat(64)]);
    check("k8s-long-name", &["a.b-c", &"a".repeat(200)], &["a.-", "a..b", "", &"a".repeat(254)]);
    check("password", &["anything", ""], &[]);
}
