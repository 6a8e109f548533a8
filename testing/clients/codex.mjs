// Codex without a terminal (`codex exec`). Its own tools are the client's tools.
import { mkdirSync, writeFileSync } from "node:fs";
import { PIXEL, aborts, answers, fails, model, run, same } from "./harness.mjs";
import { binary, directory, lines } from "./program.mjs";

function responses(url) {
  const home = () => {
    const home = directory();
    mkdirSync(`${home}/.codex`);
    const config = `
      model = "${model}"
      model_provider = "outlast"
      check_for_update_on_startup = false
      [model_providers.outlast]
      name = "Outlast"
      base_url = "${url}/openai/v1"
      wire_api = "responses"
      env_key = "OUTLAST_KEY"`;
    writeFileSync(`${home}/.codex/config.toml`, config);
    return home;
  };
  const ask = async (prompt, { more = [], at = home(), signal, seen = () => {}, command = ["exec"] } = {}) => {
    const args = [binary("@openai/codex/bin/codex.js"), ...command, "--json", "--skip-git-repo-check"];
    // The tests run where no sandbox may be available.
    args.push("--dangerously-bypass-approvals-and-sandbox", ...more, "--", prompt);
    const { events, code, errors } = await lines(process.execPath, args, {
      env: { CODEX_HOME: `${at}/.codex`, OUTLAST_KEY: "any" },
      cwd: at,
      signal,
      // It prints no pieces of a reply.
      seen: (event) => event.type === "turn.started" && setTimeout(seen, 1_000, "a turn"),
    });
    const failure = events.find((event) => event.type === "turn.failed");
    const texts = events.filter((event) => event.type === "item.completed" && event.item.type === "agent_message");
    if (failure || code || !texts.length) throw new Error(`exit ${code}: ${failure?.error.message ?? ""} ${errors}`);
    return texts.at(-1).item.text;
  };
  const read = (prompt, seen, signal) => ask(prompt, { seen, signal });
  return {
    ask,
    read,
    plain: async () => same(await ask("case plain"), answers.plain),
    streaming: async () => same(await ask("case streaming"), answers.streaming),
    tools: async () => same(await ask("case loop exec_command"), "round 8"),
    parallel_tools: async () => same(await ask("case together exec_command"), answers.parallel_tools),
    structured: async () => {
      const at = home();
      const properties = { title: { type: "string" }, urgent: { type: "boolean" } };
      const schema = { type: "object", properties, required: ["title", "urgent"], additionalProperties: false };
      writeFileSync(`${at}/schema.json`, JSON.stringify(schema));
      const text = await ask("case structured", { at, more: ["--output-schema", `${at}/schema.json`] });
      same(JSON.parse(text), answers.structured);
    },
    multi_turn: async () => {
      const at = home();
      await ask("case first turn", { at });
      const command = ["exec", "resume", "--last"];
      same(await ask("case second turn", { at, command }), "Still blue.");
    },
    image: async () => {
      const at = home();
      writeFileSync(`${at}/lamp.png`, Buffer.from(PIXEL, "base64"));
      same(await ask("case image", { at, more: ["--image", `${at}/lamp.png`] }), answers.image);
    },
    options: async () => {
      const more = ["--config", "model_reasoning_effort=low", "--config", "model_verbosity=low"];
      same(await ask("case options", { more }), answers.options);
    },
    abort: () => aborts(read, ask),
    error: () => fails(() => ask("case error")),
  };
}

await run("@openai/codex", { responses });
