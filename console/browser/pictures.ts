/** Takes the screenshots of the guide and writes them to `docs/images`. */
import { mkdirSync } from "node:fs";
import type { Page } from "playwright-core";
import { openBrowser, openPage } from "./look.ts";
import { bakery } from "./stage.ts";

const FOLDER = new URL("../../../docs/images/", import.meta.url).pathname;

const [WIDE, PHONE] = [{ width: 1280, height: 760 }, { width: 390, height: 780 }];

const outlast = bakery();
const browser = await openBrowser();
try {
  await outlast.start();
  const shaky = await outlast.say("is it the shaky scale?", { wait: 0 });
  await outlast.until<{ items: { kind: string }[] }>(`/v1/turns/${shaky.turn}/effects`, ({ items }) => items.some(({ kind }) => kind === "tool_call"));
  await outlast.kill();
  await outlast.start();
  outlast.allow("weighed");
  for (const text of ["what is open today?", "durability, in three sentences", "where is the flour?"]) await outlast.say(text);
  const orders = await outlast.say("two orders: where are 4711 and 4712?");
  await outlast.say("and a refund for the first one?", { session: orders.session, wait: 3 });
  await outlast.say("refund 4713, the cake was burnt", { wait: 3 });
  const tree = await outlast.say("letter to Ann about the cake");
  const { items } = await outlast.ask<{ items: { last: number }[] }>(`/v1/sessions/${tree.session}/turns`);
  await outlast.ask(`/v1/sessions/${tree.session}/fork`, { head: "draft", at: items[0]?.last });
  await outlast.say("what is open tomorrow?", { session: tree.session });
  await outlast.ask(`/v1/sessions/${tree.session}/turns?wait=10`, { text: "and the bread?", head: "draft" });
  await outlast.keep("night", { system: "Be brief." });
  await outlast.keep("night", { system: "Be very brief, and polite." });
  const [ann, bob] = [await outlast.say("letter to Ann about the cake"), await outlast.say("letter to Bob about the bread")];
  mkdirSync(FOLDER, { recursive: true });
  await taken("sessions", "/", false, (page) => page.locator(".session-line .cost").first().waitFor());
  await taken("session", `/sessions/${orders.session}`, false, async (page) => {
    await page.locator("button.effect").first().waitFor();
  });
  await taken("retries", `/sessions/${shaky.session}`, false, (page) => page.locator(".resumed").waitFor());
  await taken("effect", `/sessions/${orders.session}`, true, async (page) => {
    await page.locator("button.effect-model_call").first().click();
    await page.getByRole("button", { name: "Show the request to the model" }).click();
    await page.getByRole("group", { name: "Messages" }).waitFor();
    await page.getByRole("group", { name: "Prompt" }).scrollIntoViewIfNeeded();
  });
  await taken("tree", `/sessions/${tree.session}?head=draft`, false, (page) => page.getByRole("tab", { name: "Tree" }).click());
  await taken("context", `/sessions/${orders.session}`, false, (page) => page.getByRole("tab", { name: "Context" }).click());
  await taken("rerun", `/sessions/${ann.session}`, false, async (page) => {
    await page.locator(".said-user").hover();
    await page.getByRole("button", { name: "Ask again" }).click();
    await page.getByLabel("Model", { exact: true }).fill("rehearsal/agent");
    await page.getByRole("button", { name: "Try and compare" }).click();
    await page.locator(".courses").waitFor();
  });
  await taken("costs", "/costs", true, (page) => page.locator(".shares").waitFor());
  await taken("agents", "/agents/night", false, async (page) => {
    await page.locator(".difference").waitFor();
    await page.locator(".difference").scrollIntoViewIfNeeded();
  });
  await taken("access", "/access", true, async (page) => {
    await page.getByRole("button", { name: "Audit" }).click();
    await page.locator("td").first().waitFor();
  });
  await taken("server", "/server", false, (page) => page.waitForTimeout(9_000));
  await taken("phone", "/", true, (page) => page.locator(".session-line .cost").first().waitFor(), PHONE);
  await taken("phone-session", `/sessions/${orders.session}`, false, (page) => page.locator(".said").first().waitFor(), PHONE);
  await taken("approvals", "/approvals", true, (page) => page.locator(".question").first().waitFor());
  await taken("compare", `/compare?left=${ann.session}&right=${bob.session}`, false, (page) => page.locator(".difference").waitFor());
} finally {
  await browser.close();
  await outlast.close();
}

async function taken(name: string, path: string, dark: boolean, ready: (page: Page) => Promise<void>, size = WIDE): Promise<void> {
  const { page, context } = await openPage(browser, outlast.address, { dark, ...size });
  await page.goto(path);
  await ready(page);
  await page.waitForTimeout(800);
  await page.screenshot({ path: `${FOLDER}console-${name}.png` });
  await context.close();
}
