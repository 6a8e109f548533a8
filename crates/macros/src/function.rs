//! Parses and checks the function. A function that cannot become a tool is rejected with advice.
use crate::doc;
use crate::parameter::{ParameterRole, ToolParameter};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Attribute, Error, GenericArgument, ItemFn, PathArguments, Result, ReturnType, Type};

/// A function that can become a tool.
pub(crate) struct ToolFunction {
    /// The function without the attributes for the tool.
    pub(crate) item: ItemFn,
    /// Its doc comment.
    pub(crate) docs: Vec<Attribute>,
    /// The description for the model.
    pub(crate) description: String,
    /// Its parameters, in order.
    pub(crate) parameters: Vec<ToolParameter>,
    /// Its success type.
    pub(crate) output: ToolOutput,
}

/// The success type of a function.
pub(crate) enum ToolOutput {
    /// A value of this type.
    Value(Box<Type>),
    /// `ToolRunOutcome`: the function decides whether the call is done.
    RunOutcome,
}

impl Parse for ToolFunction {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut item: ItemFn = input.parse().map_err(|error| {
            let what = "`#[tool]` requires an `async fn`; for a tool with state or a probe, implement the trait `Tool`";
            Error::new(error.span(), what)
        })?;
        check_signature(&item)?;
        let (docs, attributes) = std::mem::take(&mut item.attrs).into_iter().partition(doc::is_doc);
        item.attrs = attributes;
        let docs: Vec<Attribute> = docs;
        let description = doc::doc_text(&docs);
        if description.is_empty() {
            let what = format!(
                "the model reads the doc comment of a tool; write `/// …` above `{}`",
                item.sig.ident
            );
            return Err(Error::new(item.sig.ident.span(), what));
        }
        let parameters =
            item.sig.inputs.iter_mut().map(ToolParameter::parse_parameter).collect::<Result<Vec<_>>>()?;
        check_parameters(&parameters)?;
        let output = output(&item)?;
        Ok(Self { item, docs, description, parameters, output })
    }
}

/// Rejects functions that the runtime could not call.
fn check_signature(item: &ItemFn) -> Result<()> {
    let signature = &item.sig;
    if signature.asyncness.is_none() {
        let what = format!("a tool is asynchronous; write `async fn {}`", signature.ident);
        return Err(Error::new(signature.fn_token.span, what));
    }
    if !signature.generics.params.is_empty() || signature.generics.where_clause.is_some() {
        let what = "a tool cannot be generic, because the model must know what to pass; name the types";
        return Err(Error::new(signature.generics.span(), what));
    }
    if let Some(abi) = &signature.abi {
        return Err(Error::new_spanned(abi, "a tool is an ordinary function; remove `extern`"));
    }
    Ok(())
}

/// Rejects a mix of `#[args]` with single arguments, and more than one `Call`.
fn check_parameters(parameters: &[ToolParameter]) -> Result<()> {
    let mut whole = parameters.iter().filter(|parameter| matches!(parameter.role, ParameterRole::Arguments));
    let single = parameters.iter().find(|parameter| matches!(parameter.role, ParameterRole::Argument(_)));
    if whole.next().is_some()
        && let Some(other) = whole.next().or(single)
    {
        let what = "`#[args]` contains all arguments; make this one a field of it, or mark it `#[service]`";
        return Err(Error::new(other.ty.span(), what));
    }
    let mut calls = parameters.iter().filter(|parameter| matches!(parameter.role, ParameterRole::Call));
    if let (Some(_), Some(second)) = (calls.next(), calls.next()) {
        return Err(Error::new(second.ty.span(), "a tool has one `Call`; remove the second one"));
    }
    Ok(())
}

fn output(item: &ItemFn) -> Result<ToolOutput> {
    let what = "a tool returns `Result<T, Error>`, where `T` can be serialised, or `ToolRunOutcome` for a result that follows later";
    let ReturnType::Type(_, ty) = &item.sig.output else {
        return Err(Error::new(item.sig.ident.span(), what));
    };
    let refused = || Error::new_spanned(ty, what);
    let Type::Path(path) = &**ty else { return Err(refused()) };
    let segment =
        path.path.segments.last().filter(|segment| segment.ident == "Result").ok_or_else(refused)?;
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return Err(refused()) };
    let Some(GenericArgument::Type(value)) = arguments.args.first() else { return Err(refused()) };
    let is_outcome = matches!(value, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "ToolRunOutcome"));
    Ok(if is_outcome { ToolOutput::RunOutcome } else { ToolOutput::Value(Box::new(value.clone())) })
}
