//! Serves the console: its page and assets, which are embedded in the binary.
//!
//! `console/dist` is checked in, so that the build needs no Node. `cargo xtask console --check` verifies that
//! it matches the sources. The files contain no secrets and no data: the page loads everything from the API
//! with the user's key.
use axum::Router;
use axum::body::Body;
use axum::extract::RawQuery;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use outlast_vocab::Hash;

/// The paths that serve the page. The page itself chooses the view by path.
const PAGES: [&str; 10] = [
    "/",
    "/sessions",
    "/sessions/{session}",
    "/compare",
    "/approvals",
    "/costs",
    "/agents",
    "/agents/{name}",
    "/access",
    "/server",
];

/// The content security policy: only scripts, styles, images and connections of this origin, nothing inline,
/// and no text as markup. `blob:` is for images that the page fetches with a key.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// A file, uncompressed and compressed.
#[derive(Clone, Copy)]
struct ConsoleFile {
    name: &'static str,
    media_type: &'static str,
    plain: &'static [u8],
    gzipped: &'static [u8],
}

macro_rules! file {
    ($name:literal, $media_type:literal) => {
        ConsoleFile {
            name: $name,
            media_type: $media_type,
            plain: include_bytes!(concat!("../../../console/dist/", $name)),
            gzipped: include_bytes!(concat!("../../../console/dist/", $name, ".gz")),
        }
    };
}

const PAGE: ConsoleFile = file!("index.html", "text/html; charset=utf-8");
const ASSETS: [ConsoleFile; 3] = [
    file!("console.js", "text/javascript; charset=utf-8"),
    file!("console.css", "text/css; charset=utf-8"),
    file!("icon.svg", "image/svg+xml"),
];

/// Returns the routes of the console. They are not part of the API and need no key.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let pages = PAGES.into_iter().map(|path| (path.to_owned(), PAGE));
    let assets = ASSETS.into_iter().map(|file| (format!("/assets/{}", file.name), file));
    pages.chain(assets).fold(Router::new(), |router, (path, file)| {
        let tag = tag(&file);
        let answer = move |RawQuery(query): RawQuery, headers: HeaderMap| async move {
            file.respond(&tag, query.as_deref(), &headers)
        };
        router.route(&path, get(answer))
    })
}

/// Returns the `ETag` of a file.
fn tag(file: &ConsoleFile) -> String {
    format!("\"{}\"", Hash::of(file.plain))
}

impl ConsoleFile {
    fn respond(self, tag: &str, query: Option<&str>, headers: &HeaderMap) -> Response {
        let said =
            |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
        let known =
            said(header::IF_NONE_MATCH).split(',').any(|known| known.trim().trim_start_matches("W/") == tag);
        let packs =
            said(header::ACCEPT_ENCODING).split(',').any(|way| way.trim().split(';').next() == Some("gzip"));
        let mut response = match (known, packs) {
            (true, _) => StatusCode::NOT_MODIFIED.into_response(),
            (false, true) => Body::from(Bytes::from_static(self.gzipped)).into_response(),
            (false, false) => Body::from(Bytes::from_static(self.plain)).into_response(),
        };
        let answer = response.headers_mut();
        if packs && !known {
            answer.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        if let Ok(tag) = HeaderValue::from_str(tag) {
            answer.insert(header::ETAG, tag);
        }
        answer.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.media_type));
        answer.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        answer.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        answer.insert(header::CACHE_CONTROL, HeaderValue::from_static(self.cache_policy(query)));
        response
    }

    /// Returns the cache policy. The page links its files with the hash of their content in the query, so
    /// such an address never changes its content.
    fn cache_policy(self, query: Option<&str>) -> &'static str {
        let page = String::from_utf8_lossy(PAGE.plain);
        let named = query.is_some_and(|query| page.contains(&format!("\"/assets/{}?{query}\"", self.name)));
        if named { "public, max-age=31536000, immutable" } else { "no-cache" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(file: ConsoleFile, query: Option<&str>, said: &[(header::HeaderName, &str)]) -> Response {
        let headers = said.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        file.respond(&tag(&file), query, &headers)
    }

    fn header_of(response: &Response, name: header::HeaderName) -> &str {
        response.headers().get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Returns the query under which the page links a file.
    fn named(file: ConsoleFile) -> String {
        let page = String::from_utf8_lossy(PAGE.plain).into_owned();
        let (_, rest) = page.split_once(&format!("/assets/{}?", file.name)).unwrap();
        rest.split('"').next().unwrap().to_owned()
    }

    #[test]
    fn console_policy_allows_only_its_own_files() {
        let response = asked(PAGE, None, &[]);
        let policy = header_of(&response, header::CONTENT_SECURITY_POLICY);
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
        let page = str::from_utf8(PAGE.plain).unwrap();
        assert!(!page.contains("style=") && !page.contains("<style") && !page.contains("//"), "{page}");
        assert_eq!(
            page.matches("<script").count(),
            page.matches("<script type=\"module\" src=\"/assets/").count()
        );
    }

    #[test]
    fn only_versioned_file_urls_are_cached_forever() {
        for file in ASSETS {
            let keeps = |query: Option<&str>| {
                header_of(&asked(file, query, &[]), header::CACHE_CONTROL).contains("immutable")
            };
            assert!(keeps(Some(&named(file))), "{}", file.name);
            for other in [None, Some(""), Some("v="), Some("v=0000000000000000"), Some("x")] {
                assert!(!keeps(other), "{} {other:?}", file.name);
            }
        }
        assert_eq!(header_of(&asked(PAGE, None, &[]), header::CACHE_CONTROL), "no-cache");
    }

    #[test]
    fn known_etag_returns_not_modified() {
        let tag = tag(&PAGE);
        for known in [tag.clone(), format!("W/{tag}"), format!("\"other\", {tag}")] {
            let response = asked(PAGE, None, &[(header::IF_NONE_MATCH, &known)]);
            assert_eq!(response.status(), StatusCode::NOT_MODIFIED, "{known}");
        }
        assert_eq!(asked(PAGE, None, &[(header::IF_NONE_MATCH, "\"other\"")]).status(), StatusCode::OK);
    }

    #[test]
    fn file_is_gzipped_if_the_client_accepts_it() {
        let encoding = |said: &str| {
            let response = asked(PAGE, None, &[(header::ACCEPT_ENCODING, said)]);
            header_of(&response, header::CONTENT_ENCODING).to_owned()
        };
        assert_eq!(encoding("br, gzip;q=0.8"), "gzip");
        assert_eq!(encoding("br"), "");
        let bytes: usize = ASSETS.iter().chain([&PAGE]).map(|file| file.gzipped.len()).sum();
        assert!(bytes <= 250_000, "the console is {bytes} bytes packed");
    }
}
