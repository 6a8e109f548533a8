// LangChain for JavaScript with OpenAI and Anthropic. Its agents are LangGraph graphs.
import { AIMessage, HumanMessage, createAgent, tool } from "langchain";
import { ChatOpenAI } from "@langchain/openai";
import { ChatAnthropic } from "@langchain/anthropic";
import { z } from "zod";
import { PIXEL, aborts, answers, fails, joined, key, model as name, run, same, weather as tell } from "./harness.mjs";

const Ticket = z.object({ title: z.string(), urgent: z.boolean() });
const weather = tool(tell, { name: "weather", description: "Tells the weather.", schema: z.object({ city: z.string() }) });

const uses = (connect, { options, structured }) => (url) => {
  const model = connect(url, {});
  const ask = async (text) => (await model.invoke(text)).text;
  const read = async (words, seen, signal) => {
    let text = "";
    for await (const chunk of await model.stream(words, { signal })) {
      if (chunk.text) seen(chunk.text), (text += chunk.text);
    }
    return text;
  };
  const agent = createAgent({ model, tools: [weather] });
  const last = (state) => state.messages.at(-1).text;
  const runAgent = async (text) => last(await agent.invoke({ messages: [new HumanMessage(text)] }));
  return {
    ask,
    read,
    plain: async () => same(await ask("case plain"), answers.plain),
    streaming: async () => same(await joined(texts(await model.stream("case streaming"))), answers.streaming),
    tools: async () => same(await runAgent("case tools"), answers.tools),
    parallel_tools: async () => same(await runAgent("case parallel"), answers.parallel_tools),
    structured: async () => {
      same(await model.withStructuredOutput(Ticket, { name: "Ticket" }).invoke(structured), answers.structured);
    },
    multi_turn: async () => {
      const first = await model.invoke([new HumanMessage("case first turn")]);
      const history = [new HumanMessage("case first turn"), new AIMessage(first), new HumanMessage("case second turn")];
      same((await model.invoke(history)).text, "Still blue.");
    },
    image: async () => {
      const image = { type: "image", source_type: "base64", mime_type: "image/png", data: PIXEL };
      const content = [{ type: "text", text: "case image" }, image];
      same((await model.invoke([new HumanMessage({ content })])).text, answers.image);
    },
    options: async () => same((await connect(url, options).invoke("case options")).text, answers.options),
    forced_tool: async () => {
      const reply = await model.bindTools([weather], { tool_choice: "weather" }).invoke("case forced");
      same(reply.tool_calls.map((call) => call.name), ["weather"]);
    },
    abort: () => aborts(read, ask),
    error: async () => {
      await fails(() => ask("case error"));
      await fails(() => read("case error", () => {}));
    },
  };
};

async function* texts(stream) {
  for await (const chunk of stream) yield chunk.text;
}

const openai = (url, more) => new ChatOpenAI({ model: name, apiKey: key, configuration: { baseURL: `${url}/openai/v1` }, ...more });
const anthropic = (url, more) => new ChatAnthropic({ model: name, apiKey: key, anthropicApiUrl: `${url}/anthropic`, ...more });

const [variant] = process.argv.slice(2);
await run(variant === "chat" ? "@langchain/openai" : "@langchain/anthropic", {
  chat: uses(openai, { options: { temperature: 0.4, topP: 0.9, maxTokens: 200, stop: ["END"] }, structured: "case structured" }),
  messages: uses(anthropic, { options: { temperature: 0.4, maxTokens: 200, stopSequences: ["END"] }, structured: "case structured by Ticket" }),
});
