// The Vercel AI SDK with its providers for OpenAI (Responses and Chat), compatible servers and Anthropic.
import { Output, generateText, stepCountIs, streamText, tool } from "ai";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { createAnthropic } from "@ai-sdk/anthropic";
import { z } from "zod";
import { PIXEL, aborts, answers, fails, joined, key, model as name, run, same, weather } from "./harness.mjs";

const Ticket = z.object({ title: z.string(), urgent: z.boolean() });
const tools = {
  weather: tool({
    description: "Tells the weather.",
    inputSchema: z.object({ city: z.string() }),
    execute: async (input) => weather(input),
  }),
};
const stopWhen = stepCountIs(5);

const uses = (connect, { isAnthropic = false, words } = {}) => (url) => {
  const model = connect(url);
  const ask = async (prompt, more) => (await generateText({ model, prompt, ...more })).text;
  const read = async (prompt, seen, abortSignal) => {
    let text = "";
    let failure;
    const stream = streamText({ model, prompt, abortSignal, onError: ({ error }) => (failure = error) });
    for await (const piece of stream.textStream) seen(piece), (text += piece);
    if (failure) throw failure;
    return text;
  };
  return {
    ask,
    read,
    plain: async () => same(await ask("case plain"), answers.plain),
    streaming: async () => same(await joined(streamText({ model, prompt: "case streaming" }).textStream), answers.streaming),
    tools: async () => same(await ask("case tools", { tools, stopWhen }), answers.tools),
    parallel_tools: async () => same(await ask("case parallel", { tools, stopWhen }), answers.parallel_tools),
    structured: async () => {
      const output = Output.object({ schema: Ticket });
      // Its default for Anthropic's older models is a tool called `json`.
      const result = await generateText({ model, prompt: isAnthropic ? "case structured by json" : "case structured", output });
      same(result.output, answers.structured);
    },
    multi_turn: async () => {
      const messages = [{ role: "user", content: "case first turn" }];
      const first = await generateText({ model, messages });
      messages.push(...first.response.messages, { role: "user", content: "case second turn" });
      same((await generateText({ model, messages })).text, "Still blue.");
    },
    image: async () => {
      const image = { type: "file", mediaType: "image/png", data: PIXEL };
      const messages = [{ role: "user", content: [{ type: "text", text: "case image" }, image] }];
      same((await generateText({ model, messages })).text, answers.image);
    },
    options: async () => {
      const options = { temperature: 0.4, topP: 0.9, maxOutputTokens: 200, stopSequences: ["END"], seed: 7 };
      same(await ask("case options", options), answers.options);
    },
    forced_tool: async () => {
      const prepareStep = ({ stepNumber }) => (stepNumber ? { toolChoice: "auto" } : {});
      const toolChoice = { type: "tool", toolName: "weather" };
      same(await ask("case forced", { tools, toolChoice, prepareStep, stopWhen }), answers.tools);
    },
    abort: () => aborts(read, ask),
    error: async () => {
      await fails(() => ask("case error"), words);
      await fails(() => read("case error", () => {}), words);
    },
  };
};

await run("ai", {
  // It leaves out the code of a failed response.
  responses: uses((url) => createOpenAI({ baseURL: `${url}/openai/v1`, apiKey: key })(name), {
    words: ["the key is of no use"],
  }),
  chat: uses((url) => createOpenAI({ baseURL: `${url}/openai/v1`, apiKey: key }).chat(name)),
  compatible: uses((url) => createOpenAICompatible({ name: "outlast", baseURL: `${url}/openai/v1`, apiKey: key })(name)),
  messages: uses((url) => createAnthropic({ baseURL: `${url}/anthropic/v1`, apiKey: key })(name), { isAnthropic: true }),
});
