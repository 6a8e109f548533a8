//! Messages of an MCP server.
use outlast_mcp::{McpConnection, PinnedDefinitions};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, duplex};

/// The buffer size between client and server in bytes.
const DUPLEX_BUFFER_BYTES: usize = 1 << 16;

/// Uses each line as the server's answer to the next request. Its listing can be accepted and read back, or is
/// rejected.
pub(crate) fn mcp(data: &[u8]) {
    if let Ok(pins) =
        str::from_utf8(data).map_err(drop).and_then(|text| PinnedDefinitions::parse(text).map_err(drop))
    {
        assert_eq!(PinnedDefinitions::parse(&pins.to_json()).ok(), Some(pins));
    }
    // The client waits for a server that never answers. Paused time makes these waits instant.
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().expect("a runtime is made");
    runtime.block_on(async {
        let (ours, theirs) = duplex(DUPLEX_BUFFER_BYTES);
        let server = serve(theirs, data);
        let client = async {
            let (reader, writer) = tokio::io::split(ours);
            let listing = McpConnection::over("fuzzed", reader, writer).await?.list().await?;
            let mut pins = PinnedDefinitions::default();
            pins.accept("fuzzed", listing.tools.clone())?;
            assert_eq!(pins.changes("fuzzed", &listing.tools), []);
            assert_eq!(PinnedDefinitions::parse(&pins.to_json()).ok(), Some(pins));
            Ok::<(), outlast_vocab::Error>(())
        };
        // The server's messages may be wrong in any way, which is only an error.
        let ((), _listed) = tokio::join!(server, client);
    });
}

/// Answers requests until no lines are left, then closes the connection.
async fn serve(stream: tokio::io::DuplexStream, data: &[u8]) {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut requests = BufReader::new(reader).lines();
    let mut answers = data.split(|byte| *byte == b'\n');
    while let Ok(Some(request)) = requests.next_line().await {
        let id =
            serde_json::from_str(&request).ok().and_then(|request: serde_json::Value| request["id"].as_u64());
        let Some(id) = id else { continue };
        let Some(answer) = answers.next() else { return };
        let head = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":");
        for piece in [head.as_bytes(), answer, b"}\n"] {
            if writer.write_all(piece).await.is_err() {
                return;
            }
        }
    }
}
