//! The libraries that Kubernetes adds.

use super::{all_fail, all_hold};

#[test]
fn strings() {
    all_hold(&[
        "'hello'.contains('ell') && 'hello'.startsWith('he') && 'hello'.endsWith('lo')",
        "'tacocat'.charAt(3) == 'o' && 'abc'.charAt(3) == ''",
        "'hello mellow'.indexOf('ello') == 1 && 'hello mellow'.indexOf('ello', 2) == 7 && 'a'.indexOf('b') == -1",
        "'hello mellow'.lastIndexOf('ello') == 7 && 'hello mellow'.lastIndexOf('ello', 6) == 1",
        "'ééa'.indexOf('a') == 2 && 'ééa'.lastIndexOf('é') == 1",
        "'TacoCÆt'.lowerAscii() == 'tacocÆt' && 'tacocat'.upperAscii() == 'TACOCAT'",
        "'hello hello'.replace('he', 'we') == 'wello wello' && 'hello hello'.replace('he', 'we', 1) == 'wello hello'",
        "'ab'.replace('', '_') == '_a_b_'",
        "'a b c'.split(' ') == ['a', 'b', 'c'] && 'a b c'.split(' ', 2) == ['a', 'b c'] && 'a b'.split(' ', 0) == []",
        "'héy'.split('') == ['h', 'é', 'y'] && 'hey'.split('', 2) == ['h', 'ey'] && 'a'.split(' ', -1) == ['a']",
        "'tacocat'.substring(4) == 'cat' && 'tacocat'.substring(0, 4) == 'taco' && 'tacocat'.substring(7) == ''",
        "'  trim\\n '.trim() == 'trim'",
        "['x', 'y'].join() == 'xy' && ['x', 'y'].join('-') == 'x-y' && [].join() == ''",
        "strings.quote('a\"b\\n') == '\"a\\\\\"b\\\\n\"'",
        "'%s is %d and %.2f'.format([dyn('a'), 3, 1.234]) == 'a is 3 and 1.23'",
        "'%s %s %s'.format([dyn([dyn(1), 'a']), {'k': true}, null]) == '[1, \"a\"] {\"k\":true} null'",
        "'%x %X %b %o %%'.format([dyn(255), 'hi', 5, 8]) == 'ff 6869 101 10 %'",
    ]);
    all_fail(&[
        ("'abc'.charAt(4)", "index out of range: 4"),
        ("'abc'.substring(2, 1)", "invalid substring range. start: 2, end: 1"),
        ("'abc'.substring(-1)", "index out of range: -1"),
    ]);
}

#[test]
fn lists_and_sets() {
    all_hold(&[
        "[1, 2, 3].isSorted() && !['b', 'a'].isSorted()",
        "[1, 2, 3].sum() == 6 && [1.5, 2.5].sum() == 4.0 && [].sum() == 0",
        "[duration('1s'), duration('2s')].sum() == duration('3s')",
        "[2, 3, 1].max() == 3 && ['b', 'a'].min() == 'a'",
        "[1, 2, 2].indexOf(2) == 1 && [1, 2, 2].lastIndexOf(2) == 2 && [1].indexOf(5) == -1",
        "[1, 2, 3, 4].slice(1, 3) == [2, 3]",
        "[[1, 2], [3]].flatten() == [1, 2, 3]",
        "dyn([[[1], [2]], [[3]]]).flatten(2) == [1, 2, 3]",
        "[3, 1, 2].sort() == [1, 2, 3] && ['b', 'a'].sort() == ['a', 'b']",
        // Long enough for a sort that notices an order that is none.
        "[9, 4, 7, 1, 8, 3, 6, 2, 5, 0, 9, 4, 7, 1, 8, 3, 6, 2, 5, 0, 9, 4, 7, 1, 8, 3, 6, 2, 5, 0]\
            .map(i, i % 3 == 0 ? double('NaN') : double(i)).sort()[0] == 1.0",
        "lists.range(3) == [0, 1, 2] && [1, 2].reverse() == [2, 1]",
        "[1, 2, 1, 2, 3].distinct() == [1, 2, 3]",
        "self.spec.containers.sortBy(c, c.image).map(c, c.name) == ['a', 'b']",
        "sets.contains([1, 2, 3], [2, 3]) && sets.contains([1], []) && !sets.contains([1], [2])",
        "sets.equivalent([1, 2], [2, 1, 1]) && sets.intersects([1, 2], [2, 3]) && !sets.intersects([1], [2])",
    ]);
    all_fail(&[
        ("[].max() == 1", "max called on empty list"),
        ("[1].slice(0, 2)", "cannot slice(0, 2), list is length 1"),
    ]);
}

#[test]
fn regular_expressions() {
    all_hold(&[
        "'abc 123'.find('[0-9]+') == '123' && 'abc'.find('[0-9]+') == ''",
        "'123 abc 456'.findAll('[0-9]+') == ['123', '456'] && '123 abc 456'.findAll('[0-9]+', 1) == ['123']",
        "'foobar'.matches('o+') && !'foobar'.matches('^o') && matches('foobar', 'bar$')",
        "object.metadata.name.matches('^' + object.metadata.name + '$')",
    ]);
    all_fail(&[("'a'.matches(object.metadata.name + '(')", "error parsing regexp: missing closing ): `web(`")]);
}

#[test]
fn urls() {
    all_hold(&[
        "isURL('https://user@example.com:80/a?b=c') && !isURL('example.com')",
        "url('https://example.com:80/').getScheme() == 'https'",
        "url('https://example.com:80/').getHost() == 'example.com:80'",
        "url('https://[::1]:80/').getHostname() == '::1' && url('https://[::1]:80/').getPort() == '80'",
        "url('https://example.com').getPort() == '' && url('/path/x').getHost() == ''",
        "url('https://example.com/a b/c%20d').getEscapedPath() == '/a%20b/c%20d'",
        "url('https://example.com/?k=a&k=b+c&x=%2F').getQuery() == {'k': ['a', 'b c'], 'x': ['/']}",
        "url('https://example.com/') == url('https://example.com/')",
    ]);
}

#[test]
fn addresses_and_networks() {
    all_hold(&[
        "isIP('1.2.3.4') && isIP('::1') && !isIP('1.2.3') && !isIP('::ffff:1.2.3.4') && !isIP('01.2.3.4')",
        "ip('1.2.3.4').family() == 4 && ip('::1').family() == 6",
        "ip('127.0.0.1').isLoopback() && ip('0.0.0.0').isUnspecified() && ip('8.8.8.8').isGlobalUnicast()",
        "ip('224.0.0.1').isLinkLocalMulticast() && ip('fe80::1').isLinkLocalUnicast() && !ip('fe80::1').isGlobalUnicast()",
        "ip.isCanonical('::1') && !ip.isCanonical('0::1')",
        "string(ip('::0001')) == '::1' && ip('::1') == ip('0::1')",
        "isCIDR('10.0.0.0/8') && !isCIDR('10.0.0.0/33') && !isCIDR('10.0.0.0')",
        "cidr('10.0.0.0/8').containsIP('10.1.2.3') && cidr('10.0.0.0/8').containsIP(ip('10.1.2.3'))",
        "!cidr('10.0.0.0/8').containsIP('11.0.0.1') && cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')",
        "cidr('10.0.0.0/8').containsCIDR(cidr('10.0.0.0/8')) && !cidr('10.0.0.0/8').containsCIDR('0.0.0.0/0')",
        "cidr('192.168.1.7/24').ip() == ip('192.168.1.7') && cidr('192.168.1.7/24').masked() == cidr('192.168.1.0/24')",
        "cidr('::/0').prefixLength() == 0 && string(cidr('10.0.0.0/8')) == '10.0.0.0/8' && type(ip('::1')) == net.IP",
    ]);
}

#[test]
fn quantities_and_versions() {
    all_hold(&[
        "isQuantity('1.5Gi') && !isQuantity('1.5Gx')",
        "quantity('1500m').isGreaterThan(quantity('1')) && quantity('1').isLessThan(quantity('1Ki'))",
        "quantity('200M').compareTo(quantity('0.2G')) == 0 && quantity('200M') == quantity('0.2G')",
        "quantity('50k').add(quantity('20')) == quantity('50020') && quantity('50k').sub(20).asInteger() == 49980",
        "quantity('1.5').isInteger() == false && quantity('1.5').asApproximateFloat() == 1.5 && sign(quantity('-1')) == -1",
        "isSemver('1.2.3') && !isSemver('1.2') && isSemver('v1.2', true) && isSemver('1.2.3-rc.1+build')",
        "semver('1.10.0').isGreaterThan(semver('1.9.0')) && semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))",
        "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('1.2.3').patch() == 3",
        "semver('v01.02', true).compareTo(semver('1.2.0')) == 0 && semver('1.0.0-1').isLessThan(semver('1.0.0-a'))",
    ]);
    all_fail(&[
        ("quantity('1.5').asInteger()", "cannot convert value to integer"),
        ("semver('1.2')", "No Major.Minor.Patch elements found"),
    ]);
}

#[test]
fn formats() {
    all_hold(&[
        "!format.dns1123Label().validate('my-name').hasValue()",
        "format.dns1123Label().validate('My Name').hasValue()",
        "format.named('dns1123Subdomain').value().validate('a..b').value().size() == 1",
        "!format.named('nothing').hasValue()",
        "!format.uuid().validate('123e4567-e89b-12d3-a456-426614174000').hasValue()",
        "format.date().validate('2024-13-01').value() == ['invalid date']",
        "format.byte().validate('!').value() == ['invalid base64']",
    ]);
}

#[test]
fn authorization() {
    all_hold(&[
        "authorizer.group('').resource('pods').namespace('a').name('b').check('get').allowed()",
        "!authorizer.group('').resource('secrets').check('get').allowed()",
        "!authorizer.group('').resource('pods').fieldSelector('a=b').check('get').allowed()",
        "authorizer.path('/healthz').check('get').allowed() && !authorizer.path('/x').check('get').allowed()",
        "authorizer.serviceAccount('ns', 'sa').path('/healthz').check('get').reason() == 'ns/sa'",
        "!authorizer.path('/healthz').check('get').errored() && authorizer.path('/x').check('get').error() == ''",
    ]);
    all_fail(&[
        ("authorizer.path(' ').check('get').allowed()", "path must not be empty"),
        (
            "authorizer.serviceAccount('NS', 'sa').path('/x').check('get').allowed()",
            "Invalid service account namespace",
        ),
    ]);
}
