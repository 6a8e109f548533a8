//! `#[tool]`: a function as a tool.
//!
//! Reads the function ([`function`]: its [`parameter`]s, its [`doc`] comment) and the words in the attribute ([`options`]),
//! and writes a type of the function's name that implements the port `Tool` ([`expand`]). It knows services by their names
//! only. Use it through `outlast::tool`, where it is documented.
mod doc;
mod expand;
mod function;
mod options;
mod parameter;

use function::Function;
use options::Options;
use proc_macro::TokenStream;
use syn::parse_macro_input;

/// Makes a tool of an `async fn`. See `outlast::tool`.
#[proc_macro_attribute]
pub fn tool(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let options = parse_macro_input!(attribute as Options);
    let function = parse_macro_input!(item as Function);
    expand::expand(&options, &function).unwrap_or_else(|error| error.to_compile_error()).into()
}
