//! The parameters of a tool: arguments from the model, and services from the runtime.
//!
//! A parameter is a service if its type has one of the names in [`SERVICES`], or if it is marked `#[service]`. `Call`
//! contains the facts of the call. Everything else is an argument.
use crate::doc;
use proc_macro2::TokenStream;
use syn::{Attribute, Error, Expr, FnArg, Ident, Meta, Pat, PatType, Result, Type};

/// Services by the last segment of their type, and whether each needs a durable host.
const SERVICES: &[(&str, bool)] = &[
    ("Service", false),
    ("Steps", true),
    ("Timer", true),
    ("Events", true),
    ("Completion", true),
    ("Progress", false),
    ("Values", false),
    ("Attachments", false),
    ("Models", false),
    ("Tools", false),
    ("Cancellation", false),
    ("Payments", true),
];

/// The type with the facts of one call.
const CALL: &str = "Call";

/// One parameter.
pub(crate) struct ToolParameter {
    pub(crate) role: ParameterRole,
    pub(crate) ty: Type,
}

/// The source of a parameter's value.
pub(crate) enum ParameterRole {
    /// The model, as one of several arguments.
    Argument(ToolArgument),
    /// The model, as all arguments.
    Arguments,
    /// The runtime.
    Service {
        /// Whether it only works on a durable host.
        durable: bool,
    },
    /// The runtime, as the facts of the call.
    Call,
}

/// The name and description of an argument.
pub(crate) struct ToolArgument {
    pub(crate) name: Ident,
    pub(crate) description: String,
    pub(crate) default: ArgumentDefault,
    /// Attributes for serde and schemars, passed on unchanged.
    pub(crate) attributes: Vec<Attribute>,
}

/// The default of an absent argument.
pub(crate) enum ArgumentDefault {
    /// No default: an error, unless its type is an `Option`.
    None,
    /// `#[default]`: the default of its type.
    OfType,
    /// `#[default(…)]`: this value.
    Value(TokenStream),
}

impl ToolParameter {
    /// Parses a parameter and removes our attributes from it.
    pub(crate) fn parse_parameter(input: &mut FnArg) -> Result<Self> {
        let input = match input {
            FnArg::Typed(input) => input,
            FnArg::Receiver(receiver) => {
                let what = "a tool has no `self`; take what it needs as `Service<T>`, and provide it with `Builder::service`";
                return Err(Error::new(receiver.self_token.span, what));
            }
        };
        let marks = ParameterMarks::take(input)?;
        let ty = (*input.ty).clone();
        let role = match (marks.role, last_segment(&ty)) {
            (Some(ParameterMark::Service), _) => ParameterRole::Service { durable: false },
            (Some(ParameterMark::Arguments), _) => ParameterRole::Arguments,
            (None, Some(word)) if word == CALL => ParameterRole::Call,
            (None, Some(word)) => match SERVICES.iter().find(|(name, _)| word == name) {
                Some((_, durable)) => ParameterRole::Service { durable: *durable },
                None => ParameterRole::Argument(argument(input, marks.default, marks.forwarded_attributes)?),
            },
            (None, None) => {
                ParameterRole::Argument(argument(input, marks.default, marks.forwarded_attributes)?)
            }
        };
        input.attrs.retain(|attribute| !doc::is_doc(attribute));
        Ok(Self { role, ty })
    }
}

enum ParameterMark {
    Service,
    Arguments,
}

struct ParameterMarks {
    role: Option<ParameterMark>,
    default: ArgumentDefault,
    forwarded_attributes: Vec<Attribute>,
}

impl ParameterMarks {
    /// Removes our attributes from the parameter. Doc comments stay until they are read.
    fn take(input: &mut PatType) -> Result<Self> {
        let mut marks = Self { role: None, default: ArgumentDefault::None, forwarded_attributes: Vec::new() };
        let mut left = Vec::new();
        for attribute in std::mem::take(&mut input.attrs) {
            match attribute.path().get_ident().map(ToString::to_string).as_deref() {
                Some("service") => marks.role = Some(ParameterMark::Service),
                Some("args") => marks.role = Some(ParameterMark::Arguments),
                Some("default") => {
                    marks.default = match &attribute.meta {
                        Meta::Path(_) => ArgumentDefault::OfType,
                        Meta::List(list) => ArgumentDefault::Value(list.tokens.clone()),
                        Meta::NameValue(pair) => ArgumentDefault::Value(value(&pair.value)),
                    }
                }
                Some("serde" | "schemars" | "validate") => marks.forwarded_attributes.push(attribute),
                Some("doc" | "cfg" | "allow" | "expect" | "warn" | "deny") => left.push(attribute),
                _ => {
                    let what = "expected `#[args]`, `#[service]`, `#[default]`, `#[default(…)]`, a doc comment, or an \
                         attribute of serde or schemars";
                    return Err(Error::new_spanned(attribute, what));
                }
            }
        }
        input.attrs = left;
        Ok(marks)
    }
}

fn value(expression: &Expr) -> TokenStream {
    quote::quote!(#expression)
}

fn argument(input: &PatType, default: ArgumentDefault, attributes: Vec<Attribute>) -> Result<ToolArgument> {
    let Pat::Ident(pattern) = &*input.pat else {
        let what = "an argument needs a name that the model can use; write `name: Type`";
        return Err(Error::new_spanned(&input.pat, what));
    };
    match &*input.ty {
        Type::Reference(_) => {
            let what = "arguments come from a model and are owned; write `String` for `&str`, `Vec<T>` for `&[T]`. A service \
                 of your own is a `Service<T>`, or marked `#[service]`";
            Err(Error::new_spanned(&input.ty, what))
        }
        Type::ImplTrait(_) => {
            let what =
                "the model must know what to pass; name a type that derives `Deserialize` and `JsonSchema`";
            Err(Error::new_spanned(&input.ty, what))
        }
        _ => Ok(ToolArgument {
            name: pattern.ident.clone(),
            description: doc::doc_text(&input.attrs),
            default,
            attributes,
        }),
    }
}

/// Returns the last segment of a type's path: `Steps` of `outlast::service::Steps`.
fn last_segment(ty: &Type) -> Option<&Ident> {
    match ty {
        Type::Path(path) if path.qself.is_none() => path.path.segments.last().map(|segment| &segment.ident),
        _ => None,
    }
}
