// The official JavaScript client of OpenAI against a server of ours. Says what went wrong and ends with 1.
//
// openai_client.mjs matrix MODULES BASE_URL KEY WRONG_KEY   everything that needs no server that dies
// openai_client.mjs resume MODULES BASE_URL KEY             reads half of a stream, says `killed?`, waits for a line, reads on
// openai_client.mjs again MODULES BASE_URL KEY              the same with a completion, which is asked for again under its key
// openai_client.mjs stopped MODULES BASE_URL KEY            reads half of two streams, says `killed?`, waits for a line, reads on in vain
import { createRequire } from "node:module";
import { deepStrictEqual as same, ok } from "node:assert";
import readline from "node:readline";

const [mode, modules, baseURL, apiKey, wrongKey] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { OpenAI } = require("openai");
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: 60_000 });
const model = "assistant";

const SLOW = "one two three four five six seven eight nine ten\neleven twelve";
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const WEATHER = { type: "function", name: "weather", description: "Looks out of the window.", parameters, strict: false };
const FORMAT = {
  type: "json_schema",
  name: "ticket",
  schema: {
    type: "object",
    properties: { title: { type: "string" }, urgent: { type: "boolean" } },
    required: ["title", "urgent"],
    additionalProperties: false,
  },
};

async function refused(call, status, code, param = null) {
  const error = await call().then(
    () => undefined,
    (error) => error,
  );
  same([error?.status, error?.code, error?.param], [status, code, param]);
}

async function all(stream) {
  const events = [];
  for await (const event of await stream) events.push(event);
  return events;
}

const ask = (more) => client.responses.create({ model, input: "hello", ...more });
const say = (messages, more) => client.chat.completions.create({ model, messages, ...more });
const user = (content) => ({ role: "user", content });

async function models() {
  const found = [];
  for await (const model of client.models.list()) found.push(model.id);
  same(found, ["assistant"]);
}

async function errors() {
  const wrong = client.withOptions({ apiKey: wrongKey });
  await refused(() => wrong.models.list(), 401, "key.invalid");
  await refused(() => ask({ model: "gpt-5" }), 404, "agent.not_found", "model");
  await refused(() => ask({ top_p: 0.5 }), 400, "parameter.unsupported", "top_p");
  await refused(() => ask({ reasoning: { effort: "high" } }), 400, "parameter.unsupported", "reasoning");
  await refused(() => ask({ input: [{ type: "item_reference", id: "x" }] }), 400, "parameter.unsupported", "input[0].type");
  await refused(() => say([user("hello")], { seed: 7 }), 400, "parameter.unsupported", "seed");
  await refused(() => say([user("x"), { role: "system", content: "y" }]), 400, "parameter.unsupported", "messages[1].role");
  await refused(() => client.responses.retrieve("resp_nobody"), 404, "turn.not_found");
}

async function plain() {
  const response = await ask({ instructions: "Be kind." });
  same([response.status, response.output_text], ["completed", "Reply to hello."]);
  const completion = await say([user("hello")]);
  same([completion.choices[0].message.content, completion.choices[0].finish_reason], ["Reply to hello.", "stop"]);
}

async function streaming() {
  const events = await all(ask({ input: "slowly", stream: true }));
  const deltas = events.filter((event) => event.type === "response.output_text.delta").map((event) => event.delta);
  same(deltas.join(""), SLOW);
  const id = events[0].response.id;
  const again = await all(client.responses.retrieve(id, { stream: true }));
  same(again, events);
  const rest = await all(client.responses.retrieve(id, { stream: true, starting_after: events[6].sequence_number }));
  same(rest, events.slice(7));
  const final = await client.responses.stream({ model, input: "slowly" }).finalResponse();
  same(final.output_text, SLOW);
  const chunks = await all(say([user("slowly")], { stream: true }));
  same(chunks.map((chunk) => chunk.choices[0].delta.content ?? "").join(""), SLOW);
}

async function tools() {
  const steps = await ask({ input: "in steps" });
  same(steps.output.map((item) => item.type), ["message", "mcp_call", "message"]);
  const first = await ask({ input: "weather", tools: [WEATHER] });
  const [call] = first.output;
  same([call.type, call.name, call.arguments], ["function_call", "weather", '{"city":"Oslo"}']);
  const output = { type: "function_call_output", call_id: call.call_id, output: "snow" };
  const second = await ask({ input: [output], tools: [WEATHER], previous_response_id: first.id });
  same(second.output_text, "It is snow there.");
  let ran = 0;
  const runner = client.chat.completions.runTools({
    model,
    messages: [user("weather")],
    tools: [
      {
        type: "function",
        function: {
          name: "weather",
          description: "Looks out of the window.",
          parameters,
          parse: JSON.parse,
          function: ({ city }) => {
            ran += 1;
            return city === "Oslo" ? "snow" : "sun";
          },
        },
      },
    ],
  });
  same([await runner.finalContent(), ran], ["It is snow there.", 1]);
}

async function structured() {
  const response = await client.responses.parse({ model, input: "a ticket", text: { format: FORMAT } });
  same(response.output_parsed ?? JSON.parse(response.output_text), { title: "broken lamp", urgent: true });
  const { type, ...json_schema } = FORMAT;
  const completion = await say([user("a ticket")], { response_format: { type, json_schema } });
  same(JSON.parse(completion.choices[0].message.content), { title: "broken lamp", urgent: true });
}

async function conversations() {
  const first = await ask({ input: "I am Ann" });
  const second = await ask({ input: "who?", previous_response_id: first.id });
  same(second.conversation.id, first.conversation.id);
  const conversation = await client.conversations.create();
  await ask({ input: "one", conversation: conversation.id });
  const items = await all(client.conversations.items.list(conversation.id, { order: "asc", limit: 1 }));
  same(items.map((item) => item.content[0].text), ["one", "Reply to one."]);
  const given = await all(client.responses.inputItems.list(second.id));
  same(given.map((item) => item.content[0].text), ["who?"]);
}

/// Reads until the model has said five words.
async function half() {
  const stream = await ask({ input: "slowly", background: true, stream: true });
  let [text, last, id] = ["", undefined, undefined];
  for await (const event of stream) {
    last = event.sequence_number;
    id ??= event.response.id;
    if (event.type === "response.output_text.delta") text += event.delta;
    if (text.endsWith("five ")) break;
  }
  return { text, last, id };
}

async function rest({ text, last, id }) {
  const events = await all(client.responses.retrieve(id, { stream: true, starting_after: last }));
  for (const event of events) if (event.type === "response.output_text.delta") text += event.delta;
  same(text, SLOW);
  same([events.at(-1).type, (await client.responses.retrieve(id)).output_text], ["response.completed", SLOW]);
}

async function background() {
  let response = await ask({ input: "slowly", background: true });
  same(response.status, "in_progress");
  while (response.status === "in_progress") {
    await new Promise((done) => setTimeout(done, 100));
    response = await client.responses.retrieve(response.id);
  }
  same(response.output_text, SLOW);
  await rest(await half());
  const endless = await ask({ input: "forever", background: true });
  same((await client.responses.cancel(endless.id)).status, "cancelled");
}

const said = (chunks) => chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");

/** Every end of a turn, whole and streamed. */
async function ends() {
  for (const [text, reason, finish, words] of [
    ["refuses", "content_filter", "content_filter", "I will not."],
    ["runs out", "max_output_tokens", "length", "one two"],
  ]) {
    const event = (await all(ask({ input: text, stream: true }))).at(-1);
    same(event.type, "response.incomplete");
    for (const response of [await ask({ input: text }), event.response]) {
      same([response.status, response.incomplete_details.reason], ["incomplete", reason]);
      same(response.output[0].content[0].text, words);
    }
    const [choice] = (await say([user(text)])).choices;
    same([choice.finish_reason, choice.message.content], [finish, words]);
    const chunks = await all(say([user(text)], { stream: true }));
    same([chunks.at(-1).choices[0].finish_reason, said(chunks)], [finish, words]);
  }
  for (const [text, code] of [
    ["unauthorized", "model.unauthorized"],
    ["breaks", "model.cut"],
  ]) {
    const event = (await all(ask({ input: text, stream: true }))).at(-1);
    same(event.type, "response.failed");
    for (const response of [await ask({ input: text }), event.response])
      same([response.status, response.error.code, response.incomplete_details], ["failed", code, null]);
    await refused(() => say([user(text)]), 406, code);
    await refused(() => all(say([user(text)], { stream: true })), undefined, code);
  }
}

const sessions = async () => (await client.get(`${baseURL.replace("/openai/v1", "")}/v1/sessions?limit=500`)).items;

/** A client that makes requests again by itself does not make turns again. */
async function once() {
  const usual = new OpenAI({ baseURL, apiKey, timeout: 60_000 });
  const ask = (text) => usual.chat.completions.create({ model, messages: [user(text)] });
  const before = (await sessions()).length;
  await refused(() => ask("unauthorized, once"), 406, "model.unauthorized");
  same((await sessions()).length - before, 1);
  const cancelled = refused(() => ask("forever, once"), 406, "turn.cancelled");
  let running;
  while (!running) running = (await sessions()).find((session) => session.title === "forever, once")?.active;
  await client.responses.cancel(running.replace("trn_", "resp_"));
  await cancelled;
  same((await sessions()).length - before, 2);
}

/** A completion whose connection was dropped is made again under its key, and is the same to the last byte. */
async function dropped() {
  const keyed = { headers: { "Idempotency-Key": "dropped" } };
  const ask = () => client.chat.completions.create({ model, messages: [user("slowly")], stream: true }, keyed);
  const heard = [];
  for await (const chunk of await ask()) {
    heard.push(chunk);
    if (chunk.choices[0].delta.content === "five ") break;
  }
  const chunks = await all(ask());
  same(said(chunks), SLOW);
  same(chunks.slice(0, heard.length), heard);
  same(await all(ask()), chunks);
}

async function matrix() {
  const parts = [models, errors, plain, streaming, tools, structured, conversations, background, ends, once, dropped];
  for (const part of parts) await part();
}

/** Lets the server be killed or stopped. */
async function interrupted() {
  console.log("killed?");
  const lines = readline.createInterface({ input: process.stdin });
  await new Promise((done) => lines.once("line", done));
  lines.close();
}

async function resume() {
  const read = await half();
  await interrupted();
  await rest(read);
}

/** A completion whose server was killed is asked for again under its key, and has the same text and the same id. */
async function again() {
  const keyed = { headers: { "Idempotency-Key": "slow" } };
  const ask = (more) => client.chat.completions.create({ model, messages: [user("slowly")], ...more }, keyed);
  let [heard, id] = ["", undefined];
  try {
    for await (const chunk of await ask({ stream: true })) {
      heard += chunk.choices[0].delta.content ?? "";
      id = chunk.id;
      if (heard === "one two ") await interrupted();
    }
  } catch {
    // The server died.
  }
  ok(SLOW.startsWith(heard) && heard !== SLOW, heard);
  const chunks = await all(ask({ stream: true }));
  same([said(chunks), [...new Set(chunks.map((chunk) => chunk.id))]], [SLOW, [id]]);
  const whole = await ask();
  same([whole.choices[0].message.content, whole.id], [SLOW, id]);
}

/** A stream that the server ends before its time is an error, and no answer that looks whole. */
async function stopped() {
  const texts = [
    [await say([user("haltingly")], { stream: true }), (chunk) => chunk.choices[0].delta.content ?? ""],
    [await ask({ input: "haltingly", stream: true }), (event) => (event.type === "response.output_text.delta" ? event.delta : "")],
  ];
  const readers = texts.map(([stream, text]) => ({ events: stream[Symbol.asyncIterator](), text, heard: "" }));
  for (const reader of readers)
    while (reader.heard !== "one two ") reader.heard += reader.text((await reader.events.next()).value);
  await interrupted();
  for (const { events } of readers) {
    const read = async () => {
      while (!(await events.next()).done);
    };
    const failed = await read().then(
      () => false,
      () => true,
    );
    ok(failed, "a stream that was cut ended as if it were whole");
  }
}

await { matrix, resume, again, stopped }[mode]();
console.log("fine");
process.exit(0);
