// A page, or a part of one, whose code is loaded when it is shown for the first time.
import { useSignal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { ApiError } from "../api.ts";
import { ErrorNotice, Loading } from "./notices.tsx";

/** A component that `load` imports. */
export function lazy<P extends object>(what: string, load: () => Promise<ComponentType<P>>): ComponentType<P> {
  let loaded: ComponentType<P> | undefined;
  return function Lazy(props: P) {
    const state = useSignal<"loading" | "loaded" | "failed">(loaded ? "loaded" : "loading");
    useEffect(() => {
      if (loaded) return;
      load().then(
        (component) => {
          loaded = component;
          state.value = "loaded";
        },
        // A newer portal was installed, or the connection is lost.
        () => (state.value = "failed"),
      );
    }, [state]);
    if (state.value === "failed") return <ErrorNotice error={notLoaded()} />;
    const Loaded = loaded;
    return Loaded ? <Loaded {...props} /> : <Loading what={what} />;
  };
}

/** Made when it is needed: an error notes where it was made, for which the browser parses the script again. */
function notLoaded(): ApiError {
  return new ApiError("This part of the portal could not be loaded.", 0, "", "Reload the page.");
}
