// The official JavaScript client of Anthropic against a server of ours. Says what went wrong and ends with 1.
//
// anthropic_client.mjs matrix MODULES BASE_URL KEY WRONG_KEY   everything that needs no server that dies
// anthropic_client.mjs again MODULES BASE_URL KEY              reads half of a stream, says `killed?`, waits for a line, asks again
import { createRequire } from "node:module";
import { deepStrictEqual as same, ok } from "node:assert";
import readline from "node:readline";

const [mode, modules, baseURL, apiKey, wrongKey] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { Anthropic } = require("@anthropic-ai/sdk");
const client = new Anthropic({ baseURL, apiKey, maxRetries: 0, timeout: 60_000 });

const SLOW = "one two three four five six seven eight nine ten\neleven twelve";
const input_schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const WEATHER = { name: "weather", description: "Looks out of the window.", input_schema };
const user = (content) => ({ role: "user", content });
const body = (messages, more) => ({ model: "assistant", max_tokens: 1000, messages, ...more });
const ask = (content, more, options) =>
  client.messages.create(body(Array.isArray(content) ? content : [user(content)], more), options);
const texts = (message) => message.content.filter((block) => block.type === "text").map((block) => block.text);

async function refused(call, status, kind, code, param = undefined) {
  const error = await call().then(
    () => undefined,
    (error) => error,
  );
  const said = error?.error?.error;
  same([error?.status, said?.type, said?.code, said?.param], [status, kind, code, param]);
}

async function said(stream) {
  let text = "";
  for await (const event of await stream) if (event.type === "content_block_delta") text += event.delta.text ?? "";
  return text;
}

async function matrix() {
  const found = [];
  for await (const model of client.models.list()) found.push(model.id);
  same(found, ["assistant"]);
  const wrong = client.withOptions({ apiKey: wrongKey });
  await refused(() => wrong.models.list(), 401, "authentication_error", "key.invalid");
  await refused(() => ask("hello", { model: "claude" }), 404, "not_found_error", "agent.not_found", "model");
  await refused(() => ask("hello", { top_p: 0.5 }), 400, "invalid_request_error", "parameter.unsupported", "top_p");

  const plain = await ask("hello", { system: "Be kind." });
  same([texts(plain), plain.stop_reason, plain.model], [["Reply to hello."], "end_turn", "assistant"]);
  same(await said(ask("slowly", { stream: true })), SLOW);
  const stream = client.messages.stream(body([user("slowly")]));
  same(texts(await stream.finalMessage()), [SLOW]);

  const conversation = [user("weather")];
  const asked = await client.messages.stream(body(conversation, { tools: [WEATHER] })).finalMessage();
  const call = asked.content.find((block) => block.type === "tool_use");
  same([asked.stop_reason, call.name, call.input], ["tool_use", "weather", { city: "Oslo" }]);
  const result = { type: "tool_result", tool_use_id: call.id, content: [{ type: "text", text: "snow" }] };
  conversation.push({ role: "assistant", content: asked.content }, user([result]));
  same(texts(await ask(conversation, { tools: [WEATHER] })), ["It is snow there."]);

  const schema = { type: "object", properties: { title: { type: "string" } }, required: ["title"] };
  const ticket = await ask("ticket", { output_config: { format: { type: "json_schema", schema } } });
  same(JSON.parse(texts(ticket)[0]).title, "broken lamp");

  const once = { headers: { "Idempotency-Key": "one" } };
  const first = await ask("hello", {}, once);
  same((await ask("hello", {}, once)).id, first.id);
}

/** A request whose connection broke is made again under its key, and gets the same text. */
async function again() {
  const once = { headers: { "Idempotency-Key": "slow" } };
  const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  let heard = "";
  try {
    for await (const event of await ask("slowly", { stream: true }, once)) {
      if (event.type !== "content_block_delta") continue;
      heard += event.delta.text;
      if (heard !== "one two ") continue;
      console.log("killed?");
      await lines.next();
    }
  } catch {
    // The server died.
  }
  ok(SLOW.startsWith(heard) && heard !== SLOW, heard);
  same(await said(ask("slowly", { stream: true }, once)), SLOW);
  same(texts(await ask("slowly", {}, once)), [SLOW]);
}

await (mode === "again" ? again() : matrix());
console.log("fine");
process.exit(0);
