/** Tests of user actions: fork, ask again, decide, settle, view. Includes concurrent users and crashes. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { openBrowser, openPage } from "./look.ts";
import type { Outlast } from "./outlast.ts";
import { UNSEEN } from "./payloads.ts";
import { bakery } from "./stage.ts";

interface List<T> {
  items: T[];
  next?: string;
}

/** Longer than the delay after a list change during which decisions are disabled. */
const looked = (page: Page) => page.waitForTimeout(700);

describe("in the console", { timeout: 600_000 }, () => {
  let browser: Browser;
  let outlast: Outlast;
  before(async () => {
    browser = await openBrowser();
    outlast = bakery();
    await outlast.start();
  });
  after(async () => {
    await browser?.close();
    await outlast?.close();
  });

  async function shown(path: string, on = outlast, options = {}): Promise<{ page: Page; wrong: string[]; close: () => Promise<void> }> {
    const { page, context, wrong } = await openPage(browser, on.address, options);
    await page.goto(path);
    return { page, wrong, close: () => context.close() };
  }

  /** Runs a test with a separate server, which it may kill or fill. */
  async function apart(act: (own: Outlast) => Promise<void>, ...more: string[]): Promise<void> {
    const own = bakery(...more);
    try {
      await own.start();
      await act(own);
    } finally {
      await own.close();
    }
  }

  test("a question that somebody else decides takes the form with it that was open on it", async () => {
    await outlast.say("refund one", { wait: 2 });
    await outlast.say("refund two", { wait: 2 });
    const { items } = await outlast.ask<List<{ id: string }>>("/v1/approvals");
    const [first, second] = items;
    const { page, wrong, close } = await shown("/approvals");
    await page.locator(".question").nth(1).waitFor();
    await page.keyboard.press("e");
    await page.getByLabel("Arguments").fill('{"order": "666", "amount": 1}');
    await page.getByRole("button", { name: "Approve this instead" }).waitFor();
    await outlast.ask(`/v1/approvals/${first?.id}`, { verdict: "deny", reason: "no" });
    await page.getByText("1 call waits for an approval").waitFor();
    assert.equal(await page.getByLabel("Arguments").count(), 0);
    assert.equal(await page.getByRole("button", { name: "Approve this instead" }).count(), 0);
    assert.equal(await page.locator(".question").getByRole("button", { name: "Approve", exact: false }).first().isVisible(), true);
    await looked(page);
    await page.keyboard.press("d");
    await page.keyboard.type("not today");
    await page.keyboard.press("Enter");
    await page.getByText("No call waits for an approval").waitFor();
    assert.deepEqual((await outlast.ask<List<{ id: string }>>("/v1/approvals")).items.filter(({ id }) => id === second?.id), []);
    assert.deepEqual(wrong, []);
    await close();
  });

  test("keys do nothing behind the list of keys", async () => {
    await outlast.say("refund behind", { wait: 2 });
    const { page, wrong, close } = await shown("/approvals");
    await page.locator(".question").waitFor();
    await looked(page);
    await page.keyboard.press("?");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("a");
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "hidden" });
    assert.equal((await outlast.ask<List<unknown>>("/v1/approvals")).items.length, 1);
    await page.keyboard.press("a");
    await page.getByText("No call waits for an approval").waitFor();
    assert.deepEqual(wrong, []);
    await close();
  });

  /** Presses two keys without a frame between them, as a fast typist does on a slow machine. */
  const together = (page: Page, ...keys: string[]) =>
    page.evaluate(async (keys) => {
      for (const key of keys) {
        document.activeElement?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
        // Effects that wait for a frame have not run after this.
        for (let turns = 0; turns < 10; turns++) await Promise.resolve();
      }
    }, keys);

  test("keys at once after a form or the list of keys opened decide nothing", async () => {
    await outlast.say("refund at once", { wait: 2 });
    const { page, wrong, close } = await shown("/approvals");
    await page.locator(".question").waitFor();
    await looked(page);
    for (const opens of ["?", "d", "e"]) {
      await together(page, opens, "a");
      await page.locator(opens === "?" ? "dialog" : ".question form").waitFor();
      await page.keyboard.press("Escape");
      await page.keyboard.press("Escape");
      await page.locator(opens === "?" ? "dialog" : ".question form").waitFor({ state: "detached" });
    }
    await looked(page);
    assert.equal((await outlast.ask<List<unknown>>("/v1/approvals")).items.length, 1);
    await page.keyboard.press("a");
    await page.getByText("No call waits for an approval").waitFor();
    assert.deepEqual(wrong, []);
    await close();
  });

  test("events before the stream of a page begins are not lost", async () => {
    await apart(async (own) => {
      const { page: sessions, context, wrong } = await openPage(browser, own.address);
      const approvals = await context.newPage();
      let connect = () => {};
      const connects = new Promise<void>((resolve) => (connect = resolve));
      await context.route("**/v1/events?*", async (route) => {
        await connects;
        await route.continue();
      });
      await sessions.goto("/");
      await approvals.goto("/approvals");
      await sessions.getByText("No sessions yet").waitFor();
      await approvals.getByText("No call waits for an approval").waitFor();
      await own.say("refund early", { wait: 0 });
      await own.until<List<unknown>>("/v1/approvals", ({ items }) => items.length === 1);
      connect();
      await sessions.locator(".session-line").getByText("refund early").waitFor();
      await approvals.locator(".question").waitFor();
      assert.deepEqual(wrong, []);
      await context.close();
    });
  });

  test("a page that was locked is kept up to date once it has a key", async () => {
    await apart(async (own) => {
      const key = /olk_\S+/.exec(own.run("keys", "create", "ann", "--person", "--scope", "admin"))?.[0] ?? "";
      const { page, close } = await shown("/", own);
      await page.getByLabel("API key").fill(key);
      await page.keyboard.press("Enter");
      await page.getByText("No sessions yet").waitFor();
      await page.waitForTimeout(500);
      const headers = { "content-type": "application/json", authorization: `Bearer ${key}` };
      await fetch(`${own.address}/v1/turns?wait=10`, { method: "POST", headers, body: JSON.stringify({ text: "good morning" }) });
      await page.locator(".session-line").getByText("good morning").waitFor();
      await close();
    }, "--require-key");
  });

  test("a message is sent and data is copied over plain HTTP from another machine", async () => {
    const far = await openBrowser("--host-resolver-rules=MAP bakery.test 127.0.0.1");
    try {
      await apart(async (own) => {
        const { page, wrong } = await openPage(far, own.address.replace("127.0.0.1", "bakery.test"));
        const key = /olk_\S+/.exec(own.run("keys", "create", "ann", "--person", "--scope", "admin"))?.[0] ?? "";
        await page.goto("/");
        assert.equal(await page.evaluate(() => isSecureContext), false);
        // Addresses other than those of the local machine require a key.
        await page.getByLabel("API key").fill(key);
        await page.keyboard.press("Enter");
        await page.getByText("No sessions yet").waitFor();
        wrong.length = 0;
        await page.keyboard.press("n");
        await page.fill("#composer", "two orders");
        await page.keyboard.press("Enter");
        await page.getByText("Both were found.").waitFor();
        await page.locator("button.effect-tool_call").first().click();
        await page.getByRole("button", { name: "Copy" }).first().click();
        await page.getByRole("button", { name: "Copied" }).waitFor();
        assert.deepEqual(wrong, []);
      }, "--allow-host", "bakery.test");
    } finally {
      await far.close();
    }
  });

  test("what a tool says while it runs and the name of a head hide nothing", async () => {
    await apart(async (own) => {
      const { session, turn } = await own.say("weigh it", { wait: 0 });
      const { items } = await own.until<List<{ key: string; kind: string }>>(`/v1/turns/${turn}/effects`, ({ items }) => items.some(({ kind }) => kind === "tool_call"));
      const key = items.find(({ kind }) => kind === "tool_call")?.key;
      await own.ask(`/v1/sessions/${session}/fork`, { head: "draft\u202Etfard", at: 2 });
      const { page, context, wrong } = await openPage(browser, own.address);
      const live = { session, turn, type: "live", data: { type: "progress", key, note: "half\u202E\u0007 done" } };
      await page.route("**/events?*", (route) => route.continue());
      await page.route(`**/v1/sessions/${session}/events*`, (route) => route.fulfill({ contentType: "text/event-stream", body: `event: live\ndata: ${JSON.stringify(live)}\n\n` }));
      await page.goto(`/sessions/${session}`);
      await page.locator(".call-result").getByText("half").waitFor();
      await page.locator(".effect-more").getByText("half").waitFor();
      await page.getByRole("tab", { name: "Tree" }).click();
      await page.locator(".chip", { hasText: "draft" }).waitFor();
      const text = await page.evaluate(() => document.body.innerText + document.title + [...document.querySelectorAll("option")].map((option) => option.textContent).join());
      assert.doesNotMatch(text, UNSEEN);
      assert.match(text, /RLO/);
      own.allow("weighed");
      assert.deepEqual(wrong, []);
      await context.close();
    });
  });

  test("an inherited message is forked where it was said, and a head where it ends", async () => {
    const { session } = await outlast.say("first");
    await outlast.say("second", { session });
    const { items } = await outlast.ask<List<{ last: number }>>(`/v1/sessions/${session}/turns`);
    const child = (await outlast.ask<{ id: string }>(`/v1/sessions/${session}/fork`, { at: items[1]?.last })).id;
    await outlast.say("third", { session: child });
    const { page, wrong, close } = await shown(`/sessions/${child}`);
    await page.getByText("You said: third").waitFor();
    const inherited = page.locator(".said", { hasText: "You said: first" });
    await inherited.hover();
    await inherited.getByRole("button", { name: "Fork from here" }).click();
    await page.waitForURL((url) => !url.pathname.endsWith(child));
    await page.getByText("You said: first").waitFor();
    assert.equal(await page.getByText("You said: second").count(), 0);
    assert.equal(await page.getByText("You said: third").count(), 0);

    await outlast.ask(`/v1/sessions/${session}/fork`, { head: "b", at: items[0]?.last });
    await outlast.ask(`/v1/sessions/${session}/turns?wait=20`, { text: "aside", head: "b" });
    await page.goto(`/sessions/${session}?head=b`);
    await page.getByText("You said: aside").waitFor();
    await page.keyboard.press("F");
    await page.waitForURL((url) => !url.pathname.endsWith(session));
    await page.getByText("You said: aside").waitFor();
    assert.equal(await page.getByText("You said: second").count(), 0);
    assert.deepEqual(wrong, []);
    await close();
  });

  test("the first message that is shown of a long session is asked again behind those that are not shown", async () => {
    await apart(async (own) => {
      const said = (at: number) => `number ${at} ${"of many ".repeat(900)}`;
      const { session } = await own.say(said(0));
      for (let at = 1; at < 70; at++) await own.say(said(at), { session });
      const { page, wrong, close } = await shown(`/sessions/${session}`, own);
      await page.getByText("You said: number 69").waitFor();
      const first = page.locator(".said-user").first();
      const at = Number((await first.locator(".plain-text").innerText()).split(" ")[1]);
      assert.ok(at > 0, "there are earlier pages");
      // Dispatches the event directly, because scrolling to the button would load earlier pages.
      await first.getByRole("button", { name: "Ask again" }).dispatchEvent("click");
      await page.locator("form.rerun button.primary:not([disabled])").dispatchEvent("click");
      await page.waitForURL(/\/compare\?/);
      const right = new URL(page.url()).searchParams.get("right") ?? "";
      const fork = await own.ask<{ forked_from?: { session: string } }>(`/v1/sessions/${right}`);
      assert.equal(fork.forked_from?.session, session);
      // The comparison hides the common prefix, even if it is long.
      const sides = page.locator(".sides section");
      await sides.first().locator(".said").first().waitFor();
      assert.match(await sides.first().locator(".said-user p").first().innerText(), new RegExp(`^number ${at + 1} `));
      assert.equal(await sides.nth(1).locator(".said").count(), 0);
      assert.deepEqual(wrong, []);

      await page.goto(`/sessions/${session}`);
      await page.getByRole("heading", { name: "Turn 70" }).waitFor();
      assert.equal(await page.getByRole("heading", { name: "Turn 40" }).count(), 0);
      await page.getByRole("button", { name: "Earlier turns" }).click();
      await page.getByRole("heading", { name: "Turn 11" }).waitFor();
      await close();
    });
  });

  test("a turn is run again by the agent that answered it, unless another is chosen", async () => {
    const { session } = await outlast.say("what time is it?", { agent: "night" });
    const { page, wrong, close } = await shown(`/sessions/${session}`);
    const again = async () => {
      await page.locator(".said-user").hover();
      await page.getByRole("button", { name: "Ask again" }).click();
      await page.locator("select option[value=night]").getByText("answered originally").waitFor({ state: "attached" });
      assert.equal(await page.getByLabel("Agent").inputValue(), "night");
    };
    await page.locator(".said-assistant").first().waitFor();
    await again();
    const asked = page.waitForRequest((request) => request.url().endsWith("/rerun"));
    await page.getByRole("button", { name: "Try and compare" }).click();
    assert.equal(((await asked).postDataJSON() as { agent: string }).agent, "night");
    const columns = page.locator(".courses table.paired").first();
    await page.locator(".courses").getByText("0 of 1 turn differs").waitFor();
    await columns.getByText("Then").waitFor();
    await columns.getByText("Now").waitFor();
    await page.getByRole("button", { name: "Run and compare" }).click();
    await page.waitForURL(/\/compare\?/);
    const right = new URL(page.url()).searchParams.get("right") ?? "";
    const { items } = await outlast.until<List<{ id: string; state: string }>>(`/v1/sessions/${right}/turns`, ({ items }) => items[0]?.state === "ended");
    assert.equal((await outlast.ask<{ agent: string }>(`/v1/turns/${items[0]?.id}`)).agent, "night");
    assert.deepEqual(wrong, []);
    await close();
  });

  test("a page of the list on which nothing fits is not taken for the last one", async () => {
    const { session } = await outlast.say("a needle");
    const { page, context, wrong } = await openPage(browser, outlast.address);
    const asked: string[] = [];
    await page.route("**/v1/sessions?*", async (route) => {
      const url = new URL(route.request().url());
      if (url.searchParams.get("search") !== "needle") return route.continue();
      const cursor = url.searchParams.get("cursor") ?? "";
      asked.push(cursor);
      if (cursor !== "cur_2") return route.fulfill({ json: { items: [], next: cursor ? "cur_2" : "cur_1" } });
      url.searchParams.delete("cursor");
      return route.continue({ url: url.href });
    });
    await page.goto("/?search=needle");
    await page.locator(`.session-line[href="/sessions/${session}"]`).waitFor();
    // The list begins again if the stream of events connects meanwhile.
    assert.deepEqual([...new Set(asked)], ["", "cur_1", "cur_2"]);
    assert.deepEqual(wrong, []);
    await context.close();
  });

  test("a session leaves a filtered list with its state, and every list when it is deleted", async () => {
    await apart(async (own) => {
      await own.say("refund me", { wait: 2 });
      const idle = await own.say("just a word");
      const { page, wrong, close } = await shown("/?state=parked", own);
      await page.locator(".session-line", { hasText: "refund me" }).waitFor();
      const [question] = (await own.ask<List<{ id: string }>>("/v1/approvals")).items;
      await own.ask(`/v1/approvals/${question?.id}`, { verdict: "approve" });
      await page.locator(".session-line", { hasText: "refund me" }).waitFor({ state: "detached" });
      await page.goto("/");
      await page.locator(".session-line", { hasText: "just a word" }).waitFor();
      await fetch(`${own.address}/v1/sessions/${idle.session}`, { method: "DELETE" });
      await page.locator(".session-line", { hasText: "just a word" }).waitFor({ state: "detached", timeout: 30_000 });
      assert.equal(await page.locator(".session-line", { hasText: "refund me" }).count(), 1);
      assert.deepEqual(wrong, []);
      await close();
    });
  });

  test("who scrolls on while the list is searched anew sees what is found", async () => {
    await apart(async (own) => {
      for (let at = 0; at < 60; at++) await own.ask("/v1/sessions", { key: `order-${at}` });
      const { page, wrong, close } = await shown("/", own);
      await page.locator(".foot").getByText("60 sessions").waitFor();
      await page.evaluate(() => {
        const [field, rows] = [document.querySelector<HTMLInputElement>("input[type=search]"), document.querySelector(".rows")];
        if (!field || !rows) return;
        field.value = "order-7";
        field.dispatchEvent(new InputEvent("input", { bubbles: true }));
        requestAnimationFrame(() => (rows.scrollTop = rows.scrollHeight));
      });
      await page.waitForTimeout(600);
      await page.locator(".session-line", { hasText: "order-7" }).waitFor();
      await page.locator(".foot").getByText(/^1 session$/).waitFor();
      assert.deepEqual(wrong, []);
      await close();
    });
  });

  test("a page that is opened while the server is down is there when the server is", async () => {
    await apart(async (own) => {
      await own.say("good evening");
      const { page, close } = await shown("/", own);
      await page.locator(".session-line", { hasText: "good evening" }).waitFor();
      await own.kill();
      await page.locator(".session-line", { hasText: "good evening" }).click();
      await page.getByText("The server does not respond").waitFor();
      await own.start();
      await page.getByText("You said: good evening").waitFor();
      await own.kill();
      await page.keyboard.press("g");
      await page.keyboard.press("n");
      await page.getByText("The server does not respond").first().waitFor();
      await own.start();
      await page.getByRole("heading", { name: "clerk" }).waitFor();
      await close();
    });
  });

  test("a process is killed under a call, and the second try stays visible", async () => {
    await apart(async (own) => {
      const { session } = await own.say("weigh it", { wait: 0 });
      const { page, close } = await shown(`/sessions/${session}`, own);
      await page.locator(".effect-tool_call.effect-open").waitFor();
      await own.kill();
      await own.start();
      await page.locator(".effect-more").getByText("attempt 2").first().waitFor({ timeout: 30_000 });
      own.allow("weighed");
      await page.getByText("It weighs 5 kg.").waitFor();
      await page.reload();
      const call = page.locator("button.effect-tool_call");
      await call.getByText("attempt 2").waitFor();
      assert.equal(await call.locator(".span-vain").count(), 1);
      await call.click();
      await page.locator(".incidents").getByText("attempt 2 started").waitFor();
      await page.getByRole("button", { name: "← Timeline" }).click();
      await page.locator("button.effect-model_call").last().click();
      await page.getByRole("button", { name: "Show the request to the model" }).click();
      await page.getByRole("group", { name: "Prompt" }).getByText("You look after the orders of a bakery").waitFor();
      assert.match(await page.getByRole("group", { name: "Messages" }).innerText(), /"kg": 5/);
      await close();
    });
  });

  test("attempts that failed, decisions, and who went on after a kill are told by the timeline", async () => {
    await apart(async (own) => {
      const { session, turn } = await own.say("the shaky scale", { wait: 0 });
      await own.until<List<{ kind: string }>>(`/v1/turns/${turn}/effects`, ({ items }) => items.some(({ kind }) => kind === "tool_call"));
      await own.kill();
      await own.start();
      own.allow("weighed");
      const { page, wrong, close } = await shown(`/sessions/${session}`, own);
      await page.getByText("The scale is steady: 5 kg.").waitFor({ timeout: 30_000 });
      await page.locator(".of-turn").getByText("scales-by-day").waitFor();
      await page.locator(".resumed").getByText(/1 effect from the journal/).waitFor();
      const first = page.locator("button.effect-model_call").first();
      await first.getByText("2 attempts failed").waitFor();
      await first.getByText("replayed").waitFor();
      assert.equal(await first.locator(".span-vain").count(), 2);
      assert.ok((await page.locator(".track .resume").count()) > 0);
      await page.keyboard.press("J");
      await page.keyboard.press("o");
      await page.locator(".incidents").getByText("attempt 1 failed").waitFor();
      await page.locator(".incidents").getByText("model.unavailable").first().waitFor();
      assert.deepEqual(wrong, []);
      await close();
    });
  });

  test("a call of which nobody knows whether it happened is settled", async () => {
    await apart(async (own) => {
      const { session, turn } = await own.say("the bill", { wait: 0 });
      await own.until<List<{ kind: string }>>(`/v1/turns/${turn}/effects`, ({ items }) => items.some(({ kind }) => kind === "tool_call"));
      await own.kill();
      await own.start();
      const { page, wrong, close } = await shown("/approvals", own);
      await page.getByText("Calls with an unknown outcome").waitFor({ timeout: 30_000 });
      await page.getByLabel("What pay gave, JSON or text").fill('{"state": "paid"}');
      await page.getByRole("button", { name: "It happened" }).click();
      await page.getByText("Calls with an unknown outcome").waitFor({ state: "detached" });
      await page.goto(`/sessions/${session}`);
      await page.locator("button.effect-tool_call.effect-done").waitFor();
      assert.deepEqual(wrong, []);
      await close();
    });
  });

  test("heads are made, looked at and moved back in the tree", async () => {
    const { session } = await outlast.say("first");
    await outlast.say("second", { session });
    const { page, wrong, close } = await shown(`/sessions/${session}`);
    await page.getByText("You said: second").waitFor();
    await page.keyboard.press("3");
    await page.getByLabel("New head at the end of main").fill("draft");
    await page.getByRole("button", { name: "Branch" }).click();
    await page.waitForURL(/head=draft/);
    await page.fill("#composer", "aside");
    await page.keyboard.press("Enter");
    await page.getByText("You said: aside").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Rewind to turn 1" }).click();
    await page.getByText("You said: aside").waitFor({ state: "detached" });
    await page.getByText("You said: first").waitFor();
    const { heads } = await outlast.ask<{ heads: { name: string; at: { seq: number } }[] }>(`/v1/sessions/${session}`);
    const { items } = await outlast.ask<List<{ last: number }>>(`/v1/sessions/${session}/turns`);
    assert.equal(heads.find(({ name }) => name === "draft")?.at.seq, items[0]?.last);
    assert.deepEqual(wrong, []);
    await close();
  });

  test("a file is attached, its context is counted, and both are shown", async () => {
    const { session } = await outlast.say("before the file");
    const { page, wrong, close } = await shown(`/sessions/${session}`);
    await page.getByText("You said: before the file").waitFor();
    await page.locator("input[type=file]").setInputFiles({ name: "recipe.txt", mimeType: "text/plain", buffer: Buffer.from("flour") });
    await page.getByText("recipe.txt").waitFor();
    await page.fill("#composer", "the recipe");
    await page.keyboard.press("Enter");
    await page.getByText("You said: the recipe").waitFor();
    await page.getByRole("tab", { name: "Files" }).click();
    await page.locator(".files").getByText("recipe.txt").waitFor();
    await page.getByRole("tab", { name: "Context" }).click();
    await page.getByText(/About \d+ tokens in \d+ messages, and 1 file/).waitFor();
    assert.deepEqual(wrong, []);
    await close();
  });

  test("plots have their numbers beside them, and the server says how it is", async () => {
    await outlast.say("anything");
    const { page, wrong, close } = await shown("/costs");
    await page.getByRole("button", { name: "replies" }).click();
    const plot = page.getByRole("table", { name: "replies by day and model" });
    await plot.waitFor({ state: "attached" });
    assert.ok((await plot.locator("tbody tr").count()) >= 7);
    await page.locator(".uplot canvas").first().waitFor();
    await page.keyboard.press("2");
    await page.locator(".shares").getByText("clerk").waitFor();
    await page.goto("/server");
    await page.getByText("an acknowledged write survives power loss").waitFor();
    await page.locator(".gauges").getByText("Writes, with their sync").waitFor();
    await page.locator(".gauges div").filter({ hasText: "Syncs to the disk" }).getByText(/^≤ /).waitFor();
    await page.getByRole("table", { name: "the slowest syncs to the disk" }).getByRole("columnheader", { name: "syncs" }).waitFor({ state: "attached" });
    await page.getByRole("cell", { name: "GET /v1/cost" }).waitFor();
    assert.deepEqual(wrong, []);
    await close();
  });

  test("versions of an agent and the package of a turn are shown with what changed", async () => {
    await apart(async (own) => {
      await own.keep("night", { system: "Be brief." });
      await own.keep("night", { system: "Be very brief." });
      const { turn } = await own.say("anything");
      const { page, wrong, close } = await shown("/agents/night", own);
      await page.locator(".difference .line-new").getByText("Be very brief.").waitFor();
      await page.locator(".difference .line-gone").getByText("Be brief.").waitFor();
      await page.getByLabel("Turn").fill(turn);
      await page.keyboard.press("Enter");
      await page.getByLabel("Changes since the package of the turn").getByText("You look after the orders of a bakery at night").waitFor();
      await page.goto(`/agents/clerk?turn=${turn}`);
      await page.getByText("The turn used the current package.").waitFor();
      assert.deepEqual(wrong, []);
      await close();
    });
  });

  test("a turn that waits for its provider says so and is tried now on request", async () => {
    await apart(async (own) => {
      const { session } = await own.say("cold oven", { wait: 1 });
      await own.until<{ state: string }>(`/v1/sessions/${session}`, ({ state }) => state === "parked");
      const { page, wrong, close } = await shown("/", own);
      await page.getByText("its model provider").waitFor();
      await page.goto(`/sessions/${session}`);
      const standing = page.locator(".standing-waits");
      await standing.getByText("Waits for its model provider").waitFor();
      await standing.getByText("does not answer").waitFor();
      await standing.getByRole("link", { name: "model.unavailable" }).waitFor();
      await standing.getByText("the oven is cold").waitFor();
      await standing.getByRole("button", { name: "Try now" }).click();
      await page.getByText("The oven is warm.").waitFor();
      await standing.waitFor({ state: "detached" });
      assert.deepEqual(wrong, []);
      await close();
    });
  });

  test("a turn that is stuck says why and is tried again on request", async () => {
    await apart(async (own) => {
      const { session } = await own.say("locked oven", { wait: 1 });
      await own.until<{ last_end?: string }>(`/v1/sessions/${session}`, ({ last_end }) => last_end === "stuck");
      const { page, wrong, close } = await shown("/?last_end=stuck", own);
      await page.getByText("an operator").waitFor();
      await page.goto(`/sessions/${session}`);
      const standing = page.locator(".standing-stuck");
      await standing.getByText("Stuck").waitFor();
      await standing.getByRole("link", { name: "model.unauthorized" }).waitFor();
      await standing.getByText("the key does not fit").waitFor();
      await standing.getByRole("button", { name: "Try again" }).click();
      await page.getByText("The oven is open.").waitFor();
      await standing.waitFor({ state: "detached" });
      assert.deepEqual(wrong, []);
      await close();
    });
  });

  test("a session shows how its last turn ended, and the list is filtered by it", async () => {
    await apart(async (own) => {
      await own.say("anything");
      await own.say("wrong oven");
      const { page, wrong, close } = await shown("/", own);
      await page.getByText("last turn failed").waitFor();
      await page.getByText("2 sessions").waitFor();
      await page.getByLabel("How the last turn ended").selectOption("Failed");
      await page.getByText("1 session", { exact: true }).waitFor();
      await page.getByText("last turn failed").waitFor();
      await page.getByLabel("How the last turn ended").selectOption("Sealed");
      await page.getByText("No matching sessions").waitFor();
      assert.deepEqual(wrong, []);
      await close();
    });
  });
});
