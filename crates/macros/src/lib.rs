//! The attribute `#[tool]`, which turns a function into a tool.
//!
//! It parses the function ([`function`]: its [`parameter`]s, its [`doc`] comment) and the options of the attribute
//! ([`options`]). It generates a type with the function's name that implements the port `Tool` ([`expand`]). It only
//! knows services by their names. Use it through `outlast::tool`, which documents it.
mod doc;
mod expand;
mod function;
mod options;
mod parameter;

use function::ToolFunction;
use options::ToolOptions;
use proc_macro::TokenStream;
use syn::parse_macro_input;

/// Turns an `async fn` into a tool. See `outlast::tool`.
#[proc_macro_attribute]
pub fn tool(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let options = parse_macro_input!(attribute as ToolOptions);
    let function = parse_macro_input!(item as ToolFunction);
    expand::expand(&options, &function).unwrap_or_else(|error| error.to_compile_error()).into()
}
