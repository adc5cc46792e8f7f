import { render } from "preact";
import { App } from "./app.tsx";

const root = document.getElementById("portal");
if (root) render(<App />, root);
