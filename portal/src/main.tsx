import { render } from "preact";
import { App } from "./app.tsx";
import { prepareTimeFormats } from "./format.ts";

const root = document.getElementById("portal");
if (root) render(<App />, root);
// The first request is on its way.
prepareTimeFormats();
