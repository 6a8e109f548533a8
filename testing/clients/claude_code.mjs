// Claude Code without a terminal (`claude -p`). Its own tools are the client's tools.
import { PIXEL, aborts, answers, fails, model, run, same } from "./harness.mjs";
import { binary, directory, lines } from "./program.mjs";

const claude = binary(`@anthropic-ai/claude-code-${process.platform}-${process.arch}/claude`);

function messages(url) {
  const env = (home) => ({
    ANTHROPIC_BASE_URL: `${url}/anthropic`,
    ANTHROPIC_API_KEY: "any",
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    CLAUDE_CONFIG_DIR: `${home}/.claude`,
    DISABLE_AUTOUPDATER: "1",
  });
  const start = async (prompt, { more = [], home = directory(), input, signal, seen = () => {} } = {}) => {
    const args = ["-p", ...(prompt ? [prompt] : []), "--model", model, "--output-format", "stream-json", "--verbose"];
    const heard = (event) => {
      const delta = event.type === "stream_event" && event.event.delta;
      if (delta?.type === "text_delta") seen(delta.text);
    };
    const { events, code, errors } = await lines(claude, [...args, "--include-partial-messages", ...more], {
      env: env(home),
      cwd: home,
      input,
      signal,
      seen: heard,
    });
    const result = events.find((event) => event.type === "result");
    if (!result || result.is_error || code) {
      throw new Error(`exit ${code}: ${result?.result ?? result?.errors ?? ""} ${errors}`);
    }
    return result;
  };
  const ask = async (prompt, options) => (await start(prompt, options)).result;
  const read = (prompt, seen, signal) => ask(prompt, { seen, signal });
  const mayRun = { more: ["--allowedTools", "Bash"] };
  return {
    ask,
    read,
    plain: async () => same(await ask("case plain"), answers.plain),
    streaming: async () => {
      const pieces = [];
      await ask("case streaming", { seen: (text) => pieces.push(text) });
      same([pieces.length > 1, pieces.join("")], [true, answers.streaming]);
    },
    tools: async () => same(await ask("case loop Bash", mayRun), "round 8"),
    parallel_tools: async () => same(await ask("case together Bash", mayRun), answers.parallel_tools),
    structured: async () => {
      const properties = { title: { type: "string" }, urgent: { type: "boolean" } };
      const schema = { type: "object", properties, required: ["title", "urgent"], additionalProperties: false };
      const more = ["--json-schema", JSON.stringify(schema)];
      same((await start("case structured by StructuredOutput", { more })).structured_output, answers.structured);
    },
    multi_turn: async () => {
      const home = directory();
      await ask("case first turn", { home });
      same(await ask("case second turn", { home, more: ["--continue"] }), "Still blue.");
    },
    image: async () => {
      const source = { type: "base64", media_type: "image/png", data: PIXEL };
      const content = [{ type: "text", text: "case image" }, { type: "image", source }];
      const input = `${JSON.stringify({ type: "user", message: { role: "user", content } })}\n`;
      same(await ask(undefined, { input, more: ["--input-format", "stream-json"] }), answers.image);
    },
    options: async () => same(await ask("case options", { more: ["--effort", "low"] }), answers.options),
    abort: () => aborts(read, ask),
    error: () => fails(() => ask("case error")),
  };
}

await run("@anthropic-ai/claude-code", { messages });
