// Short notices that need no answer.
import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { onOtherUser } from "../session.ts";

const TOAST_MS = 6000;
const toasts = signal<readonly { readonly id: number; readonly text: string }[]>([]);
let lastToast = 0;

// They may name what only their user may see.
onOtherUser(() => (toasts.value = []));

/** Say something that needs no answer. */
export function toast(text: string): void {
  const id = ++lastToast;
  toasts.value = [...toasts.value, { id, text }];
  setTimeout(() => dismiss(id), TOAST_MS);
}

function dismiss(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}

export function Toasts() {
  const element = useRef<HTMLDivElement>(null);
  const shown = toasts.value;
  useLayoutEffect(() => {
    const { current } = element;
    // Older browsers have no popovers.
    if (!current || !("popover" in current)) return;
    const isOpen = current.matches(":popover-open");
    if (isOpen && !document.querySelector("dialog:modal")) return;
    // What was opened last is on top, also of a dialog.
    if (isOpen) current.hidePopover();
    current.showPopover();
  }, [shown]);
  return (
    <div class="toasts" role="status" popover="manual" ref={element}>
      {shown.map((toast) => (
        <div class="toast" key={toast.id}>
          <span>{toast.text}</span>
          <button class="link" type="button" onClick={() => dismiss(toast.id)}>
            Close
          </button>
        </div>
      ))}
    </div>
  );
}
