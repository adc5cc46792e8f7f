// Small parts that every page uses.
import { signal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useRef } from "preact/hooks";
import type { ApiError } from "../api.ts";
import { stateName } from "../format.ts";
import { onOtherUser } from "../session.ts";

export function State({ state }: { state: string }) {
  return <span class={`state ${state}`}>{stateName(state)}</span>;
}

export function ErrorNotice({ error }: { error: ApiError }) {
  return (
    <div class="notice bad" role="alert">
      <p>{error.message}</p>
      {error.hint && <p>{error.hint}</p>}
    </div>
  );
}

/** A word while something loads; nothing in the first 300 ms, so that quick answers do not flicker. */
export function Loading({ what }: { what: string }) {
  const isSlow = useSignal(false);
  useEffect(() => {
    const timer = setTimeout(() => (isSlow.value = true), 300);
    return () => clearTimeout(timer);
  }, []);
  return <div class="empty">{isSlow.value && <p role="status">Loading {what} …</p>}</div>;
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

export function Bar({ used, total, label }: { used: number; total: number; label: string }) {
  const share = total ? Math.min(1, used / total) : 0;
  return (
    <div class="bar" role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={total} aria-valuenow={used}>
      <div style={{ width: `${share * 100}%` }} />
    </div>
  );
}

/** A command, and a button that copies it. */
export function Command({ text }: { text: string }) {
  const isCopied = useSignal(false);
  const copy = async () => {
    // Only pages of a secure origin may write to the clipboard directly.
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else copyBySelection(text);
    isCopied.value = true;
    setTimeout(() => (isCopied.value = false), 1500);
  };
  return (
    <div class="copy">
      <code tabIndex={0}>{text}</code>
      <button class="button" type="button" onClick={copy} aria-label={`Copy ${text}`}>
        {isCopied.value ? "Copied" : "Copy"}
      </button>
    </div>
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

interface DialogProps {
  readonly title: string;
  readonly isWide?: boolean;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
}

/** A modal dialog; Escape closes it, and the focus returns to where it was. */
export function Dialog({ title, isWide = false, onClose, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    element.current?.showModal();
  }, []);
  return (
    <dialog ref={element} class={isWide ? "wide" : ""} aria-labelledby={id} onClose={onClose}>
      <h2 id={id}>{title}</h2>
      {children}
    </dialog>
  );
}

interface ConfirmProps {
  readonly title: string;
  readonly text: string;
  readonly action: string;
  readonly onConfirm: () => void;
  readonly onClose: () => void;
}

export function Confirm({ title, text, action, onConfirm, onClose }: ConfirmProps) {
  return (
    <Dialog title={title} onClose={onClose}>
      <p class="quiet">{text}</p>
      <div class="dialog-actions">
        <button class="button" type="button" onClick={onClose}>
          Cancel
        </button>
        <button
          class="button danger"
          type="button"
          onClick={() => {
            // First: to close the dialog may forget what it asks about.
            onConfirm();
            onClose();
          }}
        >
          {action}
        </button>
      </div>
    </Dialog>
  );
}

// -- toasts ----------------------------------------------------------------------------------------

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
  toasts.value = toasts.value.filter((one) => one.id !== id);
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
      {shown.map((one) => (
        <div class="toast" key={one.id}>
          <span>{one.text}</span>
          <button class="link" type="button" onClick={() => dismiss(one.id)}>
            Close
          </button>
        </div>
      ))}
    </div>
  );
}

/** The time now, renewed every second while something runs. */
export function useNow(isRunning: boolean): number {
  const now = useSignal(Date.now());
  useEffect(() => {
    if (!isRunning) return;
    const timer = setInterval(() => (now.value = Date.now()), 1000);
    return () => clearInterval(timer);
  }, [isRunning]);
  return now.value;
}
