/** Tests of details: long names, long lists, text fields, questions, focus, missing sessions. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { findings, openBrowser, openPage } from "./look.ts";
import type { Outlast } from "./outlast.ts";
import { UNSEEN } from "./payloads.ts";
import { bakery } from "./stage.ts";

describe("a detail", { timeout: 600_000 }, () => {
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

  test("the name of a session gives way to what stands beside it", async () => {
    const { id } = await outlast.ask<{ id: string }>("/v1/sessions", { key: "quarter-report" });
    await outlast.say(`weigh it: ${"a long first message ".repeat(8)}`, { session: id, wait: 0 });
    await outlast.until<{ active?: string }>(`/v1/sessions/${id}`, ({ active }) => active !== undefined);
    for (const width of [1280, 900, 390, 320]) {
      const { page, wrong, close } = await shown(`/sessions/${id}`, { width });
      await page.getByRole("button", { name: "Stop" }).waitFor();
      const boxes = await page.locator(".session > .bar > *").evaluateAll((all) => all.map((one) => {
        const words = document.createRange();
        words.selectNodeContents(one);
        const [box, style] = [one.getBoundingClientRect(), getComputedStyle(one)];
        const room = box.width - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
        return { is: one.textContent, cut: words.getBoundingClientRect().width > room + 0.01, ...(box.toJSON() as DOMRect) };
      }));
      for (const [at, one] of boxes.entries()) {
        assert.ok(one.left >= 0 && one.right <= width, `${width} px: ${one.is} is out of sight`);
        assert.ok(one.height < 36, `${width} px: ${one.is} has more than one line`);
        assert.equal(one.cut, at === 0, `${width} px: ${one.is} is ${one.cut ? "" : "not "}cut`);
        const over = boxes.slice(at + 1).filter((other) => one.left < other.right - 0.5 && other.left < one.right - 0.5 && one.top < other.bottom && other.top < one.bottom);
        assert.deepEqual(over, [], `${width} px: ${one.is} lies over others`);
      }
      assert.deepEqual(wrong, []);
      await close();
    }
    outlast.allow("weighed");
  });

  test("the audit begins with what was done last, and it and versions are read to their first", async () => {
    const times = 230;
    for (let at = 1; at <= times; at++) await outlast.keep("diary", { system: `Day ${at}.` });
    const { page, wrong, close } = await shown("/access");
    await page.getByRole("button", { name: "Audit" }).click();
    await page.locator("tbody tr").first().getByText(`version ${times}`, { exact: true }).waitFor();
    assert.equal(await page.getByText("version 1", { exact: true }).count(), 0);
    await page.getByRole("button", { name: "More acts" }).click();
    await page.getByText("version 1", { exact: true }).waitFor();
    assert.equal(await page.getByRole("button", { name: "More acts" }).count(), 0);
    await page.goto("/agents/diary");
    await page.getByRole("button", { name: `Version ${times}`, exact: true }).waitFor();
    await page.getByRole("button", { name: "More versions" }).click();
    await page.getByRole("button", { name: "Version 1", exact: true }).click();
    await page.getByRole("group", { name: "Version 1", exact: true }).getByText("Day 1.").waitFor();
    assert.deepEqual(wrong, []);
    await close();
  });

  test("a version that was deleted says so, and the one behind it is shown as a whole", async () => {
    await outlast.keep("guest", { system: "Be kind." });
    await fetch(`${outlast.address}/v1/configs/agent/guest`, { method: "DELETE" });
    const { page, wrong, close } = await shown("/agents/guest");
    await page.getByText("Version 2 deleted it.").waitFor();
    await page.locator(".versions li").first().getByText("just now, deleted").waitFor();
    await outlast.keep("guest", { system: "Be kinder." });
    await page.reload();
    await page.getByRole("group", { name: "Version 3" }).getByText("Be kinder.").waitFor();
    assert.equal(await page.locator(".difference").count(), 0);
    assert.equal(await page.getByText("now ago").count(), 0);
    assert.deepEqual(wrong, []);
    await close();
  });

  test("arguments that are changed hide nothing in their box, and stay what they are", async () => {
    await outlast.say("refund please", { wait: 2 });
    const { page, wrong, close } = await shown("/approvals");
    await page.locator(".question").waitFor();
    await page.keyboard.press("e");
    const box = page.getByLabel("Arguments");
    const text = await box.inputValue();
    assert.doesNotMatch(text, UNSEEN);
    assert.match(text, /late delivery\\u202e\\u001b\[31m/);
    await box.press("End");
    await box.press("Space");
    assert.equal(await page.locator(".difference .line-new, .difference .line-gone").count(), 0);
    assert.deepEqual(wrong, []);
    await close();
  });

  test("of a call without an outcome the page says only what is known", async () => {
    const { page, context, wrong } = await openPage(browser, outlast.address);
    const call = (at: number) => ({ call: `cal_${at}`, tool: "pay", arguments: {}, session: "ses_1", turn: "trn_1", since: at });
    await page.route("**/v1/unknown?*", (route) => route.fulfill({ json: { items: [call(Date.now() - 370_000), call(Date.now())] } }));
    await page.goto("/approvals");
    await page.getByText("begun 6 min ago, no outcome is known").waitFor();
    await page.getByText("begun just now, no outcome is known").waitFor();
    assert.deepEqual(wrong, []);
    await context.close();
  });

  test("a question says where each value that matters comes from", async () => {
    const { page, context, wrong } = await openPage(browser, outlast.address);
    const provenance = [{ path: "/to", origin: "user" }, { path: "/subject", origin: "unknown" }];
    const question = { id: "apr_1", session: "ses_1", turn: "trn_1", call: "cal_1", tool: "mail", who: [], votes: [], needed: 1, for_session: true, reminded: 0, cost: "0", since: Date.now(), labels: ["tool:fetch"], provenance };
    const passed = { to: "dana@corp.example", subject: "Win\u202E now" };
    const edited = { ...question, id: "apr_2", arguments: { ...passed, to: "bob@corp.example" }, original: passed };
    await page.route("**/v1/approvals?*", (route) => route.fulfill({ json: { items: [{ ...question, arguments: passed }, edited] } }));
    await page.goto("/approvals");
    const rows = async (name: string) => {
      const table = page.getByRole("table", { name, exact: true });
      await table.waitFor();
      return (await table.getByRole("row").allInnerTexts()).slice(1).map((row) => row.replace(/\s+/g, " "));
    };
    const expected = ['/subject "WinRLO now" not found in trusted text', '/to "dana@corp.example" typed by the user'];
    assert.deepEqual(await rows("Origins of the sensitive values"), expected);
    // The provenance describes the model's arguments, not the edited ones.
    assert.deepEqual(await rows("Origins of the sensitive values that the model requested"), expected);
    assert.deepEqual(await findings(page), []);
    assert.deepEqual(wrong, []);
    await context.close();
  });

  test("a question of an agent is answered with an option, or in one's own words", async () => {
    const { session } = await outlast.say("about the box", { wait: 2 });
    const { page, wrong, close } = await shown(`/sessions/${session}`);
    const asks = page.locator(".asks");
    await asks.getByText("has the box?").waitFor();
    assert.match(await asks.innerText(), /Which colour\s*RLO\s*has the box\?/);
    assert.doesNotMatch(await asks.innerText(), UNSEEN);
    await asks.getByRole("button", { name: "blue as the sky" }).click();
    await page.getByText("The box is blue as the sky.").waitFor();
    await page.fill("#composer", "and the name?");
    await page.keyboard.press("Enter");
    await asks.getByText("What is the name on it?").waitFor();
    assert.equal(await asks.locator(".options").count(), 0);
    // Text stays text, even if it looks like JSON.
    await asks.getByLabel("Your answer").fill(" 42 ");
    await page.keyboard.press("Enter");
    await page.getByText("The name is 42.").waitFor();
    const { items } = await outlast.ask<{ items: { role: string; content: { tool?: string; result?: unknown } }[] }>(`/v1/sessions/${session}/messages`);
    assert.match(JSON.stringify(items.filter(({ content }) => content.tool === "ask_user").map(({ content }) => content.result)), /"blue as the sky".*"42"/);
    assert.deepEqual(wrong, []);
    await close();
  });

  test("a form to ask again has the cursor, is in sight, and goes before its page does", async () => {
    const { session } = await outlast.say("first");
    for (const text of ["second", "third", "fourth"]) await outlast.say(text, { session });
    const { page, wrong, close } = await shown(`/sessions/${session}`, { height: 560 });
    await page.getByText("You said: fourth").waitFor();
    await page.keyboard.press("k");
    await page.keyboard.press("k");
    await page.keyboard.press("r");
    const form = page.locator("form.rerun");
    const field = page.getByLabel("Ask again from here, in a new branch");
    const inSight = async () => {
      await form.getByRole("button", { name: "Try and compare" }).waitFor();
      await page.waitForTimeout(1_200);
      const [box, room] = [await form.boundingBox(), await page.locator(".conversation").boundingBox()];
      assert.ok(box && room && box.y >= room.y - 1 && box.y + box.height <= room.y + room.height + 1, JSON.stringify([box, room]));
      assert.equal(await field.evaluate((element) => element === document.activeElement), true);
    };
    await inSight();
    await page.keyboard.press("Escape");
    await form.waitFor({ state: "detached" });
    assert.match(page.url(), new RegExp(`${session}$`));
    await page.keyboard.press("r");
    await inSight();
    await page.locator(".session > .bar h1").click();
    await page.keyboard.press("Escape");
    await form.waitFor({ state: "detached" });
    assert.match(page.url(), new RegExp(`${session}$`));
    await page.keyboard.press("Escape");
    await page.waitForURL((url) => url.pathname === "/");
    assert.deepEqual(wrong, []);
    await close();
  });

  test("the door has the cursor in its field, and no key does anything behind it", async () => {
    const locked = bakery("--require-key");
    try {
      await locked.start();
      const { page, context } = await openPage(browser, locked.address);
      await page.goto("/");
      await page.locator("#key:focus").waitFor();
      await page.locator("#key").blur();
      for (const key of ["t", "?", "g", "a"]) await page.keyboard.press(key);
      assert.equal(await page.evaluate(() => document.documentElement.dataset["theme"]), "system");
      assert.equal(new URL(page.url()).pathname, "/");
      const key = /olk_\S+/.exec(locked.run("keys", "create", "ann", "--person", "--scope", "admin"))?.[0] ?? "";
      await page.getByLabel("API key").fill(key);
      await page.keyboard.press("Enter");
      await page.getByText("No sessions yet").waitFor();
      assert.equal(await page.getByRole("dialog").count(), 0);
      await context.close();
    } finally {
      await locked.close();
    }
  });

  test("costs of sessions have their names, and those that are not shown are the rest", async () => {
    const { id } = await outlast.ask<{ id: string }>("/v1/sessions", { key: "quarter-costs" });
    for (let at = 0; at < 3; at++) await outlast.say("again", { session: id });
    for (let at = 0; at < 5; at++) await outlast.say(`a word number ${at}`);
    const { page, wrong, close } = await shown("/costs");
    await page.getByRole("button", { name: "replies" }).click();
    await page.getByRole("button", { name: "by session" }).click();
    await page.locator("figcaption").getByText("the rest", { exact: true }).waitFor();
    await page.locator("figcaption").getByText("quarter-costs").waitFor();
    await page.locator(".shares").getByRole("link", { name: "a word number 4" }).waitFor();
    assert.deepEqual(wrong, []);
    await close();
  });

  test("tiles of the server stand in even rows, wide or narrow, above plots that can be read", async () => {
    for (const [width, columns] of [[1280, 4], [900, 4], [390, 2]] as const) {
      const { page, close } = await shown("/server", { width });
      await page.locator(".uplot").first().waitFor();
      const tops = await page.locator(".gauges > div").evaluateAll((all) => all.map((one) => Math.round(one.getBoundingClientRect().top)));
      assert.deepEqual([...new Set(tops)].map((top) => tops.filter((other) => other === top).length), Array(8 / columns).fill(columns), `${width} px`);
      assert.ok(((await page.locator(".u-over").first().boundingBox())?.height ?? 0) >= 100);
      await close();
    }
  });

  test("a message that is found says where it was said, however long it is", async () => {
    const { session } = await outlast.say(`zebra ${"stripes and more stripes ".repeat(30)}`);
    for (const width of [1280, 390]) {
      const { page, close } = await shown("/?search=zebra", { width });
      const place = page.locator(".hits small").first();
      await place.getByText(session.slice(-6)).waitFor();
      const [box, list] = [await place.boundingBox(), await page.locator(".hits ul").boundingBox()];
      assert.ok(box && list && box.x + box.width <= list.x + list.width + 1, `${width} px`);
      await close();
    }
  });

  test("a session that is not there can be neither forked nor written in", async () => {
    const { page, wrong, close } = await shown("/sessions/ses_00000000000000000000000000000001");
    await page.getByRole("alert").waitFor();
    assert.equal(await page.getByRole("button", { name: "Fork" }).count(), 0);
    assert.equal(await page.getByRole("button", { name: "Send" }).count(), 0);
    await page.keyboard.press("F");
    await page.waitForTimeout(200);
    assert.match(page.url(), /ses_0+1$/);
    assert.deepEqual(wrong, []);
    await close();
  });

  test("a file is saved by a button that stands where its line begins", async () => {
    const form = new FormData();
    form.append("input", JSON.stringify({ text: "the recipe" }));
    form.append("file", new Blob(["flour"], { type: "text/plain" }), "recipe.txt");
    const said = await fetch(`${outlast.address}/v1/turns?wait=10`, { method: "POST", body: form });
    const { session } = (await said.json()) as { session: string };
    const { page, close } = await shown(`/sessions/${session}`);
    await page.getByRole("tab", { name: "Files" }).click();
    const words = (selector: string) => page.locator(selector).first().evaluate((element) => {
      const range = document.createRange();
      range.selectNodeContents(element);
      return range.getBoundingClientRect().left;
    });
    await page.locator(".files button").waitFor();
    assert.ok(Math.abs((await words(".files button")) - (await words(".files .quiet"))) < 1);
    await close();
  });
});
