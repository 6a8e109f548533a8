// Lets the programs of this directory import the packages that are installed in $CLIENT_MODULES.
import { registerHooks } from "node:module";
import { pathToFileURL } from "node:url";

const here = new URL(".", import.meta.url).href;
const parentURL = pathToFileURL(`${process.env.CLIENT_MODULES}/`).href;

registerHooks({
  resolve(name, context, next) {
    const isPackage = /^[a-z@]/.test(name) && !name.startsWith("node:");
    return next(name, isPackage && context.parentURL?.startsWith(here) ? { ...context, parentURL } : context);
  },
});
