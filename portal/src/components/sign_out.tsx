// Signing out of all browsers.
import { useSignal } from "@preact/signals";
import { signOut } from "../api.ts";
import { Confirm } from "./dialogs.tsx";

export function SignOutEverywhere({ class: name }: { class: string }) {
  const isAsked = useSignal(false);
  return (
    <>
      <button class={name} type="button" onClick={() => (isAsked.value = true)}>
        Sign out everywhere
      </button>
      {isAsked.value && (
        <Confirm
          title="Sign out everywhere?"
          text="Your sessions in all browsers end, this one as well. Tokens of pai and of programs stay."
          action="Sign out everywhere"
          // The session ends here in any case; the cluster may be unreachable, or have ended it before.
          onConfirm={() => void signOut(true).catch(() => undefined)}
          onClose={() => (isAsked.value = false)}
        />
      )}
    </>
  );
}
