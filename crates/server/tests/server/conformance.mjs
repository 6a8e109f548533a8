// The suite names a function of Node 22 that its server mode never calls; an older Node would not even load it.
import { register } from "node:module";

const hook = `
const fs = "export * from 'node:fs'; export { default } from 'node:fs'; export const globSync = () => [];";
export async function resolve(name, context, next) {
  if (name === "fs" && context.parentURL?.includes("/conformance/dist/")) {
    return { url: "data:text/javascript," + encodeURIComponent(fs), shortCircuit: true };
  }
  return next(name, context);
}
`;
register("data:text/javascript," + encodeURIComponent(hook));
