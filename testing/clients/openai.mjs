// The official JavaScript client of OpenAI, with Responses and with Chat Completions.
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { PIXEL, aborts, answers, fails, joined, key, model, run, same, weather } from "./harness.mjs";

const Ticket = z.object({ title: z.string(), urgent: z.boolean() });
const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const image = `data:image/png;base64,${PIXEL}`;
const user = (content) => ({ role: "user", content });

function responses(url) {
  const client = new OpenAI({ baseURL: `${url}/openai/v1`, apiKey: key });
  const tools = [{ type: "function", name: "weather", description: "Tells the weather.", parameters, strict: true }];
  const ask = async (input, more) => (await client.responses.create({ model, input, ...more })).output_text;
  const read = async (input, seen, signal) => {
    let text = "";
    for await (const event of await client.responses.create({ model, input, stream: true }, { signal })) {
      if (event.type === "response.output_text.delta") seen(event.delta), (text += event.delta);
      if (event.type === "response.failed") throw new Error(JSON.stringify(event.response.error));
    }
    return text;
  };
  const loop = async (input, more) => {
    let response = await client.responses.create({ model, input, tools, ...more });
    for (;;) {
      const calls = response.output.filter((item) => item.type === "function_call");
      if (!calls.length) return response.output_text;
      const results = calls.map((call) => ({
        type: "function_call_output",
        call_id: call.call_id,
        output: weather(JSON.parse(call.arguments)),
      }));
      response = await client.responses.create({ model, input: results, tools, previous_response_id: response.id });
    }
  };
  return {
    ask: async (input) => {
      const response = await client.responses.create({ model, input });
      if (response.status !== "completed") throw new Error(JSON.stringify(response.error ?? response.status));
      return response.output_text;
    },
    read,
    plain: async () => same(await ask("case plain"), answers.plain),
    streaming: async () => {
      const stream = await client.responses.create({ model, input: "case streaming", stream: true });
      same(await joined(deltas(stream)), answers.streaming);
    },
    tools: async () => same(await loop("case tools"), answers.tools),
    parallel_tools: async () => same(await loop("case parallel"), answers.parallel_tools),
    structured: async () => {
      const text = { format: zodTextFormat(Ticket, "ticket") };
      const response = await client.responses.parse({ model, input: "case structured", text });
      same(response.output_parsed, answers.structured);
    },
    multi_turn: async () => {
      const first = await client.responses.create({ model, input: "case first turn" });
      same(await ask("case second turn", { previous_response_id: first.id }), "Still blue.");
    },
    image: async () => {
      const content = [{ type: "input_text", text: "case image" }, { type: "input_image", image_url: image, detail: "auto" }];
      same(await ask([user(content)]), answers.image);
      content[1].image_url = "https://images.example/lamp.png";
      same(await ask([user(content)]), answers.image);
    },
    options: async () => {
      const options = { temperature: 0.4, top_p: 0.9, max_output_tokens: 200, reasoning: { effort: "low" }, metadata: { team: "a" } };
      same(await ask("case options", options), answers.options);
    },
    forced_tool: async () =>
      same(await loop("case forced", { tool_choice: { type: "function", name: "weather" } }), answers.tools),
    abort: () => aborts(read, ask),
    error: async () => {
      const response = await client.responses.create({ model, input: "case error" });
      await fails(() => Promise.reject(new Error(JSON.stringify(response.error))));
      await fails(() => read("case error", () => {}));
    },
  };
}

async function* deltas(stream) {
  for await (const event of stream) if (event.type === "response.output_text.delta") yield event.delta;
}

function chat(url) {
  const client = new OpenAI({ baseURL: `${url}/openai/v1`, apiKey: key });
  const tools = [{ type: "function", function: { name: "weather", description: "Tells the weather.", parameters } }];
  const say = async (messages, more) => {
    const completion = await client.chat.completions.create({ model, messages, ...more });
    return completion.choices[0].message;
  };
  const ask = async (text) => (await say([user(text)])).content;
  const read = async (text, seen, signal) => {
    let whole = "";
    const body = { model, messages: [user(text)], stream: true };
    for await (const chunk of await client.chat.completions.create(body, { signal })) {
      const delta = chunk.choices[0]?.delta?.content;
      if (delta) seen(delta), (whole += delta);
    }
    return whole;
  };
  const loop = async (text, more) => {
    const messages = [user(text)];
    for (;;) {
      const message = await say(messages, { tools, ...(messages.length === 1 ? more : {}) });
      if (!message.tool_calls?.length) return message.content;
      messages.push(message);
      for (const call of message.tool_calls) {
        const content = weather(JSON.parse(call.function.arguments));
        messages.push({ role: "tool", tool_call_id: call.id, content });
      }
    }
  };
  return {
    ask,
    read,
    plain: async () => same(await ask("case plain"), answers.plain),
    streaming: async () => {
      const stream = await client.chat.completions.create({ model, messages: [user("case streaming")], stream: true });
      same(await joined(pieces(stream)), answers.streaming);
    },
    tools: async () => same(await loop("case tools"), answers.tools),
    parallel_tools: async () => same(await loop("case parallel"), answers.parallel_tools),
    structured: async () => {
      const response_format = zodResponseFormat(Ticket, "ticket");
      const completion = await client.chat.completions.parse({ model, messages: [user("case structured")], response_format });
      same(completion.choices[0].message.parsed, answers.structured);
    },
    multi_turn: async () => {
      const messages = [{ role: "system", content: "Be kind." }, user("case first turn")];
      messages.push(await say(messages), user("case second turn"));
      same((await say(messages)).content, "Still blue.");
    },
    image: async () => {
      for (const address of [image, "https://images.example/lamp.png"]) {
        const content = [{ type: "text", text: "case image" }, { type: "image_url", image_url: { url: address } }];
        same((await say([user(content)])).content, answers.image);
      }
    },
    options: async () => {
      const options = { temperature: 0.4, top_p: 0.9, max_completion_tokens: 200, stop: ["END"], seed: 7, presence_penalty: 0.1, user: "ann" };
      same((await say([user("case options")], options)).content, answers.options);
    },
    forced_tool: async () =>
      same(await loop("case forced", { tool_choice: { type: "function", function: { name: "weather" } } }), answers.tools),
    abort: () => aborts(read, ask),
    error: async () => {
      await fails(() => ask("case error"));
      await fails(() => read("case error", () => {}));
    },
  };
}

async function* pieces(stream) {
  for await (const chunk of stream) yield chunk.choices[0]?.delta?.content;
}

await run("openai", { responses, chat });
