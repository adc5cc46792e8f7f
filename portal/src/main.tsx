import { render } from "preact";
import { App } from "./app.tsx";
import { prepareTimeFormats } from "./format.ts";
import { rememberScroll } from "./history_entry.ts";
import { requestJobsEarly } from "./pages/jobs.tsx";

requestJobsEarly();
rememberScroll();
const root = document.getElementById("portal");
if (root) render(<App />, root);
// Requests are on their way.
prepareTimeFormats();
