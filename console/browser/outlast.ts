/** Runs the real binary on a free port with its own database. Tests can kill and restart it. */
import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const BINARY = process.env["OUTLAST_BINARY"] ?? "outlast";

export class Outlast {
  readonly folder = mkdtempSync(join(tmpdir(), "outlast-console-"));
  address = "";
  #process: ChildProcess | undefined;
  #arguments: string[];

  constructor(files: Record<string, string>, more: string[]) {
    for (const [name, text] of Object.entries(files)) writeFileSync(join(this.folder, name), text);
    this.#arguments = more;
  }

  /** Runs another command on the same database and waits for it. */
  run(...command: string[]): string {
    const { stdout, stderr, status } = spawnSync(BINARY, [...command, "--data", "outlast.db"], { cwd: this.folder, encoding: "utf8" });
    if (status !== 0) throw new Error(`outlast ${command.join(" ")}: ${stderr}`);
    return stdout;
  }

  async start(): Promise<void> {
    const listen = this.address ? this.address.slice("http://".length) : "127.0.0.1:0";
    const child = spawn(BINARY, ["serve", "--listen", listen, "--data", "outlast.db", "--log-level", "warn", ...this.#arguments], { cwd: this.folder, stdio: ["ignore", "ignore", "pipe"] });
    this.#process = child;
    const lines = createInterface({ input: child.stderr });
    const said: string[] = [];
    for await (const line of lines) {
      said.push(line);
      const found = /http:\/\/[\d.:]+/.exec(line);
      if (found) {
        this.address = found[0];
        child.stderr.resume();
        return;
      }
    }
    throw new Error(`the server did not start: ${said.join("\n")}`);
  }

  /** Kills the process, like a power failure. */
  async kill(): Promise<void> {
    if (!this.#process || this.#process.exitCode !== null) return;
    const ended = once(this.#process, "exit");
    this.#process.kill("SIGKILL");
    await ended;
  }

  async ask<T>(path: string, body?: unknown): Promise<T> {
    const init = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
    const response = await fetch(this.address + path, init);
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return (await response.json()) as T;
  }

  /** Stores a new version of an agent in the database. */
  async keep(agent: string, body: unknown): Promise<void> {
    const response = await fetch(`${this.address}/v1/configs/agent/${agent}`, { method: "PUT", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
    if (!response.ok) throw new Error(`${agent}: ${response.status} ${await response.text()}`);
  }

  /** Polls a path until the response satisfies a condition. */
  async until<T>(path: string, is: (said: T) => boolean): Promise<T> {
    for (let tries = 0; tries < 300; tries++) {
      const said = await this.ask<T>(path);
      if (is(said)) return said;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`${path} did not become what it was to be`);
  }

  /** Creates the file that a tool waits for. */
  allow(name: string): void {
    writeFileSync(join(this.folder, name), "");
  }

  /** Sends an input and waits for the end of its turn, up to a time limit. */
  async say(text: string, more: { session?: string; agent?: string; wait?: number } = {}): Promise<{ session: string; turn: string }> {
    const { session, agent, wait = 20 } = more;
    const path = session ? `/v1/sessions/${session}/turns` : "/v1/turns";
    return this.ask(`${path}?wait=${wait}`, { text, ...(agent ? { agent } : {}) });
  }

  async close(): Promise<void> {
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
