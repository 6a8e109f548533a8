/** Tests of the console in a real browser against the real binary. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { findings, openBrowser, openPage } from "./look.ts";
import type { Outlast } from "./outlast.ts";
import { PAYLOADS, UNSEEN } from "./payloads.ts";
import { bakery, LONG } from "./stage.ts";

/** Longer than the delay after a list change during which decisions are disabled. */
const looked = (page: Page) => page.waitForTimeout(700);

const ANSWER = LONG.join("\n");

describe("the console", { timeout: 600_000 }, () => {
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

  async function shown(path: string, options = {}): Promise<{ page: Page; wrong: string[]; close: () => Promise<void> }> {
    const { page, context, wrong } = await openPage(browser, outlast.address, options);
    await page.goto(path);
    return { page, wrong, close: () => context.close() };
  }

  test("a message is sent by keyboard and its answer streams in", async () => {
    const { page, wrong, close } = await shown("/");
    await page.getByRole("heading", { name: "Sessions", exact: true }).waitFor();
    await page.keyboard.press("n");
    await page.getByText("No messages yet").waitFor();
    // A new session focuses the message field.
    await page.locator("#composer:focus").waitFor();
    await page.keyboard.type("tell me about durability");
    await page.keyboard.press("Enter");
    const saying = page.locator(".saying");
    await saying.getByText("what was acknowledged stays").waitFor();
    assert.equal(await saying.getByText("Nothing that was answered").count(), 0, "the end is not said yet");
    await page.locator(".said-assistant:not(.saying)").getByText("Größe, 日本語, 🦀.").waitFor();
    assert.equal(await saying.count(), 0);
    assert.deepEqual(wrong, []);
    await close();
  });

  test("only what a person said is asked again, and the page says so at what the agent said", async () => {
    const { session } = await outlast.say("hello");
    const { page, wrong, close } = await shown(`/sessions/${session}`);
    await page.getByText("You said: hello").waitFor();
    await page.keyboard.press("k");
    await page.keyboard.press("r");
    await page.locator(".said-assistant").getByText("Only user messages can be asked again.").waitFor();
    await page.keyboard.press("k");
    await page.keyboard.press("r");
    await page.getByRole("button", { name: "Try and compare" }).waitFor();
    assert.equal(await page.getByText("Only user messages").count(), 0);
    assert.deepEqual(wrong, []);
    await close();
  });

  for (const [width, waiting] of [[320, 0], [320, 12], [320, 1_000], [360, 12], [390, 120]] as const) {
    test(`nothing in the bar of a phone lies over anything else: ${width} px, ${waiting} questions`, async () => {
      const { page, context, wrong } = await openPage(browser, outlast.address, { width, height: 700 });
      await page.route("**/v1/approvals", (route) => route.fulfill({ json: { items: Array(waiting).fill({}) } }));
      await page.goto("/");
      if (waiting > 0) await page.locator(".count").waitFor();
      const boxes = await page.locator(".places nav a:visible, .places .more").evaluateAll((all) => all.map((one) => one.getBoundingClientRect().toJSON() as DOMRect));
      assert.equal(boxes.length, 5);
      for (const [at, one] of boxes.entries()) {
        assert.ok(one.left >= 0 && one.right <= width, `${at} is out of sight`);
        const over = boxes.slice(at + 1).filter((other) => one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom);
        assert.deepEqual(over, []);
      }
      assert.deepEqual(wrong, []);
      await context.close();
    });
  }

  test("the server is killed in the middle of an answer, and the page goes on without reload, without a lost or doubled letter", async () => {
    const { session } = await outlast.ask<{ session: string }>("/v1/turns", { text: "hello" });
    const { page, close } = await shown(`/sessions/${session}`);
    await page.getByText("You said: hello").waitFor();
    // Records everything that the page shows of the answer.
    await page.evaluate(() => {
      const seen = new Set<string>();
      Object.assign(globalThis, { seen, loaded: performance.timeOrigin });
      const look = () => {
        const all = [...document.querySelectorAll(".said-assistant .prose")].map((prose) => (prose as HTMLElement).innerText.trim());
        seen.add(all.slice(1).join("\u241e"));
        requestAnimationFrame(look);
      };
      look();
    });
    await page.fill("#composer", "durability, please");
    await page.keyboard.press("Enter");
    await page.locator(".saying").getByText("is picked up where it stood").waitFor();
    await outlast.kill();
    await page.getByText("reconnecting").waitFor();
    await outlast.start();
    await page.locator(".said-assistant:not(.saying)").getByText("Größe, 日本語, 🦀.").waitFor({ timeout: 30_000 });
    const [seen, loaded] = await page.evaluate(() => [[...(globalThis as unknown as { seen: Set<string> }).seen], performance.timeOrigin === (globalThis as unknown as { loaded: number }).loaded] as const);
    const whole = ANSWER.replaceAll("**", "");
    assert.equal(seen.at(-1), whole);
    for (const text of seen) assert.ok(whole.startsWith(text), `the page showed ${JSON.stringify(text)}`);
    assert.ok(loaded, "the page was not reloaded");
    const { items } = await outlast.ask<{ items: { role: string; text: string }[] }>(`/v1/sessions/${session}/messages`);
    assert.equal(items.at(-1)?.text, ANSWER);
    await close();
  });

  test("a call is shown exactly as it will run, approved by keyboard, and the turn goes on", async () => {
    const { session } = await outlast.say("refund please", { wait: 2 });
    const { page, wrong, close } = await shown("/approvals");
    const question = page.locator(".question").filter({ hasText: "refund" });
    await question.getByText("12345678901234567890").waitFor();
    const args = await question.locator("pre").innerText();
    assert.match(args, /RLO/);
    assert.match(args, /\\u001b\[31m/);
    assert.doesNotMatch(args, UNSEEN);
    await looked(page);
    await page.keyboard.press("a");
    await page.getByText("No call waits for an approval").waitFor();
    await page.goto(`/sessions/${session}`);
    await page.getByText("Done. The refund for order 4711").waitFor();
    await page.getByRole("button", { name: /^refund/ }).last().click();
    await page.getByText("refunds-are-approved").first().waitFor();
    assert.deepEqual(wrong, []);
    await close();
  });

  test("a call is denied with a reason, and another is approved with a change", async () => {
    await outlast.say("refund no", { wait: 2 });
    const { page, wrong, close } = await shown("/approvals");
    await page.locator(".question").waitFor();
    await page.keyboard.press("d");
    await page.keyboard.type("not without the bill");
    await looked(page);
    await page.keyboard.press("Enter");
    await page.getByText("No call waits for an approval").waitFor();
    const edited = await outlast.say("refund less", { wait: 2 });
    await page.locator(".question").waitFor();
    await page.keyboard.press("e");
    await page.getByLabel("Arguments").fill('{"order": "4711", "amount": 5}');
    await page.locator(".difference .line-new").first().waitFor();
    await looked(page);
    await page.getByRole("button", { name: "Approve this instead" }).click();
    await page.getByText("No call waits for an approval").waitFor();
    await page.goto(`/sessions/${edited.session}`);
    await page.getByText("Done. The refund").waitFor();
    assert.deepEqual(wrong, []);
    await close();
  });

  test("a session is forked behind any message, and both go on by themselves", async () => {
    const { session } = await outlast.say("first");
    await outlast.say("second", { session });
    const { page, wrong, close } = await shown(`/sessions/${session}`);
    await page.getByText("You said: second").waitFor();
    const first = page.locator(".said", { hasText: "You said: first" });
    await first.hover();
    await first.getByRole("button", { name: "Fork from here" }).click();
    await page.waitForURL((url) => url.pathname.startsWith("/sessions/") && !url.pathname.endsWith(session));
    await page.getByText("You said: first").waitFor();
    assert.equal(await page.getByText("You said: second").count(), 0);
    await page.fill("#composer", "third");
    await page.keyboard.press("Enter");
    await page.getByText("You said: third").waitFor();
    await page.goto(`/sessions/${session}`);
    await page.getByText("You said: second").waitFor();
    assert.equal(await page.getByText("You said: third").count(), 0);
    assert.deepEqual(wrong, []);
    await close();
  });

  test("the same is asked of another agent, and both answers stand side by side", async () => {
    const { session } = await outlast.say("what is open?");
    const { page, wrong, close } = await shown(`/sessions/${session}`);
    await page.getByText("You said: what is open?").waitFor();
    await page.locator(".said-user").hover();
    await page.getByRole("button", { name: "Ask again" }).click();
    await page.getByLabel("Ask again from here, in a new branch").fill("what is closed?");
    await page.getByLabel("Agent").selectOption("night");
    await page.getByRole("button", { name: "Run and compare" }).click();
    await page.waitForURL(/\/compare\?/);
    await page.locator(".difference .line-new").getByText("user: what is closed?").waitFor();
    await page.locator(".difference .line-gone").getByText("assistant: You said: what is open?").waitFor();
    assert.deepEqual(wrong, []);
    await close();
  });

  test("the turns from a message on are run again with another model, and both courses stand side by side", async () => {
    const { session } = await outlast.say("what is open?");
    const { page, wrong, close } = await shown(`/sessions/${session}`);
    await page.getByText("You said: what is open?").waitFor();
    await page.locator(".said-user").hover();
    await page.getByRole("button", { name: "Ask again" }).click();
    await page.getByLabel("Model", { exact: true }).fill("rehearsal/agent");
    await page.getByRole("button", { name: "Try and compare" }).click();
    await page.locator(".courses").getByText("1 of 1 turn differs").waitFor();
    await page.locator(".courses .line-gone").getByText("You said: what is open?").waitFor();
    assert.deepEqual(wrong, []);
    await close();
  });

  test("a message is found by the beginning of its words, in any session", async () => {
    const { session } = await outlast.say("a xylophone for ann");
    const { page, wrong, close } = await shown("/");
    await page.locator(".session-line").first().waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("ann xylo");
    await page.locator(".hits a", { hasText: "a xylophone for ann" }).first().click();
    await page.waitForURL((url) => url.pathname === `/sessions/${session}`);
    assert.deepEqual(wrong, []);
    await close();
  });

  test("ten thousand sessions are listed, searched and moved through without delay", async () => {
    const many = bakery();
    await many.start();
    try {
      const keys = Array.from({ length: 10_000 }, (_, at) => `order-${at}`);
      const work = async () => {
        for (let key = keys.pop(); key; key = keys.pop()) await many.ask("/v1/sessions", { key });
      };
      await Promise.all(Array.from({ length: 64 }, work));
      const { page, context, wrong } = await openPage(browser, many.address);
      const began = Date.now();
      await page.goto("/");
      await page.locator(".session-line").first().waitFor();
      assert.ok(Date.now() - began < 3_000, `the list took ${Date.now() - began} ms`);
      // Scrolls to the end page by page, as if the key were held down.
      await page.locator(".rows").focus();
      await page.waitForFunction(
        () => {
          const rows = document.querySelector(".rows");
          if (rows) rows.scrollTop = rows.scrollHeight;
          return document.querySelector(".foot")?.textContent?.startsWith("10000 ");
        },
        undefined,
        { polling: 50, timeout: 60_000 },
      );
      assert.ok((await page.locator(".session-line").count()) < 100, "only what can be seen is there");
      const slowest = await page.evaluate(async () => {
        const rows = document.querySelector(".rows");
        let [slowest, before] = [0, performance.now()];
        for (let step = 0; step < 60; step++) {
          if (rows) rows.scrollTop = (rows.scrollHeight / 60) * step;
          await new Promise(requestAnimationFrame);
          [slowest, before] = [Math.max(slowest, performance.now() - before), performance.now()];
        }
        return slowest;
      });
      assert.ok(slowest < 500, `a frame took ${slowest} ms`);
      await page.keyboard.press("/");
      await page.keyboard.type("order-4711");
      await page.locator(".foot").getByText(/^1 session$/).waitFor();
      assert.deepEqual(wrong, []);
      await context.close();
    } finally {
      await many.close();
    }
  });

  test("nothing that an agent says becomes markup, is loaded from elsewhere, or stays unseen", async () => {
    assert.ok(PAYLOADS.length >= 200, `${PAYLOADS.length} payloads`);
    let session: string | undefined;
    for (const payload of PAYLOADS) ({ session } = await outlast.say(`echo ${payload}`, session ? { session } : {}));
    for (const payload of PAYLOADS.filter((_, at) => at % 12 === 0)) await outlast.say(`${payload} echo`, { wait: 0 });
    const { page, wrong, close } = await shown(`/sessions/${session}`);
    await page.getByText("echo").first().waitFor();
    while (await page.getByRole("button", { name: "Earlier messages" }).count()) await page.getByRole("button", { name: "Earlier messages" }).click();
    const look = () =>
      page.evaluate(() => ({
        markup: document.querySelectorAll("main :is(script, img, iframe, object, embed, svg script, style, link, meta, base, form[action], [onerror], [onload], video, math)").length,
        links: [...document.querySelectorAll<HTMLAnchorElement>("main .prose a")].map((link) => link.protocol),
        text: document.body.innerText,
      }));
    for (const path of [undefined, "/"]) {
      if (path) await page.goto(path);
      await page.getByText("echo").first().waitFor();
      const { markup, links, text } = await look();
      assert.equal(markup, 0);
      assert.ok(links.every((protocol) => protocol === "https:" || protocol === "http:"), links.join());
      assert.doesNotMatch(text, UNSEEN);
    }
    assert.deepEqual(wrong, []);
    await close();
  });

  test("pages of other sites reach nothing", async () => {
    const count = async () => (await outlast.ask<{ items: unknown[] }>("/v1/sessions?limit=500")).items.length;
    const had = await count();
    const { page, context } = await openPage(browser, outlast.address);
    await page.goto("data:text/html,<title>elsewhere</title>");
    const read = await page.evaluate(async (address) => {
      // Imitates a form on another site: a request without a CORS preflight.
      await fetch(`${address}/v1/sessions`, { method: "POST", mode: "no-cors", body: "{}" }).catch(() => {});
      return fetch(`${address}/v1/sessions`).then((response) => response.status, () => "refused");
    }, outlast.address);
    assert.equal(read, "refused");
    assert.equal(await count(), had);
    await context.close();
  });

  test("a server that wants a key shows nothing without it, and the key is forgotten with the tab", async () => {
    const locked = bakery("--require-key");
    await locked.start();
    try {
      const key = /olk_\S+/.exec(locked.run("keys", "create", "ann", "--person", "--scope", "admin"))?.[0] ?? "";
      const { page, context } = await openPage(browser, locked.address);
      await page.goto("/");
      await page.getByLabel("API key").fill("olk_wrong");
      await page.keyboard.press("Enter");
      await page.getByText("The key is not valid").waitFor();
      assert.deepEqual(await findings(page), []);
      await page.getByLabel("API key").fill(key);
      await page.keyboard.press("Enter");
      await page.getByText("No sessions yet").waitFor();
      await page.reload();
      await page.getByText("No sessions yet").waitFor();
      assert.ok(!page.url().includes("olk_"));
      const other = await context.newPage();
      await other.goto("/");
      await other.getByLabel("API key").waitFor();
      await context.close();
    } finally {
      await locked.close();
    }
  });
});
