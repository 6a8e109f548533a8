/** Starts Debian's Chromium, which may only connect to the server under test, and runs axe. */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium, type Browser, type BrowserContext, type Page } from "playwright-core";

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export function openBrowser(...more: string[]): Promise<Browser> {
  return chromium.launch({ executablePath: process.env["OUTLAST_CHROMIUM"] ?? "/usr/bin/chromium", args: [...FLAGS, ...more] });
}

/** Opens a page and records its errors, blocked loads and requests to other hosts. */
export async function openPage(browser: Browser, address: string, options: { width?: number; height?: number; dark?: boolean } = {}): Promise<{ page: Page; context: BrowserContext; wrong: string[] }> {
  const { width = 1280, height = 800, dark = false } = options;
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? "dark" : "light", baseURL: address, locale: "en-GB", timezoneId: "UTC", reducedMotion: "reduce" });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  const wrong: string[] = [];
  page.on("pageerror", (error) => wrong.push(`error: ${error.message}`));
  page.on("console", (message) => {
    if (/Content Security Policy|TrustedHTML|violates/i.test(message.text())) wrong.push(message.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(address) && !request.url().startsWith("blob:")) wrong.push(`asked ${request.url()}`);
  });
  page.on("dialog", (dialog) => {
    wrong.push(`dialog ${dialog.message()}`);
    void dialog.dismiss();
  });
  return { page, context, wrong };
}

/** Returns the violations that axe finds: WCAG 2.2 AA and its own best practices. */
export async function findings(page: Page): Promise<string[]> {
  // Runs through the debugger, because the page's content security policy blocks injected scripts.
  await page.evaluate(AXE);
  const found = await page.evaluate(async () => {
    const axe = (globalThis as unknown as { axe: { run(options: unknown): Promise<{ violations: { id: string; nodes: { html: string; failureSummary: string }[] }[] }> } }).axe;
    const { violations } = await axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] });
    return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html.slice(0, 160)} ${node.failureSummary.replace(/\s+/g, " ").slice(0, 300)}`));
  });
  return found;
}
