/** Tests of the session list while sessions change and pages arrive. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { appended, refreshed } from "../src/session-list.ts";
import type { Session } from "../src/shapes.ts";

const ALL = { search: "", state: "" };
const session = (created: number, state = "idle") => ({ id: `ses_${created}`, created, state, title: `session ${created}` }) as Session;
const ids = (list: readonly Session[]) => list.map(({ id }) => id);

test("a session that moved before its page came is in the list once, as it was read last", () => {
  const moved = refreshed([session(9), session(8)], new Map([["ses_3", session(3, "running")]]), ALL);
  const whole = appended(moved, [session(7), session(3), session(2)]);
  assert.deepEqual(ids(whole), ["ses_3", "ses_9", "ses_8", "ses_7", "ses_2"]);
  assert.equal(whole[0]?.state, "running");
});

test("a session that is gone, or is not what is looked for any more, leaves the list", () => {
  const fresh = new Map<string, Session | "gone" | undefined>([["ses_9", "gone"], ["ses_8", session(8, "parked")], ["ses_7", undefined]]);
  assert.deepEqual(ids(refreshed([session(9), session(8), session(7)], fresh, { search: "", state: "idle" })), ["ses_7"]);
});

test("a session whose last turn ended otherwise leaves the list", () => {
  const failed = (created: number, last_end: string) => ({ ...session(created), last_end }) as Session;
  const fresh = new Map([["ses_9", failed(9, "answered")], ["ses_5", failed(5, "failed")]]);
  const list = refreshed([failed(9, "failed"), failed(8, "failed")], fresh, { search: "", state: "", last_end: "failed" });
  assert.deepEqual(ids(list), ["ses_5", "ses_8"]);
});
