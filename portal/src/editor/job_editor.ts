// Editor of job files: CodeMirror in a shadow root, where its styles need no exception from the page's policy.
// Loaded when the page that needs it is opened.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, type CompletionContext } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { json } from "@codemirror/lang-json";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, defaultHighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, setDiagnostics, type Diagnostic } from "@codemirror/lint";
import { Compartment, EditorState } from "@codemirror/state";
import { EditorView, keymap, lineNumbers } from "@codemirror/view";
import { oneDarkHighlightStyle } from "@codemirror/theme-one-dark";
import type { JobProblem } from "../api_types.ts";
import { completionsAt, type KnownNames, type Schema } from "./completion.ts";
import { isJson } from "./job_file.ts";

export interface JobEditor {
  readonly setText: (text: string) => void;
  /** What keys and values are completed from. */
  readonly setSchema: (schema: Schema, names: KnownNames) => void;
  readonly setProblems: (problems: readonly JobProblem[]) => void;
  readonly showProblem: (problem: JobProblem) => void;
  readonly destroy: () => void;
}

const LOOK = EditorView.theme({
  "&": { height: "100%", color: "var(--text)", backgroundColor: "var(--surface)", fontSize: "13px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55" },
  ".cm-gutters": { backgroundColor: "var(--sunken)", color: "var(--quiet)", border: "none" },
  ".cm-content": { caretColor: "var(--text)" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--accent-soft) !important" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", maxHeight: "16rem" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "0.2rem 0.6rem" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "700" },
  ".cm-tooltip.cm-completionInfo": { padding: "0.4rem 0.6rem", maxWidth: "18rem", fontFamily: "system-ui, sans-serif" },
  ".cm-tooltip": { backgroundColor: "var(--surface)", color: "var(--text)", border: "1px solid var(--line)" },
});

export function createEditor(host: HTMLElement, text: string, isDark: boolean, onChange: (text: string) => void): JobEditor {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  root.replaceChildren();
  delete host.dataset["schema"];
  const language = new Compartment();
  const languageOf = (content: string) => (isJson(content) ? json() : yaml());
  let known: { schema: Schema; names: KnownNames } | null = null;
  const complete = ({ state, pos, explicit }: CompletionContext) => {
    const completions = known && completionsAt(known.schema, state.doc.toString(), pos, known.names);
    // Not on an empty line: Enter would choose an entry instead of starting the next line.
    if (!completions || (!explicit && completions.from === pos && state.doc.lineAt(pos).text.trim() === "")) return null;
    return { ...completions, validFor: /^[\w.-]*$/ };
  };
  let isOwnChange = false;
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: text,
      extensions: [
        lineNumbers(),
        history(),
        bracketMatching(),
        closeBrackets(),
        indentOnInput(),
        lintGutter(),
        autocompletion({ override: [complete], icons: false }),
        keymap.of([...closeBracketsKeymap, ...completionKeymap, ...defaultKeymap, ...historyKeymap]),
        syntaxHighlighting(isDark ? oneDarkHighlightStyle : defaultHighlightStyle),
        language.of(languageOf(text)),
        EditorView.contentAttributes.of({ "aria-label": "Job file", tabindex: "0" }),
        EditorView.lineWrapping,
        LOOK,
        EditorView.updateListener.of((update) => {
          if (update.docChanged && !isOwnChange) onChange(update.state.doc.toString());
        }),
      ],
    }),
  });
  const place = ({ line, column }: JobProblem) => {
    const at = view.state.doc.line(Math.min(Math.max(line, 1), view.state.doc.lines));
    return { from: Math.min(at.from + Math.max(column - 1, 0), at.to), to: at.to };
  };
  return {
    setText(content) {
      if (content === view.state.doc.toString()) return;
      isOwnChange = true;
      view.dispatch({
        changes: { from: 0, to: view.state.doc.length, insert: content },
        effects: language.reconfigure(languageOf(content)),
      });
      isOwnChange = false;
    },
    setSchema(schema, names) {
      known = { schema, names };
      host.dataset["schema"] = "loaded";
    },
    setProblems(problems) {
      const marks: Diagnostic[] = problems.map((problem) => ({
        ...place(problem),
        severity: "error",
        message: problem.key ? `${problem.key}: ${problem.message}` : problem.message,
      }));
      view.dispatch(setDiagnostics(view.state, marks));
    },
    showProblem(problem) {
      const { from } = place(problem);
      view.dispatch({ selection: { anchor: from }, scrollIntoView: true });
      view.focus();
    },
    destroy: () => view.destroy(),
  };
}
