//! The options of `#[tool(…)]`.
use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Ident, LitInt, LitStr, Path, Result};

/// The options of a tool, apart from its description and arguments.
#[derive(Default)]
pub(crate) struct ToolOptions {
    /// The name of the tool, if it is not the function's name.
    pub(crate) name: Option<LitStr>,
    /// The path of Outlast, if it is not `::crate_path`.
    pub(crate) crate_path: Option<Path>,
    /// Whether the contract contains the schema of the results.
    pub(crate) returns: bool,
    /// Whether it explicitly needs a durable host.
    pub(crate) durable: bool,
    class: Option<Ident>,
    serial: Option<Span>,
    key: Option<LitStr>,
    attempts: Option<LitInt>,
    backoff_ms: Option<LitInt>,
    deadline_s: Option<LitInt>,
    approval: bool,
    undo: Option<LitStr>,
}

const OPTION_LIST: &str = "`pure`, `idempotent`, `transactional`, `at_most_once`, `serial`, `key = \"…\"`, `attempts = 3`, \
     `backoff_ms = 200`, `deadline_s = 30`, `durable`, `approval`, `undo = \"…\"`, `returns`, `name = \"…\"` or `crate = \"…\"`";

impl Parse for ToolOptions {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut options = Self::default();
        let words = syn::meta::parser(|meta| options.parse_option(&meta));
        syn::parse::Parser::parse2(words, input.parse()?)?;
        options.check()?;
        Ok(options)
    }
}

impl ToolOptions {
    fn parse_option(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let word = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
        match word.as_str() {
            "pure" | "idempotent" | "transactional" | "at_most_once" => {
                let class = meta.path.require_ident()?.clone();
                if let Some(before) = self.class.replace(class) {
                    let what =
                        format!("a tool has one class, but `{before}` is already set; keep one of them");
                    return Err(meta.error(what));
                }
            }
            "serial" => self.serial = Some(meta.path.require_ident()?.span()),
            "durable" => self.durable = true,
            "approval" => self.approval = true,
            "returns" => self.returns = true,
            "undo" => self.undo = Some(meta.value()?.parse()?),
            "name" => self.name = Some(meta.value()?.parse()?),
            "key" => self.key = Some(meta.value()?.parse()?),
            "crate" => self.crate_path = Some(meta.value()?.parse::<LitStr>()?.parse()?),
            "attempts" => self.attempts = Some(positive_integer(meta)?),
            "backoff_ms" => self.backoff_ms = Some(positive_integer(meta)?),
            "deadline_s" => self.deadline_s = Some(positive_integer(meta)?),
            _ => return Err(meta.error(format!("expected one of {OPTION_LIST}"))),
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        if let (Some(serial), Some(key)) = (self.serial, &self.key) {
            let mut error = Error::new(
                serial,
                "`serial` runs calls alone and `key` runs calls with the same key in order; keep one",
            );
            error.combine(Error::new(key.span(), "the key is here"));
            return Err(error);
        }
        if let (Some(pause), None) = (&self.backoff_ms, &self.attempts) {
            let what = "`backoff_ms` requires more than one attempt; add `attempts = 3`";
            return Err(Error::new(pause.span(), what));
        }
        Ok(())
    }

    /// Generates the matching methods of `About`.
    pub(crate) fn methods(&self, outlast: &Path) -> TokenStream {
        let class = match self.class.as_ref().map(ToString::to_string).as_deref() {
            Some("pure") => quote!(.pure()),
            Some("idempotent") => quote!(.idempotent()),
            Some("transactional") => quote!(.transactional()),
            _ => quote!(),
        };
        let scheduling = match (self.serial, &self.key) {
            (Some(_), _) => quote!(.scheduled(#outlast::vocab::tool::CallScheduling::Serial)),
            (None, Some(key)) => {
                quote!(.scheduled(#outlast::vocab::tool::CallScheduling::Keyed(::std::string::String::from(#key))))
            }
            (None, None) => quote!(),
        };
        let retry = self.attempts.as_ref().map(|attempts| {
            let pause = self.backoff_ms.as_ref().map_or_else(
                || quote!(#outlast::vocab::tool::RetryPolicy::default().backoff),
                |pause| quote!(::std::time::Duration::from_millis(#pause)),
            );
            quote!(.attempts(#attempts, #pause))
        });
        let deadline = self
            .deadline_s
            .as_ref()
            .map(|seconds| quote!(.deadline(::std::time::Duration::from_secs(#seconds))));
        let approval = self.approval.then(|| quote!(.approval()));
        let undo = self.undo.as_ref().map(|tool| quote!(.undone_by(#tool)));
        quote!(#class #scheduling #retry #deadline #approval #undo)
    }
}

/// Parses a whole number of at least 1.
fn positive_integer(meta: &ParseNestedMeta<'_>) -> Result<LitInt> {
    let number: LitInt = meta.value()?.parse()?;
    match number.base10_parse::<u32>() {
        Ok(1..) => Ok(number),
        _ => Err(Error::new(number.span(), format!("expected a whole number from 1 to {}", u32::MAX))),
    }
}
