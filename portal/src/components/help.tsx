// Help of the frame: the keyboard shortcuts, the version, and where there is more.
import { Fragment } from "preact";
import { pagesOfUser } from "../navigation.ts";
import { Dialog } from "./dialogs.tsx";

type Shortcut = readonly [keys: readonly string[], what: string];

const COMMON: readonly Shortcut[] = [
  [["/"], "search, or filter, what the page shows"],
  [["?"], "this list"],
];
const OF_PARTS: readonly Shortcut[] = [
  [["←", "→"], "in a line of tabs: the next tab; in a plot: the value at the next point"],
  [["Enter"], "in the search of a log: the next match; with Shift the one before"],
  [["↑", "↓"], "at a box of the list of jobs: the next one; with Shift it is selected, too"],
  [["Shift", "Space"], "in the list of jobs: select all from the last one on"],
  [["Ctrl", "."], "leave a terminal"],
  [["Esc"], "close a dialog"],
];

export function Help({ version, onClose }: { version: string; onClose: () => void }) {
  const pages = pagesOfUser().map(({ key, label }): Shortcut => [["g", key], label]);
  return (
    <Dialog title="Help" onClose={onClose}>
      <dl class="shortcuts">
        {[...COMMON, ...pages, ...OF_PARTS].map(([keys, what]) => (
          <Fragment key={what}>
            <dt>
              {keys.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </Fragment>
        ))}
      </dl>
      <p class="quiet">
        {version && `Version ${version} of the cluster. `}In a shell, <code>pai --help</code> lists the commands. Programs use the{" "}
        <a href="openapi.json" target="_blank" rel="noreferrer">
          REST API
        </a>
        .
      </p>
      <div class="dialog-actions">
        <button class="button" type="button" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
