/** Tests of a session page when the server fails. */
import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { SessionModel } from "../src/session-model.ts";

/** The server's response: the state of the session, or an error. */
type Answer = string | { status: number; retryAfter?: string };

/** Waits for all pending promises. */
const settled = () => new Promise((resolve) => setImmediate(resolve));

/** Follows a session. Each read gets the next response, and the last one repeats. */
async function shown(answers: Answer[], act: (model: SessionModel, reads: () => number) => Promise<void>): Promise<void> {
  let reads = 0;
  const of = (url: string): Response => {
    const items = Response.json({ items: [] });
    if (url !== "/v1/sessions/ses_1") return items;
    const answer = answers[Math.min(reads++, answers.length - 1)] as Answer;
    if (typeof answer === "string") return Response.json({ id: "ses_1", state: answer, turns: 0, last: 4 });
    const headers: Record<string, string> = answer.retryAfter ? { "retry-after": answer.retryAfter } : {};
    return new Response("{}", { status: answer.status, headers });
  };
  mock.timers.enable({ apis: ["setTimeout"] });
  Object.assign(globalThis, {
    sessionStorage: { getItem: () => null },
    document: { hidden: false, addEventListener: () => {} },
    // The event stream stays open without events.
    fetch: (url: string) => (url.includes("/events") ? new Promise(() => {}) : Promise.resolve(of(url))),
  });
  const model = new SessionModel("ses_1", "main", () => {});
  try {
    await settled();
    await act(model, () => reads);
  } finally {
    model.close();
    mock.timers.reset();
  }
}

const stands = ({ known }: SessionModel) => [known.session?.state, known.error?.message !== undefined] as const;

for (const status of [429, 500, 503]) {
  test(`a read that is refused with ${status} is made again, also if nothing happens any more`, () =>
    shown(["running", { status }, "idle"], async (model) => {
      model.readAgain();
      await settled();
      assert.deepEqual(stands(model), ["running", true]);
      mock.timers.tick(2_000);
      await settled();
      assert.deepEqual(stands(model), ["idle", false]);
    }));
}

test("a server that wants to be left alone for longer is asked after that", () =>
  shown(["running", { status: 429, retryAfter: "7" }, "idle"], async (model, reads) => {
    model.readAgain();
    await settled();
    mock.timers.tick(6_999);
    await settled();
    assert.equal(reads(), 2);
    mock.timers.tick(1);
    await settled();
    assert.deepEqual(stands(model), ["idle", false]);
  }));

test("a page that began before the server was there shows the session once it is", () =>
  shown([{ status: 503 }, { status: 503 }, "idle"], async (model) => {
    for (let times = 0; times < 2; times++) {
      mock.timers.tick(2_000);
      await settled();
    }
    assert.deepEqual(stands(model), ["idle", false]);
  }));

test("a session that is not there is not asked for again", () =>
  shown([{ status: 404 }, "idle"], async (model, reads) => {
    mock.timers.tick(60_000);
    await settled();
    assert.deepEqual([reads(), ...stands(model)], [1, undefined, true]);
  }));

test("that a call runs is shown until its outcome is there", async () => {
  const call = { turn: "trn_1", key: "turn/0/tools/0/0:a", kind: "tool_call", state: "open", seq: 3, from: 0, attempts: 1, request: {} };
  let effects: object[] = [call];
  let say = (_: object): void => {};
  const events = new ReadableStream<Uint8Array>({
    start: (stream) => {
      say = (frame) => stream.enqueue(new TextEncoder().encode(`data: ${JSON.stringify(frame)}\n\n`));
    },
  });
  const of = (url: string) => {
    if (url.includes("/events")) return new Response(events);
    if (url.includes("/effects")) return Response.json({ items: effects });
    if (url === "/v1/sessions/ses_1") return Response.json({ id: "ses_1", state: "running", turns: 1, last: 4 });
    return Response.json({ items: [] });
  };
  Object.assign(globalThis, {
    sessionStorage: { getItem: () => null },
    document: { hidden: false, addEventListener: () => {} },
    fetch: (url: string) => Promise.resolve(of(url)),
  });
  const model = new SessionModel("ses_1", "main", () => {});
  const notes = async () => {
    await settled();
    await settled();
    return [...model.known.notes.values()];
  };
  try {
    await notes();
    const runs = { session: "ses_1", turn: "trn_1", type: "live", data: { type: "running", key: call.key, attempt: 1 } };
    say(runs);
    assert.deepEqual(await notes(), ["runs"]);
    effects = [{ ...call, state: "done", answered: 5 }];
    say({ session: "ses_1", turn: "trn_1", seq: 5, type: "effect.answered", data: {} });
    assert.deepEqual(await notes(), []);
    say(runs);
    assert.deepEqual(await notes(), [], "a frame that comes late");
  } finally {
    model.close();
  }
});
