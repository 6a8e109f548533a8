// The official JavaScript client of Anthropic against a server of ours. Says what went wrong and ends with 1.
//
// anthropic_client.mjs matrix MODULES BASE_URL KEY WRONG_KEY   everything that needs no server that dies
// anthropic_client.mjs again MODULES BASE_URL KEY              reads half of a stream, says `killed?`, waits for a line, asks again
// anthropic_client.mjs stopped MODULES BASE_URL KEY            reads half of a stream, says `killed?`, waits for a line, reads on in vain
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
  return error;
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

  // The id of a request is where this client looks for it.
  const named = { headers: { "X-Client-Request-Id": "req-7" } };
  same((await ask("hello", {}, named))._request_id, "req-7");
  const nobody = () => ask("hello", { model: "claude" }, named);
  const error = await refused(nobody, 404, "not_found_error", "agent.not_found", "model");
  same([error.requestID, error.error.request_id], ["req-7", "req-7"]);

  await ends();
  await once_only();
  await dropped();
}

const all = async (stream) => {
  const events = [];
  for await (const event of await stream) events.push(event);
  return events;
};

/** Every end of a turn, whole and streamed. */
async function ends() {
  for (const [text, reason, words] of [
    ["refuses", "refusal", "I will not."],
    ["runs out", "max_tokens", "one two"],
  ]) {
    const message = await ask(text);
    same([texts(message), message.stop_reason], [[words], reason]);
    const events = await all(ask(text, { stream: true }));
    same(events.at(-2).delta.stop_reason, reason);
  }
  for (const [text, code] of [
    ["unauthorized", "model.unauthorized"],
    ["breaks", "model.cut"],
  ]) {
    await refused(() => ask(text), 406, "api_error", code);
    await refused(() => all(ask(text, { stream: true })), undefined, "api_error", code);
  }
}

/** A client that makes requests again by itself does not make turns again. */
async function once_only() {
  const usual = new Anthropic({ baseURL, apiKey, timeout: 60_000 });
  const ask = (text) => usual.messages.create(body([user(text)]));
  const api = baseURL.replace("/anthropic", "");
  const headers = { Authorization: `Bearer ${apiKey}` };
  const sessions = async () => (await client.get(`${api}/v1/sessions?limit=500`, { headers })).items;
  const before = (await sessions()).length;
  await refused(() => ask("unauthorized, once"), 406, "api_error", "model.unauthorized");
  same((await sessions()).length - before, 1);
  const cancelled = refused(() => ask("forever, once"), 406, "api_error", "turn.cancelled");
  let running;
  while (!running) running = (await sessions()).find((session) => session.title === "forever, once")?.active;
  await client.post(`${api}/openai/v1/responses/${running.replace("trn_", "resp_")}/cancel`, { body: {}, headers });
  await cancelled;
  same((await sessions()).length - before, 2);
}

/** A message whose connection was dropped is made again under its key, and is the same to the last byte. */
async function dropped() {
  const keyed = { headers: { "Idempotency-Key": "dropped" } };
  const heard = [];
  for await (const event of await ask("slowly", { stream: true }, keyed)) {
    heard.push(event);
    if (event.delta?.text === "five ") break;
  }
  const events = await all(ask("slowly", { stream: true }, keyed));
  same(events.slice(0, heard.length), heard);
  same(events.map((event) => event.delta?.text ?? "").join(""), SLOW);
  same(await all(ask("slowly", { stream: true }, keyed)), events);
}

/** A stream that the server ends before its time is an error, and no answer that looks whole. */
async function stopped() {
  const events = (await ask("haltingly", { stream: true }))[Symbol.asyncIterator]();
  let heard = "";
  while (heard !== "one two ") heard += (await events.next()).value.delta?.text ?? "";
  console.log("killed?");
  await readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]().next();
  const read = async () => {
    while (!(await events.next()).done);
  };
  const failed = await read().then(
    () => false,
    () => true,
  );
  ok(failed, "a stream that was cut ended as if it were whole");
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

await { matrix, again, stopped }[mode]();
console.log("fine");
process.exit(0);
