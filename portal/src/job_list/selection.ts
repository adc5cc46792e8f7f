// Selection of rows: single ones, and ranges with Shift, by the mouse or the keyboard.
import { useRef } from "preact/hooks";
import type { InputHTMLAttributes } from "preact";

/** The keys from one to the other, in the order of the list; only the second if the first is not in the list. */
export function rangeOf(keys: readonly string[], from: string | undefined, to: string): readonly string[] {
  const start = from === undefined ? -1 : keys.indexOf(from);
  const end = keys.indexOf(to);
  if (start < 0 || end < 0) return [to];
  return keys.slice(Math.min(start, end), Math.max(start, end) + 1);
}

interface Options {
  readonly onSelect: (keys: readonly string[], isOn: boolean) => void;
  readonly onClear: () => void;
  /** Enter: to what can be done with the selection. */
  readonly onEnter: () => void;
}

/** Of the box of a row. */
export type BoxHandlers = Pick<InputHTMLAttributes, "onClick" | "onKeyDown">;

/** Handlers of the box of each row. */
export function useRowSelection(keys: readonly string[], { onSelect, onClear, onEnter }: Options): (key: string) => BoxHandlers {
  const last = useRef<string | undefined>(undefined);
  return (key) => ({
    onClick: (event) => {
      const isOn = event.currentTarget.checked;
      onSelect(event.shiftKey ? rangeOf(keys, last.current, key) : [key], isOn);
      last.current = key;
    },
    onKeyDown: (event) => {
      const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
      if (event.key === "Escape") onClear();
      else if (event.key === "Enter") onEnter();
      else if (step) {
        const next = boxBeside(event.currentTarget, step);
        if (!next) return;
        next.focus();
        const at = keys[keys.indexOf(key) + step];
        if (event.shiftKey && at !== undefined) {
          onSelect([key, at], true);
          last.current = at;
        }
      } else return;
      event.preventDefault();
    },
  });
}

function boxBeside(box: HTMLInputElement, step: number): HTMLInputElement | null | undefined {
  const row = box.closest("tr");
  const beside = step > 0 ? row?.nextElementSibling : row?.previousElementSibling;
  return beside?.querySelector<HTMLInputElement>("input[type=checkbox]");
}
