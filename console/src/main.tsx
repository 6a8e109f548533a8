/** Entry point of the console, a web interface for the API. `pages` contains the pages, `parts` the components. */
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
