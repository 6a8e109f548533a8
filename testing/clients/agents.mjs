// The OpenAI Agents SDK for JavaScript, with Responses.
import OpenAI from "openai";
import { Agent, MemorySession, OpenAIProvider, Runner, tool, user } from "@openai/agents";
import { z } from "zod";
import { PIXEL, aborts, answers, fails, joined, key, model, run, same, weather as tell } from "./harness.mjs";

const Ticket = z.object({ title: z.string(), urgent: z.boolean() });
const weather = tool({
  name: "weather",
  description: "Tells the weather.",
  parameters: z.object({ city: z.string() }),
  execute: async (input) => tell(input),
});

function responses(url) {
  const openAIClient = new OpenAI({ baseURL: `${url}/openai/v1`, apiKey: key });
  const runner = new Runner({ modelProvider: new OpenAIProvider({ openAIClient }) });
  const agent = (more) => new Agent({ name: "Clerk", instructions: "Be kind.", model, ...more });
  const ask = async (input, more) => (await runner.run(agent(more), input)).finalOutput;
  const read = async (input, seen, signal) => {
    let text = "";
    const result = await runner.run(agent(), input, { stream: true, signal });
    for await (const piece of result.toTextStream()) seen(piece), (text += piece);
    await result.completed;
    if (result.error) throw result.error;
    return text;
  };
  return {
    ask,
    read,
    plain: async () => same(await ask("case plain"), answers.plain),
    streaming: async () => {
      const result = await runner.run(agent(), "case streaming", { stream: true });
      same(await joined(result.toTextStream()), answers.streaming);
    },
    tools: async () => same(await ask("case tools", { tools: [weather] }), answers.tools),
    parallel_tools: async () => same(await ask("case parallel", { tools: [weather] }), answers.parallel_tools),
    structured: async () => same(await ask("case structured", { outputType: Ticket }), answers.structured),
    multi_turn: async () => {
      const session = new MemorySession();
      await runner.run(agent(), "case first turn", { session });
      same((await runner.run(agent(), "case second turn", { session })).finalOutput, "Still blue.");
    },
    image: async () => {
      const image = { type: "input_image", image: `data:image/png;base64,${PIXEL}` };
      same(await ask([user([{ type: "input_text", text: "case image" }, image])]), answers.image);
    },
    options: async () => {
      const modelSettings = { temperature: 0.4, topP: 0.9, maxTokens: 200, parallelToolCalls: false };
      same(await ask("case options", { modelSettings }), answers.options);
    },
    forced_tool: async () => {
      const settings = { tools: [weather], modelSettings: { toolChoice: "weather" } };
      same(await ask("case forced", settings), answers.tools);
    },
    abort: () => aborts(read, ask),
    error: async () => {
      // It hides what the server says about a failed response.
      await fails(() => ask("case error"), ["response.failed"]);
      await fails(() => read("case error", () => {}), ["response.failed"]);
    },
  };
}

await run("@openai/agents", { responses });
