//! Generates the type that implements `Tool`.
use crate::function::{ToolFunction, ToolOutput};
use crate::options::ToolOptions;
use crate::parameter::{ArgumentDefault, ParameterRole, ToolArgument, ToolParameter};
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote};
use syn::{Attribute, Error, Path, Result, parse_quote};

/// The maximum length of a name in bytes, as in `ToolName`.
const NAME_BYTES: usize = 64;

/// Generates the tool of a function: a type of the same name, with the function as `call`.
pub(crate) fn expand(options: &ToolOptions, function: &ToolFunction) -> Result<TokenStream> {
    let outlast: Path = options.crate_path.clone().unwrap_or_else(|| parse_quote!(::outlast));
    let ToolFunction { item, docs, description, parameters, output } = function;
    let (tool, visibility) = (&item.sig.ident, &item.vis);
    let name = name(options, tool)?;
    let conditions = cfg_attributes(&item.attrs);

    let mut call = item.clone();
    call.sig.ident = format_ident!("call");
    let methods = options.methods(&outlast);
    let durable = (options.durable || parameters.iter().any(is_durable)).then(|| quote!(.durable()));
    let returns = match (options.returns, output) {
        (false, _) => quote!(),
        (true, ToolOutput::Value(value)) => quote!(.returns::<#value>()),
        (true, ToolOutput::RunOutcome) => {
            let what = "`ToolRunOutcome` has no schema; remove `returns`, or return `Result<T, Error>`";
            return Err(Error::new_spanned(&item.sig.output, what));
        }
    };

    let ArgumentTokens { definition, ty: arguments, fields } = arguments(&outlast, parameters);
    let passed = call_arguments(parameters);
    let (needs, services) = service_types(parameters);
    let wants_facts = parameters.iter().any(|parameter| matches!(parameter.role, ParameterRole::Call));
    let call_facts = if wants_facts { quote!(call) } else { quote!(_) };
    let result = match output {
        ToolOutput::Value(_) => quote!(#outlast::tool::done(#tool::call(#(#passed),*).await?)),
        ToolOutput::RunOutcome => quote!(#tool::call(#(#passed),*).await),
    };

    Ok(quote! {
        #(#conditions)*
        #(#docs)*
        #[allow(non_camel_case_types, reason = "it is called like the function it was")]
        #visibility struct #tool;

        #(#conditions)*
        impl #tool {
            /// The function itself.
            #[allow(
                clippy::unused_async, clippy::needless_pass_by_value, clippy::too_many_arguments, dead_code,
                reason = "a tool is asynchronous and owns what it is passed"
            )]
            #call
        }

        #(#conditions)*
        const _: () = {
            #definition

            impl #outlast::tool::Tool for #tool {
                type Args = #arguments;
                type Needs = #needs;

                fn spec(&self) -> #outlast::tool::ToolSpec {
                    #outlast::tool::ToolSpec::new(#name, #description) #methods #durable #returns
                }

                async fn run(
                    &self,
                    #services: Self::Needs,
                    #call_facts: #outlast::tool::Call,
                    args: Self::Args,
                ) -> ::std::result::Result<#outlast::tool::ToolRunOutcome, #outlast::Error> {
                    #fields
                    #result
                }
            }
        };
    })
}

/// Returns the name of the tool.
fn name(options: &ToolOptions, function: &Ident) -> Result<String> {
    let (name, span) = match &options.name {
        Some(name) => (name.value(), name.span()),
        None => (function.to_string().trim_start_matches("r#").to_owned(), function.span()),
    };
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES || !name.bytes().all(fits) {
        let what = format!(
            "expected a tool name of 1 to {NAME_BYTES} letters, digits, `_`, `-`, `.`, got `{name}`; set one with `name = \"…\"`"
        );
        return Err(Error::new(span, what));
    }
    Ok(name)
}

/// Returns the `cfg` attributes of the function.
fn cfg_attributes(attributes: &[Attribute]) -> Vec<&Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).collect()
}

fn is_durable(parameter: &ToolParameter) -> bool {
    matches!(parameter.role, ParameterRole::Service { durable: true })
}

/// The arguments of the tool: a type, and its fields as variables.
struct ArgumentTokens {
    definition: TokenStream,
    ty: TokenStream,
    fields: TokenStream,
}

fn arguments(outlast: &Path, parameters: &[ToolParameter]) -> ArgumentTokens {
    if let Some(whole) =
        parameters.iter().find(|parameter| matches!(parameter.role, ParameterRole::Arguments))
    {
        let ty = &whole.ty;
        return ArgumentTokens { definition: quote!(), ty: quote!(#ty), fields: quote!() };
    }
    let (mut defaults, mut fields, mut variables) = (Vec::new(), Vec::new(), Vec::new());
    for (index, parameter) in parameters.iter().enumerate() {
        let ParameterRole::Argument(argument) = &parameter.role else { continue };
        let ToolArgument { name, description, default, attributes } = argument;
        let ty = &parameter.ty;
        let description = (!description.is_empty()).then(|| quote!(#[doc = #description]));
        let default = match default {
            ArgumentDefault::None => quote!(),
            ArgumentDefault::OfType => quote!(#[serde(default)]),
            ArgumentDefault::Value(value) => {
                let function = format_ident!("default_{index}");
                let path = function.to_string();
                defaults.push(quote!(fn #function() -> #ty { #value }));
                quote!(#[serde(default = #path)])
            }
        };
        fields.push(quote!(#description #default #(#attributes)* #name: #ty));
        let variable = hidden_variable(index);
        variables.push(quote!(#name: #variable));
    }
    let (serde, schemars) = (path_text(outlast, "serde"), path_text(outlast, "schemars"));
    let definition = quote! {
        #(#defaults)*

        #[derive(#outlast::serde::Deserialize, #outlast::schemars::JsonSchema)]
        #[serde(crate = #serde, deny_unknown_fields)]
        #[schemars(crate = #schemars)]
        #[allow(unreachable_pub, reason = "it is as visible as the tool, and has no name outside")]
        pub struct Arguments { #(#fields),* }
    };
    ArgumentTokens {
        definition,
        ty: quote!(Arguments),
        fields: quote!(let Arguments { #(#variables),* } = args;),
    }
}

/// Returns a path below Outlast as a string, which the derives require.
fn path_text(outlast: &Path, name: &str) -> Literal {
    let mut text = String::new();
    if outlast.leading_colon.is_some() {
        text.push_str("::");
    }
    for segment in &outlast.segments {
        text.push_str(&segment.ident.to_string());
        text.push_str("::");
    }
    Literal::string(&(text + name))
}

/// Returns the value passed to each parameter of the function.
fn call_arguments(parameters: &[ToolParameter]) -> Vec<TokenStream> {
    let each = parameters.iter().enumerate().map(|(index, parameter)| match parameter.role {
        ParameterRole::Arguments => quote!(args),
        ParameterRole::Call => quote!(call),
        ParameterRole::Argument(_) | ParameterRole::Service { .. } => {
            let variable = hidden_variable(index);
            quote!(#variable)
        }
    });
    each.collect()
}

/// Returns the services as a type and as a pattern. Nested pairs allow any number of them.
fn service_types(parameters: &[ToolParameter]) -> (TokenStream, TokenStream) {
    let services = parameters.iter().enumerate().rev();
    let services = services.filter(|(_, parameter)| matches!(parameter.role, ParameterRole::Service { .. }));
    services.fold((quote!(()), quote!(())), |(types, names), (index, parameter)| {
        let (ty, name) = (&parameter.ty, hidden_variable(index));
        (quote!((#ty, #types)), quote!((#name, #names)))
    })
}

/// Returns a variable that the function cannot see.
fn hidden_variable(index: usize) -> Ident {
    Ident::new(&format!("parameter_{index}"), Span::mixed_site())
}
