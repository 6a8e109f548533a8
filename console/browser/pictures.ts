/** Takes the pictures of the guide, into `docs/images`. */
import { mkdirSync } from "node:fs";
import type { Page } from "playwright-core";
import { openBrowser, openPage } from "./look.ts";
import { bakery } from "./stage.ts";

const FOLDER = new URL("../../../docs/images/", import.meta.url).pathname;

const outlast = bakery();
const browser = await openBrowser();
try {
  await outlast.start();
  for (const text of ["what is open today?", "durability, in three sentences", "where is the flour?"]) await outlast.say(text);
  const orders = await outlast.say("two orders: where are 4711 and 4712?");
  await outlast.say("and a refund for the first one?", { session: orders.session, wait: 3 });
  await outlast.say("refund 4713, the cake was burnt", { wait: 3 });
  const [ann, bob] = [await outlast.say("letter to Ann about the cake"), await outlast.say("letter to Bob about the bread")];
  mkdirSync(FOLDER, { recursive: true });
  await taken("sessions", "/", false, (page) => page.locator(".session-line .cost").first().waitFor());
  await taken("session", `/sessions/${orders.session}`, false, async (page) => {
    await page.locator("button.effect").first().waitFor();
  });
  await taken("approvals", "/approvals", true, (page) => page.locator(".question").first().waitFor());
  await taken("compare", `/compare?left=${ann.session}&right=${bob.session}`, false, (page) => page.locator(".difference").waitFor());
} finally {
  await browser.close();
  await outlast.close();
}

async function taken(name: string, path: string, dark: boolean, ready: (page: Page) => Promise<void>): Promise<void> {
  const { page, context } = await openPage(browser, outlast.address, { dark, height: 760 });
  await page.goto(path);
  await ready(page);
  await page.waitForTimeout(800);
  await page.screenshot({ path: `${FOLDER}console-${name}.png` });
  await context.close();
}
