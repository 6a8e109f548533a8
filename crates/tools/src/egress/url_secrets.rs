//! The parts of a URL that may be secret, for redaction in what its server answers.
use reqwest::Url;

/// Returns the parts of a URL that may be secret: path and query, each segment of the path and each value of the query.
/// Segments and values are returned in their written and in their decoded form.
pub fn secret_url_parts(url: &Url) -> Vec<String> {
    let (path, query) = (url.path(), url.query().unwrap_or_default());
    let values = query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
    let mut parts = vec![format!("{path}?{query}"), path.to_owned(), query.to_owned()];
    for part in path.split('/').chain(values) {
        parts.extend([part.to_owned(), percent_decode(part), percent_decode(&part.replace('+', " "))]);
    }
    parts
}

/// Decodes percent-encoding.
fn percent_decode(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let encoded = after.first_chunk().copied().filter(|_| *first == b'%').and_then(hex_byte);
        bytes.push(encoded.unwrap_or(*first));
        rest = if encoded.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Parses two hexadecimal digits.
fn hex_byte(digits: [u8; 2]) -> Option<u8> {
    let value = |digit: u8| u8::try_from(char::from(digit).to_digit(16)?).ok();
    Some((value(digits[0])? << 4) | value(digits[1])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_encoding_is_decoded() {
        for (text, want) in
            [("a%2Fb%c3%a9", "a/bé"), ("100%", "100%"), ("%2", "%2"), ("%+f%zz", "%+f%zz"), ("", "")]
        {
            assert_eq!(percent_decode(text), want);
        }
    }
}
