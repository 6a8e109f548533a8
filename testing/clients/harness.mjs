// Calls a client as its users do and prints one JSON line per capability or scenario.
//
//   node --import ./modules.mjs CLIENT.mjs VARIANT capabilities URL   {"client", "version", "capability", "ok", "detail"}
//   node --import ./modules.mjs CLIENT.mjs VARIANT retries ENDS KILLS RESTARTS   {"scenario", "outcome", "text"}
//
// A client is a function from a server's address to its capabilities, and to `ask` and `read` for the scenarios.
import { isDeepStrictEqual } from "node:util";
import { readFileSync } from "node:fs";

export const model = "assistant";
export const key = "any";
export const PIXEL =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// What the server's script answers.
export const answers = {
  plain: "A plain answer.",
  streaming: "one two three four five\nsix seven eight",
  tools: "It is mild in Oslo.",
  parallel_tools: "mild in Oslo; mild in Rome",
  structured: { title: "broken lamp", urgent: true },
  image: "I see it.",
  options: "Options are set.",
};

export const weather = ({ city }) => `mild in ${city}`;

export function same(found, expected) {
  if (!isDeepStrictEqual(found, expected)) {
    throw new Error(`expected ${JSON.stringify(expected)}, found ${JSON.stringify(found)}`);
  }
}

/// Checks that a stream has several pieces, and returns them as one text.
export async function joined(pieces) {
  const texts = [];
  for await (const piece of pieces) if (piece) texts.push(piece);
  if (texts.length < 2) throw new Error(`expected several pieces, found ${JSON.stringify(texts)}`);
  return texts.join("");
}

/// Fails unless the call fails soon and shows these words: our code, and what the provider said.
export async function fails(call, words = ["model.unauthorized", "the key is of no use"]) {
  const began = Date.now();
  const error = await call().then(
    (answer) => {
      throw new Error(`expected an error, found ${JSON.stringify(answer)}`);
    },
    (error) => error,
  );
  const text = described(error);
  const missing = words.find((word) => !text.includes(word));
  if (missing) throw new Error(`expected ${missing} in the error, found ${text}`);
  if (Date.now() - began > 20_000) throw new Error(`the error came after ${Date.now() - began} ms`);
}

/// Stops reading after the first text, and checks that the client stops soon and works afterwards.
export async function aborts(read, ask) {
  const stop = new AbortController();
  let seen = "";
  const began = Date.now();
  await read("case abort", (text) => {
    seen += text;
    stop.abort();
  }, stop.signal).catch((error) => {
    if (!stop.signal.aborted) throw error;
  });
  if (!seen) throw new Error("expected a text before the end");
  if (Date.now() - began > 40_000) throw new Error(`stopped only after ${Date.now() - began} ms`);
  same(await ask("case plain"), answers.plain);
}

/// Everything that a program can learn from an error, also from those inside it.
export function described(error) {
  const parts = [];
  for (let one = error; one && parts.length < 12; one = one.lastError ?? one.cause) {
    parts.push(one.status ?? one.statusCode, one.message);
    for (const value of [one.responseBody, one.error]) {
      if (value) parts.push(typeof value === "string" ? value : JSON.stringify(value));
    }
  }
  return parts.filter(Boolean).join(" | ").slice(0, 800) || String(error);
}

export function version(name) {
  return JSON.parse(readFileSync(`${process.env.CLIENT_MODULES}/${name}/package.json`)).version;
}

const CAPABILITIES = [
  "plain", "streaming", "tools", "parallel_tools", "structured", "multi_turn", "image", "options", "forced_tool",
  "abort", "error",
];

export async function run(name, variants) {
  const [variant, mode, ...urls] = process.argv.slice(2);
  const print = (line) => console.log(JSON.stringify(line));
  if (mode === "capabilities") {
    const client = variants[variant](urls[0]);
    await Promise.all(CAPABILITIES.filter((capability) => client[capability]).map(async (capability) => {
      const problem = await client[capability]().then(
        () => undefined,
        (error) => described(error),
      );
      print({ client: variant, version: version(name), capability, ok: problem === undefined, detail: problem ?? "" });
    }));
    process.exit(0);
  }
  const [ends, kills, restarts] = urls.map((url) => variants[variant](url));
  const asks = (scenario, client) => report(scenario, client.ask(`case charge ${scenario}`));
  const report = (scenario, answer) =>
    answer.then(
      (text) => print({ scenario, outcome: "answer", text }),
      (error) => print({ scenario, outcome: "error", text: described(error) }),
    );
  let isReading = false;
  const reading = () => {
    if (!isReading) print({ scenario: "kill_mid_stream", outcome: "reading", text: "" });
    isReading = true;
  };
  await Promise.all([
    asks("model_error", ends),
    asks("cancel", ends),
    report("kill_mid_stream", kills.read("case charge kill_mid_stream", reading)),
    asks("kill_before_answer", kills),
    asks("restart", restarts),
  ]);
  process.exit(0);
}
