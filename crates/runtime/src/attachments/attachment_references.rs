//! Attachment references in tool arguments: a model passes `attachment:att_…`, and the tool gets the content.
//!
//! The journal stores the reference. The content is read when the arguments are checked and again when the tool runs.
//! Attachments are content-addressed, so both reads return the same bytes. If the schema of an argument says
//! `"format": "attachment"`, the tool gets the reference itself.
use crate::attachments::Attachments;
use outlast_ports::contents::collect_bytes;
use outlast_vocab::id::AttachmentId;
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::{Error, Kind, SessionId, limits};
use serde_json::Value;
use std::borrow::Cow;

/// Resolves references to the attachments of a session.
pub(crate) struct AttachmentResolver {
    /// The attachments. `None` on a host that stores nothing.
    pub(crate) attachments: Option<Attachments>,
    /// The session that owns them.
    pub(crate) session: SessionId,
    /// The most bytes that the arguments of one call may refer to.
    pub(crate) bytes: usize,
}

/// A reference in the arguments.
struct AttachmentReference {
    /// JSON pointer to it.
    place: String,
    to: AttachmentId,
    /// Whether the schema says that the value is a string. Then JSON content is not parsed.
    text: bool,
}

impl AttachmentResolver {
    /// Returns the arguments with all references replaced by the content.
    pub(crate) async fn project<'v>(
        &self,
        arguments: &'v Value,
        schema: &Value,
    ) -> Result<Cow<'v, Value>, Error> {
        let mut references = Vec::new();
        find(arguments, schema, &mut String::new(), &mut references);
        if references.is_empty() {
            return Ok(Cow::Borrowed(arguments));
        }
        let (mut whole, mut total) = (arguments.clone(), 0);
        for reference in references {
            let (value, bytes) = self.read(&reference).await?;
            total += bytes;
            limits::check("projected_bytes", total, self.bytes)?;
            if let Some(place) = whole.pointer_mut(&reference.place) {
                *place = value;
            }
        }
        Ok(Cow::Owned(whole))
    }

    /// Returns a call with all references in its arguments replaced by the content.
    pub(crate) async fn call<'c>(
        &self,
        call: &'c PreparedCall,
        schema: &Value,
    ) -> Result<Cow<'c, PreparedCall>, Error> {
        Ok(match self.project(&call.arguments, schema).await? {
            Cow::Borrowed(_) => Cow::Borrowed(call),
            Cow::Owned(arguments) => Cow::Owned(PreparedCall { arguments, ..call.clone() }),
        })
    }

    async fn read(&self, reference: &AttachmentReference) -> Result<(Value, usize), Error> {
        let (id, place) = (reference.to, &reference.place);
        let invalid = |why: String| Error::new(Kind::ToolArgsInvalid, format!("at {place}: {id} {why}"));
        let nothing = || invalid("is not available: this host has no storage".to_owned());
        let attachments = self.attachments.as_ref().ok_or_else(nothing)?;
        let (view, pieces) = attachments.open(self.session, id).await?;
        let media_type = view.attachment.media_type;
        let bytes = collect_bytes(pieces, "projected_bytes", self.bytes).await?;
        let size = bytes.len();
        let text = String::from_utf8(bytes).map_err(|_| {
            invalid(format!("is {}, not text; it cannot be passed to this tool", media_type.as_str()))
        })?;
        let is_json = media_type.as_str() == "application/json" && !reference.text;
        let value = is_json.then(|| serde_json::from_str(&text).ok()).flatten();
        Ok((value.unwrap_or(Value::String(text)), size))
    }
}

/// Collects the references in a value, except those that the schema wants unresolved.
fn find(value: &Value, schema: &Value, place: &mut String, found: &mut Vec<AttachmentReference>) {
    match value {
        Value::String(text) => {
            if let Some(to) = AttachmentId::referred_to(text).filter(|_| schema["format"] != "attachment") {
                found.push(AttachmentReference {
                    place: place.clone(),
                    to,
                    text: schema["type"] == "string",
                });
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                within(place, &index.to_string(), |place| find(item, &schema["items"], place, found));
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                let schema = schema["properties"].get(name).unwrap_or(&Value::Null);
                let step = name.replace('~', "~0").replace('/', "~1");
                within(place, &step, |place| find(member, schema, place, found));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn within(place: &mut String, step: &str, look: impl FnOnce(&mut String)) {
    let before = place.len();
    place.push('/');
    place.push_str(step);
    look(place);
    place.truncate(before);
}
