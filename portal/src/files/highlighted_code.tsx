// Code with colours: its text at once, and the colours when they are loaded.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Piece } from "./highlight.ts";

interface Props {
  readonly text: string;
  /** What the language is called, or the ending of the name of its files. */
  readonly ending: string;
}

/** Of these nothing is loaded. */
const PLAIN = ["", "txt", "text", "log", "out", "err"];

export function HighlightedCode({ text, ending }: Props) {
  const pieces = useSignal<{ readonly of: string; readonly found: readonly Piece[] } | null>(null);
  useEffect(() => {
    if (PLAIN.includes(ending)) return;
    let isGone = false;
    void import("./highlight.ts")
      .then(({ piecesOf }) => piecesOf(text, ending))
      .then((found) => {
        if (!isGone && found) pieces.value = { of: text, found };
      });
    return () => {
      isGone = true;
    };
  }, [text, ending, pieces]);
  if (pieces.value?.of !== text) return <>{text}</>;
  return (
    <>
      {pieces.value.found.map(({ text: part, className }, at) =>
        className ? (
          <span key={at} class={className}>
            {part}
          </span>
        ) : (
          part
        ),
      )}
    </>
  );
}
