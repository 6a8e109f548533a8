/** The console: what the API says, for people. Begins here; pages are in `pages`, what they are made of in `parts`. */
import "uplot/dist/uPlot.min.css";
import "./style/base.css";
import "./style/shell.css";
import "./style/pages.css";
import "./style/session.css";
import { render } from "preact";
import { App } from "./app.tsx";
import { hearKeys } from "./keys.ts";
import { showTheme } from "./theme.ts";

showTheme();
hearKeys();
const place = document.getElementById("console");
if (place) render(<App />, place);
