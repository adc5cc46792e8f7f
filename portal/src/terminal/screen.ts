// The screen of a terminal: xterm.js under the page's policy, which allows no inline style. Loaded when needed.
import { FitAddon } from "@xterm/addon-fit";
import { Terminal, type ITheme } from "@xterm/xterm";
import rules from "@xterm/xterm/css/xterm.css" with { type: "text" };
import type { WindowSize } from "./exec_session.ts";

export interface Screen {
  readonly size: () => WindowSize;
  readonly write: (bytes: Uint8Array) => void;
  readonly clear: () => void;
  readonly focus: () => void;
  readonly applyTheme: () => void;
  readonly destroy: () => void;
}

interface Handlers {
  readonly onInput: (text: string) => void;
  readonly onResize: (size: WindowSize) => void;
  /** The user wants to leave the terminal, which takes every other key. */
  readonly onLeave: () => void;
}

const SCROLLBACK_LINES = 10_000;
/** Output that the screen has not shown yet; what comes faster than a page can draw is left out. */
const MAX_PENDING_BYTES = 8 << 20;
const LEFT_OUT = "\r\n\x1b[7m Some output is left out: it comes faster than the page can show it. \x1b[0m\r\n";

adopt(rules);
allowStyles();

export function createScreen(host: HTMLElement, handlers: Handlers): Screen {
  const terminal = new Terminal({
    fontFamily: getComputedStyle(host).getPropertyValue("--mono"),
    fontSize: 13,
    lineHeight: 1.25,
    scrollback: SCROLLBACK_LINES,
    cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches,
    // Programs choose colours for a dark screen.
    minimumContrastRatio: 4.5,
    theme: themeOf(host),
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(host);
  fit.fit();
  terminal.onData(handlers.onInput);
  terminal.onResize(({ rows, cols }) => handlers.onResize({ rows, columns: cols }));
  terminal.attachCustomKeyEventHandler((event) => {
    if (!(event.ctrlKey && event.key === ".")) return true;
    if (event.type === "keydown") handlers.onLeave();
    event.preventDefault();
    return false;
  });
  const observer = new ResizeObserver(() => {
    // A hidden terminal has no size, and keeps the one it had.
    if (host.clientWidth) fit.fit();
  });
  observer.observe(host);

  let pending = 0;
  let isLeavingOut = false;
  return {
    size: () => ({ rows: terminal.rows, columns: terminal.cols }),
    write(bytes) {
      if (pending > MAX_PENDING_BYTES) {
        isLeavingOut = true;
        return;
      }
      if (isLeavingOut) terminal.write(LEFT_OUT);
      isLeavingOut = false;
      pending += bytes.length;
      terminal.write(bytes, () => (pending -= bytes.length));
    },
    clear: () => terminal.reset(),
    focus: () => terminal.focus(),
    applyTheme: () => (terminal.options.theme = themeOf(host)),
    destroy() {
      observer.disconnect();
      terminal.dispose();
    },
  };
}

function adopt(text = ""): CSSStyleSheet {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(text);
  document.adoptedStyleSheets.push(sheet);
  return sheet;
}

/**
 * xterm.js writes the text of `<style>` and the attribute `style`, which the policy blocks; adopted style sheets and
 * properties of `style`, which only scripts can set, it does not. So elements that scripts create use those instead.
 */
function allowStyles(): void {
  const create = document.createElement.bind(document);
  document.createElement = ((name: string, options?: ElementCreationOptions) => {
    if (name === "style") return styleStandIn(create("template"));
    const element = create(name, options);
    if (name !== "span") return element;
    const set = element.setAttribute.bind(element);
    element.setAttribute = (attribute, value) => {
      if (attribute === "style") element.style.cssText = value;
      else set(attribute, value);
    };
    return element;
  }) as typeof document.createElement;
}

function styleStandIn(element: HTMLElement): HTMLElement {
  const sheet = adopt();
  Object.defineProperty(element, "textContent", { set: (text: string) => sheet.replaceSync(text) });
  const remove = element.remove.bind(element);
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== sheet);
    remove();
  };
  return element;
}

function themeOf(host: HTMLElement): ITheme {
  // Of computed properties the colour of the current theme; xterm.js knows no `light-dark()`.
  const { backgroundColor, color, caretColor } = getComputedStyle(host);
  return {
    background: backgroundColor,
    foreground: color,
    cursor: color,
    cursorAccent: backgroundColor,
    selectionBackground: caretColor,
  };
}
