// The official JavaScript client of Anthropic.
import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";
import { PIXEL, aborts, answers, fails, joined, key, model, run, same, weather } from "./harness.mjs";

const Ticket = z.object({ title: z.string(), urgent: z.boolean() });
const input_schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ name: "weather", description: "Tells the weather.", input_schema }];
const user = (content) => ({ role: "user", content });
const text = (message) => message.content.filter((block) => block.type === "text").map((block) => block.text).join("");

function messages(url) {
  const client = new Anthropic({ baseURL: `${url}/anthropic`, apiKey: key });
  const create = (messages, more) => client.messages.create({ model, max_tokens: 1024, messages, ...more });
  const ask = async (words) => text(await create([user(words)]));
  const read = async (words, seen, signal) => {
    const stream = client.messages.stream({ model, max_tokens: 1024, messages: [user(words)] }, { signal });
    stream.on("text", seen);
    return text(await stream.finalMessage());
  };
  const loop = async (words, more) => {
    const messages = [user(words)];
    for (;;) {
      const message = await create(messages, { tools, ...(messages.length === 1 ? more : {}) });
      const calls = message.content.filter((block) => block.type === "tool_use");
      if (!calls.length) return text(message);
      messages.push({ role: "assistant", content: message.content });
      messages.push(
        user(calls.map((call) => ({ type: "tool_result", tool_use_id: call.id, content: weather(call.input) }))),
      );
    }
  };
  return {
    ask,
    read,
    plain: async () => same(await ask("case plain"), answers.plain),
    streaming: async () => {
      const stream = await create([user("case streaming")], { stream: true });
      same(await joined(deltas(stream)), answers.streaming);
    },
    tools: async () => same(await loop("case tools"), answers.tools),
    parallel_tools: async () => same(await loop("case parallel"), answers.parallel_tools),
    structured: async () => {
      const output_config = { format: zodOutputFormat(Ticket) };
      const message = await client.messages.parse({ model, max_tokens: 1024, messages: [user("case structured")], output_config });
      same(message.parsed_output, answers.structured);
    },
    multi_turn: async () => {
      const messages = [user("case first turn")];
      const first = await create(messages, { system: "Be kind." });
      messages.push({ role: "assistant", content: first.content }, user("case second turn"));
      same(text(await create(messages, { system: "Be kind." })), "Still blue.");
    },
    image: async () => {
      const sources = [
        { type: "base64", media_type: "image/png", data: PIXEL },
        { type: "url", url: "https://images.example/lamp.png" },
      ];
      for (const source of sources) {
        const content = [{ type: "image", source }, { type: "text", text: "case image" }];
        same(text(await create([user(content)])), answers.image);
      }
    },
    options: async () => {
      const options = {
        stop_sequences: ["END"], metadata: { user_id: "ann" },
        thinking: { type: "enabled", budget_tokens: 1024 }, max_tokens: 2048,
      };
      same(text(await create([user("case options")], options)), answers.options);
      const count = await client.messages.countTokens({ model, messages: [user("case plain")] });
      if (!(count.input_tokens > 0)) throw new Error(`expected a number of tokens, found ${JSON.stringify(count)}`);
    },
    forced_tool: async () => same(await loop("case forced", { tool_choice: { type: "tool", name: "weather" } }), answers.tools),
    abort: () => aborts(read, ask),
    error: async () => {
      await fails(() => ask("case error"));
      await fails(() => read("case error", () => {}));
    },
  };
}

async function* deltas(stream) {
  for await (const event of stream) if (event.type === "content_block_delta") yield event.delta.text;
}

await run("@anthropic-ai/sdk", { messages });
