//! Inputs from request bodies: JSON, or a form with files. Bytes of files are stored as they arrive.
use crate::server_state::ServerState;
use axum::extract::multipart::{Field, Multipart};
use axum::extract::{FromRequest, Request};
use axum::http::header;
use futures_util::TryStreamExt;
use outlast_api::inputs::TurnInputRequest;
use outlast_http::admission_control::RequestPermits;
use outlast_http::extract::JsonBody;
use outlast_http::problem::ApiError;
use outlast_http::request_headers::RequestHeaders;
use outlast_http::strict_json;
use outlast_ports::attachment_upload::AttachmentUpload;
use outlast_ports::branches::MAIN_HEAD;
use outlast_ports::contents::ByteStream;
use outlast_ports::inbox::SessionTarget;
use outlast_runtime::{Input, Runtime};
use outlast_vocab::limits::{self, ServerLimits};
use outlast_vocab::message::{MediaType, Part};
use outlast_vocab::overlay::Overlay;
use outlast_vocab::{Error, Kind};

/// An input and its files, whose bytes are stored.
pub(crate) struct ReceivedInput {
    request: TurnInputRequest,
    files: Vec<AttachmentUpload>,
}

/// A request body with an input.
pub(crate) enum InputBody {
    /// A JSON body, already parsed.
    Json(Box<TurnInputRequest>),
    /// A form whose parts are not read yet.
    Form(Box<Multipart>, Option<RequestPermits>),
}

impl FromRequest<ServerState> for InputBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, shared: &ServerState) -> Result<Self, ApiError> {
        let said = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if !said.is_some_and(|said| said.to_ascii_lowercase().starts_with("multipart/form-data")) {
            let JsonBody(incoming) = JsonBody::from_request(request, shared).await?;
            return Ok(Self::Json(Box::new(incoming)));
        }
        let permits = request.extensions().get::<RequestPermits>().cloned();
        let form = Multipart::from_request(request, shared).await;
        let form = form.map_err(|cause| Error::new(Kind::InputInvalid, cause.body_text()))?;
        Ok(Self::Form(Box::new(form), permits))
    }
}

impl InputBody {
    /// Returns the input. Stores the bytes of its files.
    pub(crate) async fn receive(
        self,
        runtime: &Runtime,
        limits: &ServerLimits,
    ) -> Result<ReceivedInput, Error> {
        let (mut form, permits) = match self {
            Self::Json(request) => return Ok(ReceivedInput { request: *request, files: Vec::new() }),
            Self::Form(form, permits) => (form, permits),
        };
        let mut request = TurnInputRequest::default();
        let (mut files, most) = (Vec::new(), runtime.limits().attachments_per_input);
        while let Some(field) = form.next_field().await.map_err(|cause| form_error(&cause))? {
            if field.file_name().is_some() {
                limits::check("attachments_per_input", files.len() + 1, most)?;
                files.push(store_file(runtime, field).await?);
                continue;
            }
            let name = field.name().unwrap_or_default().to_owned();
            let said = read_field(field, permits.as_ref(), limits.body_bytes).await?;
            match name.as_str() {
                "input" => request = strict_json::read(&said)?,
                other => {
                    let detail =
                        format!("expected a field `input` with JSON, and files; got a field `{other}`");
                    return Err(Error::new(Kind::InputInvalid, detail));
                }
            }
        }
        Ok(ReceivedInput { request, files })
    }
}

async fn store_file(runtime: &Runtime, field: Field<'_>) -> Result<AttachmentUpload, Error> {
    let said = field.content_type().unwrap_or("application/octet-stream").to_ascii_lowercase();
    let kind = said.split(';').next().unwrap_or_default().trim().to_owned();
    let name = field.file_name().filter(|name| !name.is_empty()).map(ToOwned::to_owned);
    let pieces: ByteStream<'_> = Box::pin(field.map_err(|cause| form_error(&cause)));
    runtime.attachments().keep(MediaType::try_from(kind)?, name, pieces).await
}

async fn read_field(
    mut field: Field<'_>,
    permits: Option<&RequestPermits>,
    most: usize,
) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    while let Some(piece) = field.chunk().await.map_err(|cause| form_error(&cause))? {
        limits::check("body_bytes", bytes.len() + piece.len(), most)?;
        if let Some(permits) = permits {
            permits.acquire_body_bytes(piece.len())?;
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

fn form_error(cause: &axum::extract::multipart::MultipartError) -> Error {
    Error::new(Kind::InputInvalid, format!("the form cannot be read: {}", cause.body_text()))
}

impl ReceivedInput {
    /// Returns the session key in the body.
    pub(crate) fn session_key(&self) -> Option<&str> {
        self.request.session_key.as_deref()
    }

    /// Converts the body to an input for the runtime.
    pub(crate) async fn into_input(
        self,
        runtime: &Runtime,
        target: SessionTarget,
        RequestHeaders { key, request, traceparent }: RequestHeaders,
    ) -> Result<Input, Error> {
        let Self { request: body, files } = self;
        let TurnInputRequest { text, session_key, agent, overlay, head, schema, .. } = body;
        let TurnInputRequest { delivery, attachments, plugins, .. } = body;
        let wrong = |cause| Error::new(Kind::InputInvalid, format!("`overlay` is invalid: {cause}"));
        let overlay = overlay.map(Overlay::from_json).transpose().map_err(wrong)?;
        let mut parts = if text.is_empty() { Vec::new() } else { vec![Part::text(text)] };
        if let (SessionTarget::Id(session), Some(named)) = (&target, session_key) {
            let detail = format!("the path names {session}; remove `session_key` (`{named}`)");
            return Err(Error::new(Kind::InputInvalid, detail));
        }
        for id in attachments {
            let SessionTarget::Id(session) = target else {
                let detail = format!("{id} belongs to a session; send the input to that one by its id");
                return Err(Error::new(Kind::InputInvalid, detail));
            };
            let attachment = runtime.attachments().info(session, id).await?.attachment;
            parts.push(Part::Attachment { attachment });
        }
        Ok(Input {
            target,
            parts,
            key,
            request,
            repeatable: None,
            index: None,
            delivery: delivery.unwrap_or_default(),
            head: head.unwrap_or_else(|| MAIN_HEAD.to_owned()),
            output: schema,
            plugins,
            traceparent,
            before: Vec::new(),
            note: None,
            client_tools: Vec::new(),
            provider_wait_s: None,
            agent,
            overlays: overlay.into_iter().collect(),
            files,
        })
    }
}
