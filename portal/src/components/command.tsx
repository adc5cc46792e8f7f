// Commands for a terminal.
import { useSignal } from "@preact/signals";

/** A command, and a button that copies it. */
export function Command({ text }: { text: string }) {
  return (
    <div class="copy">
      <code tabIndex={0}>{text}</code>
      <CopyButton text={text} label={`Copy ${text}`} />
    </div>
  );
}

export function CopyButton({ text, label }: { text: string; label: string }) {
  const isCopied = useSignal(false);
  const copy = async () => {
    // Only pages of a secure origin may write to the clipboard directly.
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else copyBySelection(text);
    isCopied.value = true;
    setTimeout(() => (isCopied.value = false), 1500);
  };
  return (
    <button class="button" type="button" onClick={copy} aria-label={label}>
      {isCopied.value ? "Copied" : "Copy"}
    </button>
  );
}

function copyBySelection(text: string): void {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "sr";
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
