// Runs a coding agent as a program that prints JSON lines.
import { spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import readline from "node:readline";

export function directory() {
  return mkdtempSync(join(tmpdir(), "agent-"));
}

export function binary(name) {
  return join(process.env.CLIENT_MODULES, name);
}

/// Returns what the program printed, line by line, and its exit code. A signal interrupts it as Ctrl-C does.
export async function lines(program, args, { env, cwd, input = "", signal, seen = () => {} }) {
  const child = spawn(program, args, { cwd, env: { ...process.env, ...env }, stdio: ["pipe", "pipe", "pipe"] });
  const exit = new Promise((resolve, reject) => child.on("error", reject).on("close", resolve));
  signal?.addEventListener("abort", () => child.kill("SIGINT"));
  let errors = "";
  child.stderr.on("data", (data) => (errors += data));
  child.stdin.on("error", () => {}).end(input);
  const found = [];
  for await (const line of readline.createInterface({ input: child.stdout })) {
    const event = parsed(line);
    if (event) found.push(event), seen(event);
  }
  return { events: found, code: await exit, errors: errors.slice(-300) };
}

function parsed(line) {
  try {
    return JSON.parse(line);
  } catch {
    // Warnings are printed between the events.
  }
}
