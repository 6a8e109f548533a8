/** Tests of accessibility and small screens: every state of every page passes axe and fits the window. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { findings, openBrowser, openPage } from "./look.ts";
import type { Outlast } from "./outlast.ts";
import { bakery } from "./stage.ts";

/** A page and the actions that lead to the state under test. */
interface State {
  name: string;
  path: string;
  act?: (page: Page) => Promise<void>;
}

const LOOKS = [{ width: 1280, dark: false }, { width: 1280, dark: true }, { width: 390, dark: false }, { width: 390, dark: true }];

describe("every state of every page", { timeout: 1_500_000 }, () => {
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

  /** Creates test data: a stored agent with two versions, an unknown call, a key, a grant, questions, branches, a file. */
  async function staged(): Promise<State[]> {
    await outlast.keep("night", { system: "Be brief." });
    await outlast.keep("night", { system: "Be very brief." });
    outlast.run("keys", "create", "ann", "--person", "--scope", "read");
    const bill = await outlast.say("the bill", { wait: 0 });
    const shaky = await outlast.say("the shaky scale", { wait: 0 });
    for (const { turn } of [bill, shaky]) await outlast.until<{ items: { kind: string }[] }>(`/v1/turns/${turn}/effects`, ({ items }) => items.some(({ kind }) => kind === "tool_call"));
    await outlast.kill();
    await outlast.start();
    await outlast.until<{ items: unknown[] }>("/v1/unknown", ({ items }) => items.length > 0);
    outlast.allow("weighed");
    await outlast.until<{ state: string }>(`/v1/turns/${shaky.turn}`, ({ state }) => state === "ended");
    const { session, turn } = await outlast.say("two orders");
    await outlast.say("letter", { session });
    await outlast.ask(`/v1/sessions/${session}/fork`, { head: "draft" });
    const form = new FormData();
    form.append("input", JSON.stringify({ text: "the recipe" }));
    form.append("file", new Blob(["flour"], { type: "text/plain" }), "recipe.txt");
    await fetch(`${outlast.address}/v1/sessions/${session}/turns?wait=10`, { method: "POST", body: form });
    const plain = await outlast.say("what is open?");
    const granted = await outlast.say("refund first", { wait: 2 });
    const [question] = (await outlast.ask<{ items: { id: string }[] }>("/v1/approvals")).items;
    await outlast.ask(`/v1/approvals/${question?.id}`, { verdict: "approve_for_session" });
    await outlast.say("refund please", { wait: 2 });
    const waiting = await outlast.say("refund again", { wait: 2 });
    const asking = await outlast.say("about the box", { wait: 2 });
    await outlast.keep("guest", { system: "Be kind." });
    await fetch(`${outlast.address}/v1/configs/agent/guest`, { method: "DELETE" });
    const on = `/sessions/${session}`;
    const tab = (name: string) => (page: Page) => page.getByRole("tab", { name }).click();
    const access = (name: string) => (page: Page) => page.getByRole("button", { name, exact: true }).click();
    const decide = (key: string) => async (page: Page) => {
      await page.locator(".question").first().waitFor();
      await page.keyboard.press(key);
    };
    const effect = (kind: string) => async (page: Page) => {
      await tab("Timeline")(page);
      await page.locator(`button.effect-${kind}`).last().click();
    };
    return [
      { name: "sessions", path: "/" },
      { name: "sessions that are found by words", path: "/?search=order", act: (page) => page.locator(".hits").waitFor() },
      { name: "no session that fits", path: "/?search=zzz", act: (page) => page.getByText("No matching sessions").waitFor() },
      { name: "a session", path: on },
      { name: "a session that waits", path: `/sessions/${waiting.session}` },
      { name: "a session that asks", path: `/sessions/${asking.session}`, act: (page) => page.locator(".asks").waitFor() },
      { name: "a session whose call is unknown", path: `/sessions/${bill.session}` },
      { name: "a session that is not there", path: "/sessions/ses_00000000000000000000000000000001", act: (page) => page.getByRole("alert").waitFor() },
      { name: "a timeline", path: on, act: tab("Timeline") },
      { name: "a timeline with retries and a resume", path: `/sessions/${shaky.session}`, act: tab("Timeline") },
      { name: "a model call with attempts that failed", path: `/sessions/${shaky.session}`, act: effect("model_call") },
      { name: "a tree", path: on, act: tab("Tree") },
      { name: "a context", path: on, act: tab("Context") },
      { name: "files", path: on, act: tab("Files") },
      { name: "no files", path: `/sessions/${granted.session}`, act: tab("Files") },
      { name: "a call", path: on, act: effect("tool_call") },
      {
        name: "a model call with what the model was shown",
        path: on,
        act: async (page) => {
          await effect("model_call")(page);
          await page.getByRole("button", { name: "Show the request to the model" }).click();
          await page.getByRole("group", { name: "Messages" }).waitFor();
        },
      },
      {
        name: "a form to ask again, with both courses",
        path: `/sessions/${plain.session}`,
        act: async (page) => {
          await page.locator(".said-user").first().hover();
          await page.getByRole("button", { name: "Ask again" }).first().click();
          await page.getByLabel("Model", { exact: true }).fill("rehearsal/agent");
          await page.getByRole("button", { name: "Try and compare" }).click();
          await page.locator(".courses").waitFor();
        },
      },
      {
        name: "a message with files that is not sent",
        path: on,
        act: async (page) => {
          await page.locator("input[type=file]").setInputFiles({ name: "list.txt", mimeType: "text/plain", buffer: Buffer.from("salt") });
          await page.getByText("list.txt").waitFor();
        },
      },
      { name: "approvals", path: "/approvals", act: (page) => page.locator(".question").first().waitFor() },
      { name: "a question that is denied", path: "/approvals", act: decide("d") },
      {
        name: "a question that is changed",
        path: "/approvals",
        act: async (page) => {
          await decide("e")(page);
          await page.getByLabel("Arguments").fill('{"order": "4711"}');
          await page.locator(".difference").first().waitFor();
        },
      },
      {
        name: "a question that is changed to what is no JSON",
        path: "/approvals",
        act: async (page) => {
          await decide("e")(page);
          await page.getByLabel("Arguments").fill("{");
        },
      },
      { name: "costs", path: "/costs" },
      { name: "an agent", path: "/agents/clerk" },
      { name: "an agent with versions, beside the package of a turn", path: `/agents/night?turn=${turn}`, act: (page) => page.locator(".difference").nth(1).waitFor() },
      { name: "an agent that was deleted", path: "/agents/guest", act: (page) => page.getByText("Version 2 deleted it.").waitFor() },
      { name: "grants", path: "/access", act: (page) => page.getByRole("button", { name: /Revoke/ }).waitFor() },
      { name: "budgets", path: "/access", act: access("Budgets") },
      { name: "keys of the API", path: "/access", act: access("Keys") },
      { name: "the audit", path: "/access", act: access("Audit") },
      { name: "the server", path: "/server", act: (page) => page.locator(".uplot").first().waitFor() },
      { name: "two sessions side by side", path: `/compare?left=${session}&right=${waiting.session}` },
      { name: "no such page", path: "/compare", act: (page) => page.getByText("There is no such page").waitFor() },
      {
        name: "the keys",
        path: "/",
        act: async (page) => {
          await page.keyboard.press("?");
          await page.getByRole("dialog").waitFor();
        },
      },
    ];
  }

  test("has nothing that axe finds wrong, wide or narrow, light or dark", async () => {
    const states = await staged();
    const all: string[] = [];
    for (const options of LOOKS) {
      const { page, context, wrong } = await openPage(browser, outlast.address, options);
      for (const { name, path, act } of states) {
        const at = `${name} ${JSON.stringify(options)}`;
        await page.goto(path);
        await page.locator("main :is(h1, h2)").first().waitFor();
        await page.waitForTimeout(150);
        await act?.(page).catch((error: Error) => assert.fail(`${at}: ${error.message}`));
        await page.waitForTimeout(150);
        all.push(...(await findings(page)).map((finding) => `${at}: ${finding}`));
        const across = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (across > 0) all.push(`${at} is ${across} px too wide`);
      }
      if (options.width < 900) {
        await page.goto("/");
        await page.getByRole("button", { name: "More" }).click();
        await page.getByRole("link", { name: "Access" }).waitFor();
        all.push(...(await findings(page)).map((finding) => `more ${JSON.stringify(options)}: ${finding}`));
      }
      assert.deepEqual(wrong, []);
      await context.close();
    }
    assert.deepEqual(all, []);
  });

  test("has nothing that axe finds wrong where nothing is there yet, or a key is wanted, or the server is gone", async () => {
    const locked = bakery("--require-key");
    const fresh = bakery();
    try {
      await locked.start();
      await fresh.start();
      for (const options of LOOKS) {
        const door = await openPage(browser, locked.address, options);
        await door.page.goto("/");
        await door.page.getByLabel("API key").waitFor();
        assert.deepEqual(await findings(door.page), [], `locked ${JSON.stringify(options)}`);
        await door.context.close();
        const { page, context } = await openPage(browser, fresh.address, options);
        for (const [path, said] of [["/", "No sessions yet"], ["/approvals", "No call waits for an approval"], ["/costs", "No costs yet"], ["/access", "No approvals for a session"]] as const) {
          await page.goto(path);
          await page.getByText(said).waitFor();
          assert.deepEqual(await findings(page), [], `${path} ${JSON.stringify(options)}`);
        }
        await page.goto("/");
        await page.getByText("No sessions yet").waitFor();
        await fresh.kill();
        await page.getByText("the server is not reachable").waitFor();
        await page.evaluate(() => history.pushState(undefined, "", "/agents"));
        await page.evaluate(() => dispatchEvent(new PopStateEvent("popstate")));
        await page.getByText("The server does not respond").first().waitFor();
        assert.deepEqual(await findings(page), [], `a server that is gone ${JSON.stringify(options)}`);
        await fresh.start();
        await context.close();
      }
    } finally {
      await locked.close();
      await fresh.close();
    }
  });
});
